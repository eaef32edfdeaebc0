"""How many record bytes a handle has copied out of its store, by layer."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from kvpacket_store.store.packet_manifest import StoredPacket
from kvpacket_store.types import Report

__all__ = ["BytesRead", "ReadCounter"]


@dataclass(frozen=True, slots=True)
class BytesRead(Report):
    """Record bytes that one handle has copied out of its store in this process.

    Every copy counts, of one packet as often as it is read, and before its checksums are compared.
    What the store copies for itself does not (``check``, repairs), nor do manifests.

    Parameters
    ----------
    base, enhancement : int
        Of packets in two layers.
    whole : int
        Of packets in one layer, shared ones among them: exact, and to be told from a base.
    """

    base: int = 0
    enhancement: int = 0
    whole: int = 0


class _Counts:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.total = BytesRead()


class ReadCounter:
    """Counts from any number of threads; a child process counts from nothing.

    Examples
    --------
    >>> counter = ReadCounter()
    >>> counter.add(base=3)
    >>> counter.add(base=1, enhancement=5)
    >>> counter.total
    BytesRead(base=4, enhancement=5, whole=0)
    """

    def __init__(self) -> None:
        # by process: a fork may leave behind the thread that held a lock
        self._by_process: dict[int, _Counts] = {}

    def add(self, *, base: int = 0, enhancement: int = 0, whole: int = 0) -> None:
        """Count bytes that were copied out just now."""
        counts = self._counts()
        with counts.lock:
            had = counts.total
            counts.total = BytesRead(
                had.base + base, had.enhancement + enhancement, had.whole + whole
            )

    def add_packet(self, packet: StoredPacket) -> None:
        """Count what was copied of a packet."""
        if packet.manifest.num_records == 1:
            self.add(whole=len(packet.record))
        else:
            self.add(base=len(packet.record), enhancement=len(packet.enhancement or b""))

    @property
    def total(self) -> BytesRead:
        """What was counted so far, as of one moment."""
        return self._counts().total

    def _counts(self) -> _Counts:
        pid = os.getpid()
        found = self._by_process.get(pid)
        return self._by_process.setdefault(pid, _Counts()) if found is None else found
