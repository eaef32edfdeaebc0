"""The store as people use it: create, open, ingest, list, delete, packets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kvpacket_store.api.arguments import is_count_or_zero, is_one
from kvpacket_store.api.catalogue import DEFAULT_NAMESPACE
from kvpacket_store.api.equipment import Equipped, default_embedder
from kvpacket_store.api.identity import require_same_model
from kvpacket_store.api.reports import IngestReport
from kvpacket_store.errors import NotFoundError, UsageError
from kvpacket_store.store import PacketStore
from kvpacket_store.types import Document, KVDtype

if TYPE_CHECKING:
    from kvpacket_store.adapters import Adapter
    from kvpacket_store.api.codec_choice import BaseStep
    from kvpacket_store.api.ingest import IngestProgress
    from kvpacket_store.api.verification import VerifyReport
    from kvpacket_store.bundle import BundleReport, ImportReport
    from kvpacket_store.codec.linear.pack import CodecPack
    from kvpacket_store.models import Model
    from kvpacket_store.packet import Packet
    from kvpacket_store.retrieve import SentenceEmbedder

__all__ = ["DEFAULT_NAMESPACE", "Store"]


class Store(Equipped):
    """A document store of packets. Make one with `create` or `open`; use it as a context.

    Torch and the model are loaded when something needs them: `list`, `stats` and `delete` do not.

    Examples
    --------
    >>> Store.open("absent.kvps")
    Traceback (most recent call last):
    ...
    kvpacket_store.errors.NotFoundError: ...
    """

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        model: str | Model = "smollm2",
        adapter: str | Adapter | None = None,
        codec: str = "fast",
        layers: int | None = None,
        codec_pack: CodecPack | str | Path | None = None,
        base_step: BaseStep | None = None,
        kv_dtype: str | KVDtype | None = None,
        max_bytes: int | None = None,
        packet_ttl_s: int | None = None,
        segment_tokens: int = 512,
        importance: bool = False,
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
            A safetensors file, ``"preamble"`` (needs no training), ``"none"``, or None for the
            one that ships for the model, if any.
        codec : str
            ``raw``, ``fast`` or ``linear``.
        layers : int, optional
            2: base and enhancement apart, for ``linear`` alone, and its default; else 1.
        codec_pack : CodecPack or path, optional
            What ``linear`` knows of the model; default: the one shipped for it.
        base_step : str, pair of str, or sequence of such pairs, optional
            Bits a scalar (2.4 by default where costs ship, else ``"sigma/4"``), or steps.
        kv_dtype : str, optional
            Default: the model's own. Another one rounds K and V once, at prefill.
        max_bytes : int, optional
            Most that the folder may take on disk; packets used least recently make room.
        packet_ttl_s : int, optional
            Packets unused for longer are let go first; their documents stay.
        segment_tokens : int
            Longest segment.
        importance : bool
            Store how much tokens are needed, for drafts without the others: prefill takes longer.

        Raises
        ------
        UsageError, ModelError
            Something is there already, or the model cannot be used; see the message.
        LevelUnavailableError
            No codec pack ships for the model; train one with `kvps codec train`.
        """
        from kvpacket_store.api.creation import create_packet_store, load

        loaded = load(model)
        embedder = embedder or default_embedder()
        packets = create_packet_store(
            Path(path),
            loaded,
            adapter=adapter,
            codec=codec,
            layers=layers,
            codec_pack=codec_pack,
            base_step=base_step,
            kv_dtype=kv_dtype,
            max_bytes=max_bytes,
            packet_ttl_s=packet_ttl_s,
            segment_tokens=segment_tokens,
            importance=importance,
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
        read_only: bool | None = None,
    ) -> Store:
        """Open a store; ``model`` may be passed where it is loaded already.

        ``read_only=None`` writes where the folder can be written, and else only reads.

        Raises
        ------
        NotFoundError
            No store is there.
        ModelMismatchError
            ``model`` is not the one that the store was made with.
        """
        packets = PacketStore.open(path, read_only=read_only)
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

    def verify(
        self,
        *,
        deep: bool = False,
        recompute: int = 0,
        repair: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> VerifyReport:
        """Look for damage, and repair it if asked.

        Parameters
        ----------
        deep : bool
            Read every byte against its checksum, decode every packet and compare its digest.
        recompute : int
            So many packets, at random, are prefilled again and compared bit for bit.
        repair : bool
            Prefill damaged packets again from their token ids, embed again, count again.
        progress : callable, optional
            Called with the number of packets that were looked at.

        Raises
        ------
        ModelError
            ``recompute`` or ``repair`` need the model, and it is not to be had.
        UsageError
            ``recompute`` is no number, or the store to be repaired is open for reading alone.
        """
        if not is_count_or_zero(recompute):
            raise UsageError(f"recompute is {recompute!r}; pass how many packets, 0 or more")
        if repair and self._packets.is_read_only:
            raise UsageError(f"store {self.path} is open for reading alone; it cannot be repaired")
        from kvpacket_store.api.verification import verify_store

        return verify_store(self, deep=deep, recompute=recompute, repair=repair, progress=progress)

    def export_bundle(
        self,
        path: str | Path,
        documents: Sequence[str] | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        overwrite: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> BundleReport:
        """Write documents with their packets into one file; None: all of the namespace.

        Raises
        ------
        NotFoundError, BundleError, UsageError, StoreFullError
            As ``bundle.write_bundle``.
        """
        from kvpacket_store.bundle import write_bundle

        self.require_namespace(namespace)
        if documents is not None and (is_one(documents) or not documents):
            raise UsageError("documents is a list of ids; leave it out for all of the namespace")
        return write_bundle(
            self._packets,
            path,
            namespace=namespace,
            document_ids=documents,
            overwrite=overwrite,
            find_pack=self.codec_packs.to_bytes,
            progress=progress,
        )

    def import_bundle(
        self, path: str | Path, *, namespace: str = DEFAULT_NAMESPACE
    ) -> ImportReport:
        """File a bundle's documents; each packet is decoded and its key made anew before it is in.

        Raises
        ------
        ModelMismatchError
            The bundle comes from another model, adapter, dtype or embedder.
        BundleError, StoreFullError
            As ``bundle.import_bundle``.
        """
        from kvpacket_store.api.bundled import file_bundle

        return file_bundle(self, Path(path), namespace)
