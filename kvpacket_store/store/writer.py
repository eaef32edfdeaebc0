"""The one way in which a store writes: with the uses that readers noted, evicting at the cap."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TypeVar

from kvpacket_store.errors import CapReachedError, KVPacketError
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.eviction import Candidate, Spared, choose, evict_batch, evictable
from kvpacket_store.store.failures import read_only_error
from kvpacket_store.store.namespaces import every_namespace, shared_namespace
from kvpacket_store.store.schema import META_LAST_EVICTION, Table
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.usage import UsageNotes, apply_notes, now_ms

__all__ = ["Writer"]

T = TypeVar("T")

_BATCH_SHARE = 16  # of the cap, evicted beyond what is needed: the next writes find room
_MAX_ROUNDS = 3  # what is freed may lie in pieces too small for a chunk
_FIRST_BATCH, _MAX_BATCH = 8, 256
_READER_PATIENCE_S = 1.0


class Writer:
    """Writes to a store's environment. A part of `PacketStore`.

    Parameters
    ----------
    environment : Environment
        Of the store.
    ttl_s : int or None
        ``StoreMeta.packet_ttl_s``.
    is_read_only : bool
        Refuse every write.
    """

    def __init__(self, environment: Environment, ttl_s: int | None, *, is_read_only: bool) -> None:
        self.is_read_only = is_read_only
        self._environment = environment
        self._ttl_s = ttl_s
        self._notes = UsageNotes()

    @property
    def expired_ms(self) -> int | None:
        """Packets last used before this time have outlived their time to live."""
        return None if self._ttl_s is None else now_ms() - 1000 * self._ttl_s

    def write(self, action: Callable[[Transaction], T], *, frees_space: bool = False) -> T:
        """Run ``action`` as `Environment.write` does.

        Raises
        ------
        ReadOnlyError
            The store is open for reading alone.
        """
        if self.is_read_only:
            raise read_only_error(self._environment.path)
        if frees_space:  # with no bytes more than that needs
            return self._environment.write(action, frees_space=True)
        notes = self._notes.take()

        def noted(tx: Transaction) -> T:
            result = action(tx)
            apply_notes(tx, notes)
            return result

        try:
            return self._environment.write(noted)
        except BaseException:
            self._notes.put_back(notes)
            raise

    def write_evicting(
        self,
        action: Callable[[Transaction], T],
        *,
        need_bytes: int,
        packets: Collection[bytes] = (),
        keep_since_ms: int | None = None,
    ) -> T:
        """Run ``action``; where it meets the byte cap, make room and run it again.

        Parameters
        ----------
        action : callable
            As for `write`.
        need_bytes : int
            What it adds, roughly.
        packets : collection of bytes
            Packet keys that it names: they stay.
        keep_since_ms : int or None
            Packets that were used at that time or later stay.

        Raises
        ------
        CapReachedError
            Nothing may be evicted for it, or it is larger than the cap. It changed nothing.
        """
        spared = Spared(packets, keep_since_ms)
        self._require_below_cap(need_bytes)
        for attempt in range(1 + _MAX_ROUNDS):
            try:
                return self.write(action)
            except CapReachedError:
                if attempt == _MAX_ROUNDS:
                    break
                if not self._make_room(need_bytes, spared):
                    raise
        raise CapReachedError(
            f"store {self._environment.path}: its byte cap is reached; packets were evicted, but "
            "what is free lies in pieces too small for what is to be written. Compact the store, "
            "then try again; nothing that was acknowledged is lost"
        )

    def note_uses(self, namespace: str, packet_keys: Iterable[str]) -> None:
        """Note that packets were used, and write such notes when they are many or old."""
        if self.is_read_only:
            return
        self._notes.add(namespace, packet_keys)
        if self._notes.are_due:
            self.flush()

    def flush(self) -> None:
        """Write what was noted, as well as may be: what fails is noted again."""
        notes = {} if self.is_read_only else self._notes.take()
        if notes:
            try:
                self._environment.write(lambda tx: apply_notes(tx, notes))
            except KVPacketError:
                self._notes.put_back(notes)

    def evict(self, candidates: Sequence[Candidate]) -> int:
        """Evict in transactions that a full store has room for; return how many went."""
        num_evicted, batch, start = 0, _FIRST_BATCH, 0
        while start < len(candidates):
            chosen = candidates[start : start + batch]
            try:
                action = partial(evict_batch, candidates=chosen)
                num_evicted += self.write(action, frees_space=True)
            except CapReachedError:
                if batch == 1:
                    break
                batch = max(1, batch // 4)
                continue
            start += len(chosen)
            batch = min(2 * batch, _MAX_BATCH)
        if num_evicted:
            # LMDB uses pages again two commits after the one that freed them: this is the first
            self.write(_note_eviction, frees_space=True)
        return num_evicted

    def _make_room(self, need_bytes: int, spared: Spared) -> bool:
        """Evict what is needed and some more; say whether anything was."""
        room_bytes = self._environment.room_bytes
        if room_bytes is None:
            return False
        self._require_no_old_reader()
        notes = self._notes.take()
        self._notes.put_back(notes)
        with self._environment.read() as tx:
            candidates = evictable(tx, spared, notes)
            live_bytes = shared_namespace(tx).counters.live_bytes
            live_bytes += sum(row.counters.live_bytes for row in every_namespace(tx))
        kept_bytes = live_bytes - sum(candidate.num_bytes for candidate in candidates)
        if kept_bytes + need_bytes > room_bytes:
            return False
        wanted_bytes = need_bytes + room_bytes // _BATCH_SHARE
        if not self.evict(choose(candidates, wanted_bytes, self.expired_ms)):
            return False
        self._require_no_old_reader()
        return True

    def _require_below_cap(self, need_bytes: int) -> None:
        room_bytes = self._environment.room_bytes
        if room_bytes is not None and need_bytes > room_bytes and not self.is_read_only:
            raise CapReachedError(
                f"store {self._environment.path}: {need_bytes} bytes at once are more than its "
                f"byte cap leaves ({room_bytes}); nothing was written or evicted for them. Pass "
                "smaller documents, or make a store with a larger max_bytes"
            )

    def _require_no_old_reader(self) -> None:
        """Evict nothing for as long as a reader keeps freed pages from being used again."""
        snapshot = self._environment.await_readers(_READER_PATIENCE_S)
        if snapshot is not None:
            raise CapReachedError(
                f"store {self._environment.path}: its byte cap is reached, and process "
                f"{snapshot.pid} reads a snapshot {snapshot.txns_behind} commits old, which keeps "
                "freed space from being used again; nothing that was acknowledged is lost. Wait "
                "for that process or end it, then try again"
            )


def _note_eviction(tx: Transaction) -> None:
    tx.put(Table.META, META_LAST_EVICTION, now_ms().to_bytes(8, "big"))
