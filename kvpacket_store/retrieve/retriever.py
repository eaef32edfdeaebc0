"""Questions → the segments to assemble, with one index a namespace kept up to date."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kvpacket_store.retrieve.embedder import SentenceEmbedder
from kvpacket_store.retrieve.index import Hit, PacketIndex
from kvpacket_store.retrieve.snapshot import SnapshotKey, load_snapshot, save_snapshot
from kvpacket_store.retrieve.source import EmbeddingSource

__all__ = ["Retriever"]


@dataclass(slots=True)
class _Slot:
    """The index of one namespace. ``current`` is swapped as a whole, never changed in place."""

    rebuilding: threading.Lock = field(default_factory=threading.Lock)
    current: tuple[int, PacketIndex] | None = None


class Retriever:
    """Finds the segments nearest to a question, inside one namespace.

    Safe for many threads. The first search after a change of the source builds a new index and
    swaps it in when it is complete; searches of other threads go on with the old one meanwhile.
    They can name a document that was deleted a moment ago: what the store no longer has is to be
    dropped. With ``wait_for_rebuild`` such searches wait instead, so that every search sees what
    was acknowledged before it began.

    Parameters
    ----------
    source : EmbeddingSource
        The holder of the embeddings; the index is derived from it and never the other way round.
    embedder : SentenceEmbedder
        The one that made those embeddings.
    snapshot_dir : Path, optional
        Where indexes are kept between processes. It belongs to this source alone.
    wait_for_rebuild : bool
        Whether a search waits for another thread's rebuild.
    room_bytes : callable, optional
        How many bytes a snapshot may take now; None, or no callable, is as many as it needs.
    """

    def __init__(
        self,
        source: EmbeddingSource,
        embedder: SentenceEmbedder,
        snapshot_dir: Path | None = None,
        *,
        wait_for_rebuild: bool = False,
        room_bytes: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._source = source
        self._embedder = embedder
        self._snapshot_dir = snapshot_dir
        self._wait_for_rebuild = wait_for_rebuild
        self._room_bytes = room_bytes
        self._slots: dict[str, _Slot] = {}

    def retrieve(
        self,
        query: str,
        namespace: str,
        top_k: int,
        keep: Callable[[str], bool] | None = None,
    ) -> list[Hit]:
        """Return the ``top_k`` segments of ``namespace`` nearest to ``query``, best first.

        Parameters
        ----------
        query : str
            The question.
        namespace : str
            The only one whose index is opened.
        top_k : int
            At least 1.
        keep : callable, optional
            Which document ids may be named; applied before the best are chosen.

        Raises
        ------
        UsageError
            ``top_k`` is below 1.
        ModelError
            The embedder cannot be loaded, or is not the one that made the embeddings.
        StoreCorruptError
            An embedding in the source is damaged; ingest that document again.
        """
        index = self.index(namespace)
        return index.search(self._embedder.embed([query])[0], top_k, keep)

    def index(self, namespace: str) -> PacketIndex:
        """Return the namespace's index for the source's present generation.

        While another thread is building that one, the previous index where there is one (see
        ``wait_for_rebuild``).
        """
        slot = self._slots.setdefault(namespace, _Slot())
        generation = self._source.generation(namespace)
        seen = slot.current
        if seen is not None:
            if seen[0] == generation:
                return seen[1]
            if not slot.rebuilding.acquire(blocking=self._wait_for_rebuild):
                return seen[1]
        else:
            slot.rebuilding.acquire()
        try:
            return self._refresh(slot, namespace)
        finally:
            slot.rebuilding.release()

    def _refresh(self, slot: _Slot, namespace: str) -> PacketIndex:
        """Bring the slot up to date. The caller holds ``slot.rebuilding``."""
        key = self._key(namespace)
        if slot.current is not None and slot.current[0] == key.generation:
            return slot.current[1]
        folder = self._snapshot_dir
        index = load_snapshot(folder, key) if folder is not None else None
        loaded = index is not None
        if index is None:
            index = PacketIndex.build(self._source, namespace, key.dimension)
        slot.current = (key.generation, index)
        # An index that was overtaken while it was built may hold later rows than its number says:
        # good enough to answer from until the next search, not to be believed by another process.
        if folder is not None and not loaded and self._key(namespace) == key:
            save_snapshot(folder, key, index, self._room_bytes)
        return index

    def _key(self, namespace: str) -> SnapshotKey:
        return SnapshotKey(
            namespace,
            self._source.generation(namespace),
            self._embedder.digest,
            self._embedder.dimension,
        )
