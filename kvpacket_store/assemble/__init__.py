"""Packets → one cache: plan positions, rotate keys, fill slots."""

from kvpacket_store.assemble.before import Before, Predecessors
from kvpacket_store.assemble.correct import Correct, Corrector
from kvpacket_store.assemble.place import place, place_layer
from kvpacket_store.assemble.plan import AssemblyPlan, plan_assembly
from kvpacket_store.assemble.rope_shift import rope_shift

__all__ = [
    "AssemblyPlan",
    "Before",
    "Correct",
    "Corrector",
    "Predecessors",
    "place",
    "place_layer",
    "plan_assembly",
    "rope_shift",
]
