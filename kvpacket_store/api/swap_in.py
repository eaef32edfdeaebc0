"""Exact K and V on their way into slots, in the background, while drafting runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kvpacket_store.api.answer import Fallback
from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.api.read_ahead import ReadAhead
from kvpacket_store.api.records import open_packet
from kvpacket_store.api.turns import Turns
from kvpacket_store.assemble import Before, place_layer
from kvpacket_store.codec import RecordReader
from kvpacket_store.errors import CodecError, NotFoundError, StoreCorruptError, SwapFailedError
from kvpacket_store.models import SwapCache, transfer_to
from kvpacket_store.prefill import BodyKV
from kvpacket_store.types import BitArray, TokenIds

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["Link", "SwapIn", "SwapPart", "SwapPolicy"]

Link = Callable[[int], None]
"""Called with the bytes of an enhancement that was read: a slow way to it waits there."""


@dataclass(frozen=True, slots=True)
class SwapPart:
    """A packet of which slots hold what its base gives, ``positions`` from ``start`` on.

    ``before`` says what lies between the preamble and it.
    """

    packet_key: str
    document_id: str
    start: int
    before: Before
    positions: int
    kv_digest: str
    token_ids: TokenIds


@dataclass(frozen=True, slots=True)
class SwapPolicy:
    """When exact K and V are in memory.

    Parameters
    ----------
    keep : bool
        Leave them there after a verification.
    streams_layers : bool
        Let a verification begin before the last packet's layers are all here.
    link : callable, optional
        See `Link`.
    turns : Turns, optional
        Taken while the K and V are in memory: one request's may be at once.
    """

    keep: bool = True
    streams_layers: bool = True
    link: Link | None = None
    turns: Turns | None = None


class SwapIn:
    """Fills a prompt's slots with the exact K and V of its packets.

    On a CUDA device rows go through pinned memory on a stream of their own (`PinnedTransfer`).
    Packets are read ahead and decoded one after the other; the last one layer by layer, so that a
    verification can run its first layers while later ones are decoded. What cannot be read or
    decoded is prefilled again by the thread that waits: a forward on another one may give other
    bits.

    Parameters
    ----------
    store, loader
        Where packets come from.
    namespace : str
        Whose.
    cache : SwapCache
        Filled.
    shared : sequence of (BodyKV, int, Before or None)
        What needs no reading: preamble, headers, packets at hand; the slot where it begins, and
        what lies before it, None where nothing is to be corrected.
    parts : sequence of SwapPart
        What is read.
    policy : SwapPolicy
        When they are in memory.
    """

    def __init__(
        self,
        store: Store,
        loader: PacketLoader,
        namespace: str,
        cache: SwapCache,
        *,
        shared: Sequence[tuple[BodyKV, int, Before | None]],
        parts: Sequence[SwapPart],
        policy: SwapPolicy,
    ) -> None:
        self.policy = policy
        self.fallbacks: list[Fallback] = []
        self._store, self._loader, self._namespace = store, loader, namespace
        self._cache, self._shared, self._parts = cache, shared, parts
        self._transfer = transfer_to(store.model, store.kv_dtype)
        self._thread: threading.Thread | None = None
        self._may_begin = threading.Event()
        self._failures: dict[SwapPart, str] = {}
        self._is_abandoned = False
        self._is_filling = False
        self._ending = threading.Lock()

    def fetch(self) -> None:
        """Begin in the background, if the K and V are not here or on their way."""
        if self._thread is not None or self._cache.is_here:
            return
        turns = self.policy.turns
        if turns is not None and not turns.take(self):
            return  # another request's exact K and V are in memory: ask again
        self._cache.allocate()
        self._transfer.begin(self._cache)
        self._is_filling = True
        # no daemon: one that is killed inside a kernel at exit takes the process down with SIGABRT
        self._thread = threading.Thread(target=self._run, name="kvp-swap-in")
        self._thread.start()

    def may_begin(self) -> bool:
        """Whether a verification may begin."""
        return self._cache.is_here or self._may_begin.is_set()

    def wait(self) -> None:
        """Return once `may_begin`; what did not arrive is made again here."""
        self._may_begin.wait()
        if self._failures:
            self.repair()

    def repair(self) -> None:
        """Wait until nothing is on its way, and prefill what did not arrive."""
        self._join()
        for part, reason in self._failures.items():
            body = self._made_again(part)
            with self._transfer.running():  # after what is queued there already
                self._place(body, part.start, part.before)
            self.fallbacks.append(Fallback(part.packet_key, reason))
        self._failures.clear()
        self._cache.all_is_here(self._transfer.sent())

    def abandon(self) -> None:
        """Let what is on its way be: nobody waits for it, its thread ends before the next packet.

        The turn is given back once nothing comes in any more, by that thread if need be.
        """
        with self._ending:
            self._is_abandoned = True
            if not self._is_filling:
                self._leave_turns()

    def release(self) -> None:
        """Drop the K and V where memory is short."""
        self._join()
        if not self.policy.keep:
            self.drop()

    def drop(self) -> None:
        """Drop the K and V, arrived or on their way; rows of question and answer stay."""
        self._join()
        if self._cache.is_allocated:
            self._may_begin.clear()
            self._cache.drop()
        self._leave_turns()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _leave_turns(self) -> None:
        if self.policy.turns is not None:
            self.policy.turns.leave(self)

    def _run(self) -> None:
        with self._transfer.running():
            self._fill()
        with self._ending:
            self._is_filling = False
            if self._is_abandoned:
                self._leave_turns()

    def _fill(self) -> None:
        """Run in the background: whatever happens, those who wait are let go."""
        try:
            for body, start, before in self._shared:
                self._place(body, start, before)
            with ReadAhead(self._read, self._parts) as ahead:
                for part in self._parts:
                    if self._is_abandoned:
                        raise SwapFailedError("nobody waits for this prompt any more")
                    self._fill_part(part, ahead.take())
        except Exception as error:
            for part in self._parts:
                self._failures.setdefault(part, str(error))
        if self._failures:
            self._cache.fail()
        else:
            self._cache.all_is_here(self._transfer.sent())
        self._may_begin.set()

    def _fill_part(self, part: SwapPart, reader: RecordReader | None) -> None:
        is_last = part is self._parts[-1] and not self._failures
        if reader is None:
            self._failures[part] = "its enhancement could not be read"
            return
        if is_last and self.policy.streams_layers:
            self._may_begin.set()
        place = self._placer(part.start, part.before)
        try:
            for layer, (k, v) in enumerate(_layers(reader)):
                place(layer, k, v)
                if is_last:
                    self._cache.layer_is_here(layer, self._transfer.sent())
        except CodecError as error:
            self._failures[part] = str(error)

    def _read(self, part: SwapPart) -> RecordReader:
        """Read a packet's two layers; refuse what is not the draft's other half."""
        packets = self._store.packets
        base = packets.read_base(self._namespace, part.packet_key)
        enhancement = packets.read_enhancement(
            self._namespace, part.packet_key, kv_digest=part.kv_digest
        )
        if self.policy.link is not None and not self._is_abandoned:
            self.policy.link(len(enhancement))
        return open_packet(self._store, base.record, enhancement)

    def _made_again(self, part: SwapPart) -> BodyKV:
        """Return a packet's exact K and V by any means; its document may be gone by now."""
        try:
            return self._loader.body(self._namespace, part.packet_key, part.document_id).body
        except (NotFoundError, StoreCorruptError):
            return self._store.prefiller.segment(part.token_ids)

    def _place(self, body: BodyKV, start: int, before: Before | None) -> None:
        place = self._placer(start, before)
        for layer, (k, v) in enumerate(zip(body.k, body.v, strict=True)):
            place(layer, k, v)

    def _placer(
        self, start: int, before: Before | None
    ) -> Callable[[int, BitArray, BitArray], None]:
        correct = None if before is None else self._store.corrector.behind(before)
        return partial(place_layer, self._transfer, self._cache, start=start, correct=correct)


def _layers(reader: RecordReader) -> Iterator[tuple[BitArray, BitArray]]:
    for layer in range(reader.shape[0]):
        yield reader.layer(layer)
