"""A prompt in slots, and what is noted while its packets are placed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kvpacket_store.api.answer import Fallback, UsedDocument
from kvpacket_store.api.loaded_body import LoadedBody
from kvpacket_store.api.read_ahead import ReadAhead
from kvpacket_store.api.selection import Query, SelectedDocument
from kvpacket_store.api.swap_in import SwapPart
from kvpacket_store.assemble import AssemblyPlan, Before, Predecessors
from kvpacket_store.models import SlotCache
from kvpacket_store.prefill import BodyKV
from kvpacket_store.types import TokenIds

__all__ = ["Assembled", "Placing"]


@dataclass(slots=True)
class Assembled:
    """A prompt in slots: packets placed, the question not yet run, nor turns before it.

    ``swap_parts`` are packets of which the slots hold what their base gives; ``base_bytes`` what
    was read for these; ``exact_parts`` are the others, their first slots and what lies before
    them, where there are any of the first kind. ``draft`` are the packets
    that draft for a joint prefill. ``text_ids`` are the prompt's tokens without the soft ones.
    ``made`` are packets that were prefilled for it and are to be kept, by packet key.
    """

    query: Query
    cache: SlotCache
    plan: AssemblyPlan
    preamble_ids: TokenIds
    question_ids: TokenIds
    documents: list[UsedDocument]
    fallbacks: list[Fallback]
    prompt_token_ids: TokenIds
    prompt_tokens: int
    cached_tokens: int
    adapter_tokens: int
    swap_parts: list[SwapPart] = field(default_factory=list)
    base_bytes: int = 0
    exact_parts: list[tuple[BodyKV, int, Before]] = field(default_factory=list)
    draft: Assembled | None = None
    text_ids: TokenIds = ()
    selected: Sequence[SelectedDocument] = ()
    made: dict[str, BodyKV] = field(default_factory=dict)


class Placing:
    """What grows while packets are placed."""

    ahead: ReadAhead[tuple[str, str], LoadedBody]

    def __init__(self, starts: Iterator[int], *, from_base: bool, keep: bool = False) -> None:
        self.starts = starts
        self._from_base = from_base
        self._keep = keep
        self.made: dict[str, BodyKV] = {}
        self.swap_parts: list[SwapPart] = []
        self.exact_parts: list[tuple[BodyKV, int, Before]] = []
        self.predecessors = Predecessors()
        self.loaded: list[LoadedBody] = []
        self.documents: list[UsedDocument] = []

    def place_is_done(self, loaded: LoadedBody) -> None:
        """Let go of a body that is in its slots, but for those that are to be kept."""
        if self._keep and loaded.tier == "prefill":
            self.made[loaded.packet_key] = loaded.body
        loaded.forget()
        self.loaded.append(loaded)

    def note(self, loaded: LoadedBody, document_id: str, start: int, before: Before) -> None:
        """Remember what a prompt's exact K and V are made of, where its slots hold bases."""
        if not self._from_base:
            return
        if loaded.kv_digest is None:
            self.exact_parts.append((loaded.body, start, before))
            return
        positions = loaded.body.k.shape[2]
        self.swap_parts.append(
            SwapPart(
                loaded.packet_key,
                document_id,
                start,
                before,
                positions,
                loaded.kv_digest,
                loaded.token_ids,
            )
        )
