"""The store as people use it: create, open, ingest, list, delete, packets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kvpacket_store.api.adapter_choice import kept_adapter
from kvpacket_store.api.arguments import is_one
from kvpacket_store.api.catalogue import DEFAULT_NAMESPACE, Catalogue
from kvpacket_store.api.identity import require_same_embedder, require_same_model
from kvpacket_store.api.reports import IngestReport
from kvpacket_store.errors import NotFoundError, UsageError
from kvpacket_store.store import PacketStore
from kvpacket_store.types import Document, KVDtype, Segment

if TYPE_CHECKING:
    from kvpacket_store.adapters import Adapter
    from kvpacket_store.api.ingest import IngestProgress
    from kvpacket_store.models import Model
    from kvpacket_store.packet import Packet
    from kvpacket_store.prefill import Prefiller
    from kvpacket_store.retrieve import SentenceEmbedder

__all__ = ["DEFAULT_NAMESPACE", "Store"]


class Store(Catalogue):
    """A document store of packets. Make one with `create` or `open`; use it as a context.

    Torch and the model are loaded when something needs them: `list`, `stats` and `delete` do not.

    Examples
    --------
    >>> Store.open("absent.kvps")
    Traceback (most recent call last):
    ...
    kvpacket_store.errors.NotFoundError: ...
    """

    def __init__(
        self,
        packets: PacketStore,
        path: Path,
        *,
        model: Model | None = None,
        embedder: SentenceEmbedder | None = None,
    ) -> None:
        self._packets = packets
        self.path = path
        self._model = model
        self._embedder = embedder
        self._has_checked_embedder = False
        self._loading = threading.RLock()

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        model: str | Model = "smollm2",
        adapter: str | Adapter | None = None,
        codec: str = "fast",
        layers: int | None = None,
        kv_dtype: str | KVDtype | None = None,
        max_bytes: int | None = None,
        segment_tokens: int = 512,
        embedder: SentenceEmbedder | None = None,
    ) -> Store:
        """Make a store for one model and adapter.

        Parameters
        ----------
        path : str or Path
            A folder that is not there yet, or is empty.
        model : str or Model
            Preset, folder, hub name, or a loaded model.
        adapter : str, Adapter or None
            A safetensors file, ``"none"``, or None for the one shipped for the model, if any.
        codec : str
            ``raw`` or ``fast``.
        layers : int, optional
            1: these levels have one layer.
        kv_dtype : str, optional
            Default: the model's own. Another one rounds K and V once, at prefill.
        max_bytes : int, optional
            Most that the folder may take on disk.
        segment_tokens : int
            Longest segment.

        Raises
        ------
        UsageError, ModelError
            Something is there already, or the model cannot be used; see the message.
        """
        from kvpacket_store.api.creation import create_packet_store, load

        loaded = load(model)
        embedder = embedder or _default_embedder()
        packets = create_packet_store(
            Path(path),
            loaded,
            adapter=adapter,
            codec=codec,
            layers=layers,
            kv_dtype=kv_dtype,
            max_bytes=max_bytes,
            segment_tokens=segment_tokens,
            embedder_digest=embedder.digest,
        )
        return cls(packets, Path(path), model=loaded, embedder=embedder)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        model: Model | None = None,
        embedder: SentenceEmbedder | None = None,
    ) -> Store:
        """Open a store; ``model`` may be passed where it is loaded already.

        Raises
        ------
        NotFoundError
            No store is there.
        ModelMismatchError
            ``model`` is not the one that the store was made with.
        """
        packets = PacketStore.open(path)
        if model is not None:
            try:
                require_same_model(model.fingerprint, packets.meta.fingerprint, model.name)
            except BaseException:
                packets.close()
                raise
        return cls(packets, Path(path), model=model, embedder=embedder)

    def close(self) -> None:
        """Let go of the files; the store object cannot be used afterwards."""
        self._packets.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def model(self) -> Model:
        """The store's model, loaded once.

        Raises
        ------
        ModelMismatchError
            What its name leads to now is not the model that the store was made with.
        """
        with self._loading:
            if self._model is None:
                from kvpacket_store.models import load_model

                loaded = load_model(self.meta.model)
                require_same_model(loaded.fingerprint, self.meta.fingerprint, loaded.name)
                self._model = loaded
            return self._model

    @property
    def embedder(self) -> SentenceEmbedder:
        """What turns segments and questions into vectors.

        Raises
        ------
        ModelMismatchError
            It is not the one that the store's segments were embedded with.
        """
        with self._loading:
            if self._embedder is None:
                self._embedder = _default_embedder()
            if not self._has_checked_embedder:
                require_same_embedder(self._embedder, self.meta.embedder)
                self._has_checked_embedder = True
            return self._embedder

    @cached_property
    def adapter(self) -> Adapter:
        """The store's adapter."""
        width = int(self.model.embedding.weight.shape[1])
        return kept_adapter(self.path, self.meta.adapter, self.meta.adapter_digest, width)

    @cached_property
    def prefiller(self) -> Prefiller:
        """What makes its packets."""
        from kvpacket_store.prefill import Prefiller

        return Prefiller(self.model, self.adapter, self.kv_dtype)

    def segments(self, document: Document) -> list[Segment]:
        """Return the segments of a document as this store cuts them."""
        from kvpacket_store.text import segment_document

        return segment_document(document, self.model.tokenizer, self.meta.segment_tokens)

    def ingest(
        self,
        documents: Iterable[Document | Exception],
        *,
        namespace: str = DEFAULT_NAMESPACE,
        dry_run: bool = False,
        progress: Callable[[IngestProgress], None] | None = None,
    ) -> IngestReport:
        """Prefill what is new and file it; the rest costs a hash.

        Parameters
        ----------
        documents : iterable of Document
            Lazily read; ``DocumentError`` values in it are counted as failures.
        namespace : str
            Whose documents they are.
        dry_run : bool
            Count, and change nothing.
        progress : callable, optional
            Called after each document.

        Returns
        -------
        IngestReport
            A document that fails does not stop the others.

        Raises
        ------
        StoreFullError
            Disk or cap reached; what was reported before is stored.
        """
        from kvpacket_store.api.ingest import Ingest

        if is_one(documents):
            raise UsageError("pass documents as a list or another iterable of Document")
        self._packets.count(namespace)  # a bad namespace, or a closed store, is the caller's
        return Ingest(self, namespace, dry_run=dry_run, progress=progress).run(documents)

    def packet(
        self, document_id: str, *, index: int = 0, namespace: str = DEFAULT_NAMESPACE
    ) -> Packet:
        """Return one packet of a document, decoded and read-only.

        Raises
        ------
        NotFoundError
            No such document, or it has fewer segments.
        CodecError
            The record is damaged; answering falls back by itself, this does not.
        """
        from kvpacket_store.api.loader import PacketLoader

        manifest = self._packets.get_document(namespace, document_id)
        if not 0 <= index < len(manifest.segments):
            raise NotFoundError(
                f"document {document_id!r} has {len(manifest.segments)} packets, no number {index}"
            )
        return PacketLoader(self).packet(namespace, manifest.segments[index].packet_key)


def _default_embedder() -> SentenceEmbedder:
    from kvpacket_store.retrieve import MiniLMEmbedder

    return MiniLMEmbedder()
