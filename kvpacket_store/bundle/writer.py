"""Writing a bundle: one pass over the documents, one packet in memory at a time."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path

from kvpacket_store.bundle.contents import describe_document, describe_packet
from kvpacket_store.bundle.identity import BundleIdentity
from kvpacket_store.bundle.json_text import to_json
from kvpacket_store.bundle.limits import DEFAULT_LIMITS
from kvpacket_store.bundle.members import (
    FORMAT_NAME,
    FORMAT_VERSION,
    HEAD,
    INDEX,
    codec_pack,
    comment_of,
    document_description,
    document_embeddings,
    document_text,
    limit_bytes,
    make_info,
    packet_description,
    packet_enhancement,
    packet_record,
)
from kvpacket_store.bundle.reports import BundleReport
from kvpacket_store.bundle.target import new_file
from kvpacket_store.codec import named_pack
from kvpacket_store.errors import BundleError, CodecError, NotFoundError, UsageError
from kvpacket_store.store import DocumentManifest, PacketStore

__all__ = ["write_bundle"]

_PAGE_DOCUMENTS = 256
_MOST_NAMED = 10
_TRIES = 5


def write_bundle(
    store: PacketStore,
    path: str | os.PathLike[str],
    *,
    namespace: str,
    document_ids: Sequence[str] | None = None,
    overwrite: bool = False,
    find_pack: Callable[[str], bytes | None] = lambda digest: None,
    progress: Callable[[int, int], None] | None = None,
) -> BundleReport:
    """Write documents with their packets into one file, whole or not at all.

    The same documents and records give the same bytes. Packets that are missing, evicted or damaged
    are left out and counted; the text and, where they can be read, the token ids still travel.

    Parameters
    ----------
    store : PacketStore
        Where they are.
    path : path
        The file to be made, in a folder that is there.
    namespace : str
        Whose documents.
    document_ids : sequence of str or None
        None: all of the namespace.
    overwrite : bool
        Replace a file that is there.
    find_pack : callable
        Returns the bytes of the codec pack of a digest, for records that name one; None: lost.
    progress : callable or None
        Called with the number of documents that are written, and of all, after each.

    Raises
    ------
    NotFoundError
        A document is not there.
    BundleError
        Documents are damaged; the message names them. Ingest them again, or leave them out.
    UsageError
        The file is there, cannot be made, or would be larger than a bundle may be.
    StoreFullError
        The disk is full.
    """
    target = Path(path)
    ids = set(document_ids or ())
    damaged: list[str] = []
    if document_ids is None:
        ids, damaged = _all_ids(store, namespace)
    ordered = sorted(ids, key=lambda document_id: document_id.encode("utf-8", "surrogatepass"))
    with new_file(target, overwrite=overwrite) as file:
        _require_whole(store, namespace, ordered, damaged)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            writer = _Writer(store, namespace, archive, ids, find_pack)
            for number, document_id in enumerate(ordered):
                writer.add_document(number, document_id)
                if progress is not None:
                    progress(number + 1, len(ordered))
            report = writer.finish()
        return replace(report, bytes=file.seek(0, os.SEEK_END))


class _Writer:
    """A bundle that is being written; `finish` makes it one."""

    def __init__(
        self,
        store: PacketStore,
        namespace: str,
        archive: zipfile.ZipFile,
        document_ids: Container[str],
        find_pack: Callable[[str], bytes | None],
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._zip = archive
        self._find_pack = find_pack
        self._index: list[str] = []
        self._seen: set[str] = set()
        self._seen_packs: set[str] = set()
        self._report = BundleReport(documents=0, packets=0, bytes=0)
        self._embeddings: dict[str, dict[int, tuple[str, bytes]]] = defaultdict(dict)
        for document_id, segment, packet_key, values in store.iter_embeddings(namespace):
            if document_id in document_ids:
                self._embeddings[document_id][segment] = (packet_key, values)
        head = {
            "format": FORMAT_NAME,
            "version": FORMAT_VERSION,
            "identity": BundleIdentity.of(store.meta).to_dict(),
        }
        self._add(HEAD, to_json(head))

    def add_document(self, number: int, document_id: str) -> None:
        """Write a document: first the packets that are not in the bundle yet."""
        manifest = _read_document(self._store, self._namespace, document_id)
        for packet_key in manifest.packet_keys:
            if packet_key not in self._seen:
                self._seen.add(packet_key)
                self._add_packet(packet_key)
        self._add(document_description(number), to_json(describe_document(manifest)))
        text = manifest.text or ""
        self._add(document_text(number), text.encode("utf-8", "surrogatepass"))
        embeddings = self._embeddings_of(manifest)
        if embeddings:
            self._add(document_embeddings(number), b"".join(embeddings))
        self._count(documents=1, missing_embeddings=len(embeddings) < len(manifest.segments))

    def finish(self) -> BundleReport:
        """Write the index, and the comment that seals it."""
        index = "".join(self._index).encode("ascii")
        self._add(INDEX, index)
        self._zip.comment = comment_of(hashlib.sha256(index).hexdigest())
        return self._report

    def _add_packet(self, packet_key: str) -> None:
        try:
            manifest = self._store.get_manifest(self._namespace, packet_key)
        except (NotFoundError, CodecError):
            self._count(missing_packets=1)
            return
        self._add(packet_description(packet_key), to_json(describe_packet(manifest)))
        try:
            packet = self._store.read_packet(self._namespace, packet_key, manifest.token_ids)
        except (NotFoundError, CodecError):
            self._count(missing_packets=1)
            return
        self._add_codec_pack(named_pack(packet.record))
        self._add(packet_record(packet_key), packet.record)
        if packet.enhancement is not None:
            self._add(packet_enhancement(packet_key), packet.enhancement)
        self._count(packets=1)

    def _add_codec_pack(self, digest: str | None) -> None:
        """Write the pack that a record names, before the first such record."""
        if digest is None or digest in self._seen_packs:
            return
        self._seen_packs.add(digest)
        data = self._find_pack(digest)
        if data is None:
            self._report.missing_codec_packs.append(digest)
        else:
            self._add(codec_pack(digest), data)
            self._count(codec_packs=1)

    def _embeddings_of(self, manifest: DocumentManifest) -> list[bytes]:
        """Return the embeddings of all segments, or none: half of them would be half an answer."""
        found = self._embeddings.get(manifest.id, {})
        keys = [segment.packet_key for segment in manifest.segments]
        rows = [found.get(index, ("", b"")) for index in range(len(keys))]
        if [key for key, _ in rows] != keys or len({len(values) for _, values in rows}) != 1:
            return []
        return [values for _, values in rows]

    def _add(self, name: str, data: bytes) -> None:
        limits = DEFAULT_LIMITS
        num_members = len(self._index) + 2  # this one and the index
        if (
            num_members > limits.max_members
            or len(data) > limit_bytes(name, num_members, limits)
            or self._report.documents > limits.max_documents
        ):
            raise UsageError(f"{name} is more than a bundle may hold; export fewer documents")
        self._zip.writestr(make_info(name), data)
        self._index.append(f"{hashlib.sha256(data).hexdigest()} {len(data)} {name}\n")

    def _count(self, **more: int) -> None:
        changes = {name: getattr(self._report, name) + int(n) for name, n in more.items()}
        self._report = replace(self._report, **changes)


def _all_ids(store: PacketStore, namespace: str) -> tuple[set[str], list[str]]:
    """Return the ids of a namespace's documents, and of those among them that are damaged."""
    ids: set[str] = set()
    damaged: list[str] = []
    after: str | None = None
    while True:
        page = store.document_page(namespace, _PAGE_DOCUMENTS, after)
        ids.update(manifest.id for manifest in page.documents)
        damaged += [document_id for _, document_id in page.damaged]
        after = page.following
        if after is None:
            return ids, damaged


def _require_whole(
    store: PacketStore, namespace: str, document_ids: Sequence[str], damaged: Sequence[str]
) -> None:
    """Find every damaged document before anything is written."""
    damaged = list(damaged)
    for document_id in document_ids:
        try:
            _read_document(store, namespace, document_id)
        except CodecError:
            damaged.append(document_id)
    if damaged:
        named = ", ".join(f"{document_id!r:.80}" for document_id in damaged[:_MOST_NAMED])
        more = f" and {len(damaged) - _MOST_NAMED} more" if len(damaged) > _MOST_NAMED else ""
        raise BundleError(
            f"no bundle was written: documents are damaged: {named}{more}; ingest them again, or "
            "name the others"
        )


def _read_document(store: PacketStore, namespace: str, document_id: str) -> DocumentManifest:
    """Return a document with the text of the same version: others may write meanwhile."""
    manifest = store.get_document(namespace, document_id)
    for _ in range(_TRIES):
        text = store.document_text(namespace, document_id)
        again = store.get_document(namespace, document_id)
        if again == manifest:
            return replace(manifest, text=text)
        manifest = again
    raise UsageError(f"document {document_id!r:.80} changes all the time; export it later")
