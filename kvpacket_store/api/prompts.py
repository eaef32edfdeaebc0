"""A request's documents selected, and its prompt assembled as its decoding needs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvpacket_store.api.answer import Timings
from kvpacket_store.api.assembled import Assembled
from kvpacket_store.api.assembly import Assembler
from kvpacket_store.api.decoding import Decoder, room_for
from kvpacket_store.api.selection import Query, SelectedDocument, select
from kvpacket_store.errors import NotFoundError
from kvpacket_store.generate import GenerationOptions

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.retrieve import Retriever

__all__ = ["Prompts"]

# Documents may be updated or deleted between their selection and the reading of their packets.
_SELECTIONS = 8


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

    def exact_bytes(self, query: Query, options: GenerationOptions) -> int:
        """Return what the exact K and V of a request take in memory."""
        selected = select(self._store, query, self._retriever)
        room = room_for(self._store.model, options)
        slots = self._assembler.slots_of(selected, query.question, room)
        return self._store.model.cache_bytes(slots)

    def prepare(self, query: Query, options: GenerationOptions, timings: Timings) -> Assembled:
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
            joint = self._assembler.joint(
                query.namespace, selected, query.question, max_new_tokens=room
            )
            if not self._decoder.drafts_on_packets(options):
                return joint
        assembled = self._assembler.assemble(
            query.namespace,
            selected,
            query.question,
            max_new_tokens=room,
            timings=timings,
            from_base=self._decoder.from_base(options),
        )
        if joint is None:
            return assembled
        joint.draft, joint.fallbacks = assembled, assembled.fallbacks
        return joint
