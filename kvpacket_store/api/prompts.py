"""A request's documents selected, and its prompt assembled as its decoding needs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvpacket_store.api.answer import Timings
from kvpacket_store.api.assembled import Assembled
from kvpacket_store.api.assembly import Assembler
from kvpacket_store.api.decoding import Decoder, room_for
from kvpacket_store.api.keeping import keep_given, require_keeping
from kvpacket_store.api.selection import Query, SelectedDocument, select
from kvpacket_store.errors import NotFoundError
from kvpacket_store.generate import GenerationOptions

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.retrieve import Retriever

__all__ = ["Needs", "Prompts"]

# Documents may be updated or deleted between their selection and the reading of their packets.
_SELECTIONS = 8


class Needs(NamedTuple):
    """Bytes of a request's exact K and V with room for the answer, and of its drafts at most.

    With ``is_swapped`` the exact ones are in memory for verifications alone.
    """

    exact_bytes: int
    draft_bytes: int
    is_swapped: bool


class Prompts:
    """Prepares the prompts of one store's requests.

    Parameters
    ----------
    store : Store
        Where the documents are.
    assembler : Assembler
        Puts packets into slots.
    decoder : Decoder
        Says what of the packets a request needs.
    retriever : callable
        Gives what finds documents for a question; not called where they are named.
    """

    def __init__(
        self,
        store: Store,
        assembler: Assembler,
        decoder: Decoder,
        retriever: Callable[[], Retriever],
    ) -> None:
        self._store = store
        self._assembler = assembler
        self._decoder = decoder
        self._retriever = retriever

    def needs(self, query: Query, options: GenerationOptions) -> Needs:
        """Return what a request takes in memory; nothing is loaded for that."""
        selected = select(self._store, query, self._retriever)
        model = self._store.model
        plan = self._assembler.plan_of(query, selected, room_for(model, options))
        return Needs(
            model.cache_bytes(plan.num_slots),
            model.cache_bytes(self._decoder.draft_slots(options, plan)),
            options.consistency == "packet"
            and self._store.meta.layers > 1
            and self._decoder.from_base(options),
        )

    def prepare(self, query: Query, options: GenerationOptions, timings: Timings) -> Assembled:
        """Select and assemble; file what is given with it, where it is to be kept."""
        if query.keep:
            require_keeping(self._store)
        assembled = self._prepared(query, options, timings)
        if query.keep:
            keep_given(self._store, query, assembled.made)
            assembled.made = {}
        return assembled

    def _prepared(self, query: Query, options: GenerationOptions, timings: Timings) -> Assembled:
        """Select and assemble; again where a document changed between the two."""
        for attempt in range(_SELECTIONS):
            started = time.perf_counter()
            selected = select(self._store, query, self._retriever)
            timings.retrieve += 1e3 * (time.perf_counter() - started)
            try:
                return self._assemble(query, selected, options, timings)
            except NotFoundError:
                if attempt == _SELECTIONS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _assemble(
        self,
        query: Query,
        selected: Sequence[SelectedDocument],
        options: GenerationOptions,
        timings: Timings,
    ) -> Assembled:
        room = room_for(self._store.model, options)
        joint = None
        if options.consistency == "recompute":
            joint = self._assembler.joint(query, selected, max_new_tokens=room)
            if not self._decoder.drafts_on_packets(options):
                return joint
        assembled = self._assembler.assemble(
            query,
            selected,
            max_new_tokens=room,
            timings=timings,
            from_base=self._decoder.from_base(options),
        )
        if joint is None:
            return assembled
        joint.draft, joint.fallbacks, joint.made = assembled, assembled.fallbacks, assembled.made
        return joint
