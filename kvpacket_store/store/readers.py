"""Who reads a store now: snapshots that are open, in all processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Snapshot", "open_snapshots"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A read transaction of some process, and how many commits it is behind."""

    pid: int
    txns_behind: int


def open_snapshots(handle: Any) -> list[Snapshot]:
    """Return the snapshots that LMDB's reader table shows; none where there are no locks."""
    last_txn = handle.info()["last_txnid"]
    found: list[Snapshot] = []
    for line in handle.readers().splitlines():  # a heading, then: pid, thread, txn or "-"
        fields = line.split()
        if len(fields) == 3 and fields[0].isdigit() and fields[2].isdigit():
            found.append(Snapshot(int(fields[0]), max(0, last_txn - int(fields[2]))))
    return found
