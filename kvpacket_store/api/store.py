"""The store as people use it: create, open, ingest, list, delete, packets."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kvpacket_store.api.adapter_choice import choose_adapter, keep_adapter, kept_adapter
from kvpacket_store.api.identity import require_same_embedder, require_same_model
from kvpacket_store.api.reports import (
    DocumentEntry,
    IngestReport,
    Listing,
    PacketEntry,
    StatsReport,
)
from kvpacket_store.api.statistics import collect_statistics
from kvpacket_store.errors import LevelUnavailableError, NotFoundError, UsageError
from kvpacket_store.store import DocumentManifest, PacketStore, StoreMeta
from kvpacket_store.types import Document, KVDtype, KVLayout, LayerLayout, Segment

if TYPE_CHECKING:
    from kvpacket_store.adapters import Adapter
    from kvpacket_store.api.ingest import IngestProgress
    from kvpacket_store.models import Model
    from kvpacket_store.packet import Packet
    from kvpacket_store.prefill import Prefiller
    from kvpacket_store.retrieve import SentenceEmbedder

__all__ = ["Store"]

DEFAULT_NAMESPACE = "default"
_LEVELS_HERE = ("raw", "fast")
_LEVELS_TO_COME = ("linear", "spec")


class Store:
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
        _require_level(codec, layers)
        loaded = _load(model)
        loaded.check_taps()
        if not 16 <= segment_tokens <= loaded.max_positions // 2:
            raise UsageError(
                f"segment_tokens is {segment_tokens}; take 16 to {loaded.max_positions // 2}"
            )
        chosen = choose_adapter(adapter, int(loaded.embedding.weight.shape[1]))
        from kvpacket_store.prefill import PREFILL_RECIPE, Prefiller

        try:
            dtype = KVDtype(kv_dtype) if kv_dtype is not None else loaded.kv_dtype
        except ValueError:
            raise UsageError(
                f"kv_dtype is {kv_dtype!r}; it is one of {', '.join(KVDtype)}"
            ) from None
        prefiller = Prefiller(loaded, chosen, dtype)
        embedder = embedder or _default_embedder()
        meta = StoreMeta(
            model=_durable_name(loaded.name),
            fingerprint=loaded.fingerprint.to_dict(),
            layout=loaded.layout.to_dict(),
            rope=tuple(rotary.spec.to_dict() for rotary in loaded.rotaries.values()),
            adapter=None if chosen.is_none else chosen.name,
            adapter_digest=chosen.digest,
            codec=codec,
            layers=1,
            kv_dtype=prefiller.kv_dtype.value,
            recipe=PREFILL_RECIPE,
            segment_tokens=segment_tokens,
            max_bytes=max_bytes,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            embedder=embedder.digest,
        )
        packets = PacketStore.create(path, meta)
        keep_adapter(chosen, Path(path))
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
    def meta(self) -> StoreMeta:
        """What the store was made for."""
        return self._packets.meta

    @property
    def packets(self) -> PacketStore:
        """The room below: records as bytes."""
        return self._packets

    @property
    def kv_dtype(self) -> KVDtype:
        """What its packets hold."""
        return KVDtype(self.meta.kv_dtype)

    @cached_property
    def layout(self) -> KVLayout:
        """Shape of its packets' K and V."""
        stored = dict(self.meta.layout)
        stored["layers"] = tuple(LayerLayout(**layer) for layer in stored["layers"])
        return KVLayout(**stored)

    @property
    def codec_pack(self) -> None:
        """The codec pack of the store's model; levels ``raw`` and ``fast`` have none."""
        return

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
                loaded = _load(self.meta.model)
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

        if not _is_many(documents):
            raise UsageError("pass documents as a list or another iterable of Document")
        self._packets.count(namespace)  # a bad namespace, or a closed store, is the caller's
        return Ingest(self, namespace, dry_run=dry_run, progress=progress).run(documents)

    def list(
        self,
        *,
        namespace: str | None = DEFAULT_NAMESPACE,
        limit: int = 100,
        after: str | None = None,
    ) -> Listing:
        """Return a page of documents, ordered by id."""
        if not _is_count(limit):
            raise UsageError(f"limit is {limit!r}; ask for at least 1")
        if namespace is not None:
            self.require_namespace(namespace)
        manifests, following = self._packets.list_documents(namespace, limit, after)
        return Listing([self._entry(manifest) for manifest in manifests], following)

    def show(self, document_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> dict[str, Any]:
        """Return one document: its entry, text and content hash."""
        manifest = self._packets.get_document(namespace, document_id)
        return {
            **self._entry(manifest).to_dict(),
            "content_hash": manifest.content_hash,
            "text": self._packets.document_text(namespace, document_id),
        }

    def delete(self, document_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Delete a document; packets that no other document of the namespace shares go with it.

        Raises
        ------
        NotFoundError
            There is no such document in the namespace.
        """
        self._packets.delete_document(namespace, document_id)

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

    def stats(self, *, namespace: str | None = None) -> StatsReport:
        """Return sizes and bits per scalar of a namespace, or of the whole store."""
        if namespace is not None:
            self.require_namespace(namespace)
        return collect_statistics(self._packets, namespace, self.layout, self.kv_dtype)

    def require_namespace(self, namespace: str) -> None:
        """Raise NotFoundError where nobody has filed anything; the default one is always there."""
        if namespace != DEFAULT_NAMESPACE and namespace not in self._packets.namespaces():
            raise NotFoundError(f"no namespace {namespace!r} in {self.path}")

    def _entry(self, manifest: DocumentManifest) -> DocumentEntry:
        namespace = manifest.namespace or DEFAULT_NAMESPACE
        packets = [
            PacketEntry(ref.packet_key, ref.tokens, self._stored_bytes(namespace, ref.packet_key))
            for ref in manifest.segments
        ]
        return DocumentEntry(
            manifest.id, namespace, manifest.tokens, packets, dict(manifest.metadata)
        )

    def _stored_bytes(self, namespace: str, packet_key: str) -> int | None:
        try:
            return self._packets.get_manifest(namespace, packet_key).stored_bytes
        except NotFoundError:
            return None


def _load(model: str | Model) -> Model:
    if not isinstance(model, str):
        return model
    from kvpacket_store.models import load_model

    return load_model(model)


def _is_many(documents: object) -> bool:
    return isinstance(documents, Iterable) and not isinstance(documents, str)


def _is_count(limit: object) -> bool:
    return isinstance(limit, int) and limit >= 1


def _default_embedder() -> SentenceEmbedder:
    from kvpacket_store.retrieve import MiniLMEmbedder

    return MiniLMEmbedder()


def _durable_name(name: str) -> str:
    """Return a folder as an absolute path: the store may be opened from elsewhere."""
    return str(Path(name).resolve()) if os.sep in name and Path(name).is_dir() else name


def _require_level(codec: str, layers: int | None) -> None:
    if codec in _LEVELS_TO_COME:
        raise LevelUnavailableError(
            f"codec level {codec!r} comes with a later version; take {' or '.join(_LEVELS_HERE)}"
        )
    if codec not in _LEVELS_HERE:
        raise UsageError(f"codec level {codec!r} is unknown; take {' or '.join(_LEVELS_HERE)}")
    if layers not in (None, 1):
        raise UsageError(f"codec level {codec!r} has 1 layer, {layers} were asked for")
