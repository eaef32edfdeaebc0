"""Packets on their way into the RAM tier before somebody asks about them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvpacket_store.errors import CodecError, NotFoundError
from kvpacket_store.types import Report

if TYPE_CHECKING:
    from kvpacket_store.api.loader import PacketLoader
    from kvpacket_store.api.selection import SelectedDocument
    from kvpacket_store.api.store import Store

__all__ = ["Prefetch", "PrefetchReport"]


@dataclass(frozen=True, slots=True)
class PrefetchReport(Report):
    """What a prefetch takes into memory.

    Parameters
    ----------
    documents : int
        That were asked for, or found.
    packets : int
        Of theirs that are stored and fit into the RAM tier together.
    bytes : int
        That these take there, about.
    """

    documents: int
    packets: int
    bytes: int


class Prefetch:
    """Packets that are to be loaded: chosen when this is made, loaded by `run`.

    Nothing is prefilled: what is not stored, or damaged, is left to whoever asks about it.

    Attributes
    ----------
    report : PrefetchReport
        What `run` loads.
    """

    def __init__(
        self,
        store: Store,
        loader: PacketLoader,
        namespace: str,
        selected: Sequence[SelectedDocument],
        max_bytes: int,
    ) -> None:
        self._loader, self._namespace = loader, namespace
        self._keys: list[str] = []
        held_bytes = 0
        for key in dict.fromkeys(ref.packet_key for one in selected for ref in one.segments):
            try:
                raw_bytes = store.packets.get_manifest(namespace, key).raw_bytes
            except (NotFoundError, CodecError):
                continue
            if held_bytes + raw_bytes > max_bytes:
                break  # more would push out what this has just loaded
            held_bytes += raw_bytes
            self._keys.append(key)
        num_documents = len({one.id for one in selected})
        self.report = PrefetchReport(num_documents, len(self._keys), held_bytes)

    def run(self, cancelled: threading.Event | None = None) -> None:
        """Load, one packet after the other; a set event ends it before the next one."""
        for key in self._keys:
            if cancelled is not None and cancelled.is_set():
                return
            self._loader.warm(self._namespace, key)
