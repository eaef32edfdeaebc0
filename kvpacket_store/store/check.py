"""Does the store hold together? Structure first, then, if asked for, every byte."""

from __future__ import annotations

from pathlib import Path

import lmdb.verify

from kvpacket_store.errors import CodecError, CorruptRecordError, StoreCorruptError
from kvpacket_store.store.claims import ClaimsReader, is_without_manifest
from kvpacket_store.store.document_ids import shown_id
from kvpacket_store.store.document_rows import parse_document, size_of_document
from kvpacket_store.store.embeddings import embedding_keys, is_embedding_of
from kvpacket_store.store.manifests import DocumentManifest
from kvpacket_store.store.namespaces import (
    NamespaceRow,
    every_namespace,
    has_lost_count,
    lost_numbers,
    shared_namespace,
)
from kvpacket_store.store.numbers import NUMBERED, has_form, number_of
from kvpacket_store.store.packet_copies import copy_layer, require_layer
from kvpacket_store.store.packet_manifest import PacketManifest
from kvpacket_store.store.packets import parse_manifest, size_of
from kvpacket_store.store.pins import is_pinned
from kvpacket_store.store.reports import Counters, Damage
from kvpacket_store.store.rows import unpack
from kvpacket_store.store.schema import (
    SHARED_NAMESPACE,
    Table,
    chunk_key,
    embedding_key,
    packet_row_key,
)
from kvpacket_store.store.transaction import Transaction

__all__ = ["check_file", "check_tables"]


def check_file(path: Path) -> list[Damage]:
    """Walk the pages of ``data.mdb`` without LMDB; hold a read transaction meanwhile."""
    try:
        problems = lmdb.verify.verify(path / "data.mdb", subdir=False)
    except (lmdb.verify.VerifyError, OSError) as error:
        problems = [str(error)]
    return [Damage(None, (), f"data.mdb: {problem}") for problem in problems]


def check_tables(tx: Transaction, *, deep: bool) -> list[Damage]:
    """Follow every reference, in one snapshot.

    Parameters
    ----------
    tx : Transaction
        A read transaction.
    deep : bool
        Read every chunk, text and embedding against its checksum.

    Returns
    -------
    list of Damage
        Empty where everything holds.
    """
    check = _Check(tx, deep)
    try:
        check.namespace(shared_namespace(tx))
        for namespace in every_namespace(tx):
            check.namespace(namespace)
        check.numbers()
    except StoreCorruptError as error:
        return [*check.found, Damage(None, (), str(error))]
    check.leftovers()
    return check.found


class _Check:
    """What was found, and how many rows of each table were accounted for."""

    def __init__(self, tx: Transaction, deep: bool) -> None:
        self.tx = tx
        self.deep = deep
        self.found: list[Damage] = []
        self.num_rows = dict.fromkeys(NUMBERED, 0)
        self.counted = Counters()
        self.claims = ClaimsReader()

    def namespace(self, namespace: NamespaceRow) -> None:
        """Check all that is filed under one namespace."""
        self.counted = Counters()
        self._documents_of(namespace)
        if namespace.id != SHARED_NAMESPACE:
            self._lost_manifests_of(namespace)
        self._packets_of(namespace)
        self._references_of(namespace)
        self._counters_of(namespace)

    def _lost_manifests_of(self, namespace: NamespaceRow) -> None:
        """Find texts that have no manifest, which is enough to ingest them again."""
        for key, _ in self.tx.scan_sizes(Table.TEXTS, prefix=_prefix(namespace)):
            if is_without_manifest(self.tx, key):
                document_id = shown_id(self.tx, key)
                self._add(namespace, None, (document_id,), "its manifest is missing")
                self.num_rows[Table.PINS] += is_pinned(self.tx, key)
                self._count_parts_of_unreadable(key)

    def _documents_of(self, namespace: NamespaceRow) -> None:
        for key, row in self.tx.scan(Table.DOCUMENTS, prefix=_prefix(namespace)):
            self.num_rows[Table.DOCUMENTS] += 1
            self.num_rows[Table.PINS] += is_pinned(self.tx, key)
            self.counted.add(size_of_document(row))
            document_id = shown_id(self.tx, key)
            try:
                manifest = parse_document(row, namespace.name, document_id)
            except CodecError as error:
                self._add(namespace, None, (document_id,), str(error))
                self._count_parts_of_unreadable(key)
                continue
            self._text_of(namespace, key, manifest)
            self._embeddings_of(namespace, key, manifest)
            self._segments_of(namespace, key, manifest)

    def _text_of(self, namespace: NamespaceRow, key: bytes, manifest: DocumentManifest) -> None:
        row = self.tx.get(Table.TEXTS, key) if self.deep else b""
        if row is None or self.tx.size(Table.TEXTS, key) is None:
            self._add(namespace, None, (manifest.id,), "its text is missing")
            return
        self.num_rows[Table.TEXTS] += 1
        if self.deep:
            try:
                unpack(row, f"the text of document {manifest.id!r:.80}")
            except CodecError as error:
                self._add(namespace, None, (manifest.id,), str(error))

    def _embeddings_of(
        self, namespace: NamespaceRow, key: bytes, manifest: DocumentManifest
    ) -> None:
        num_embeddings = 0
        for index, segment in enumerate(manifest.segments):
            row = self.tx.get(Table.EMBEDDINGS, embedding_key(key, index))
            num_embeddings += row is not None
            if row is not None and not is_embedding_of(row, segment.packet_key):
                reason = f"the embedding of segment {index} is damaged"
                self._add(namespace, segment.packet_key, (manifest.id,), reason)
        self.num_rows[Table.EMBEDDINGS] += num_embeddings
        if num_embeddings not in (0, len(manifest.segments)):
            reason = f"{num_embeddings} embeddings for {len(manifest.segments)} segments"
            self._add(namespace, None, (manifest.id,), reason)

    def _segments_of(self, namespace: NamespaceRow, key: bytes, manifest: DocumentManifest) -> None:
        for packet_key in manifest.packet_keys:
            packet_row = packet_row_key(namespace.id, packet_key)
            if self.tx.size(Table.MANIFESTS, packet_row) is None:
                self._add(namespace, packet_key, (manifest.id,), "the packet is missing")
            if self.tx.has_value(Table.REFERENCES, packet_row, key[4:]):
                self.num_rows[Table.REFERENCES] += 1
            else:
                reason = "the packet does not know that this document refers to it"
                self._add(namespace, packet_key, (manifest.id,), reason)

    def _count_parts_of_unreadable(self, key: bytes) -> None:
        """Its parts are not lost property, only unreadable until the document is put again."""
        self.num_rows[Table.TEXTS] += self.tx.size(Table.TEXTS, key) is not None
        self.num_rows[Table.EMBEDDINGS] += len(embedding_keys(self.tx, key))

    def _packets_of(self, namespace: NamespaceRow) -> None:
        for key, row in self.tx.scan(Table.MANIFESTS, prefix=_prefix(namespace)):
            if not has_form(Table.MANIFESTS, key):
                continue
            self.num_rows[Table.MANIFESTS] += 1
            sizes = [size for _, size in self.tx.scan_sizes(Table.CHUNKS, prefix=key)]
            self.num_rows[Table.CHUNKS] += len(sizes)
            has_usage = self.tx.size(Table.USAGE, key) is not None
            self.num_rows[Table.USAGE] += has_usage
            try:
                manifest = parse_manifest(row, key)
                self.counted.add(size_of(manifest, len(row)))
                self.num_rows[Table.USAGE] -= has_usage and manifest.is_evicted
                self._packet(key, manifest, sizes)
            except CodecError as error:
                self._add(namespace, key[4:].hex(), self._referring(key), str(error))

    def _packet(self, key: bytes, manifest: PacketManifest, sizes: list[int]) -> None:
        if len(sizes) > manifest.num_chunks:
            raise CorruptRecordError(f"{len(sizes)} chunks instead of {manifest.num_chunks}")
        if self.deep:
            for layer in range(len(manifest.layer_bytes)):
                require_layer(manifest, layer, copy_layer(self.tx, key, manifest, layer))
        elif tuple(sizes) != manifest.chunk_sizes:
            for index, size in enumerate(manifest.chunk_sizes):
                if self.tx.size(Table.CHUNKS, chunk_key(key, index)) != size:
                    raise CorruptRecordError(f"chunk {index} is missing or has another length")

    def _references_of(self, namespace: NamespaceRow) -> None:
        """Find those that no document's manifest bears out; the others are counted there."""
        for key, name in self.tx.scan(Table.REFERENCES, prefix=_prefix(namespace)):
            claims = self.claims.of(self.tx, key[:4] + name)
            if claims is not None and claims.packets is not None and key[4:] in claims.packets:
                continue
            self.num_rows[Table.REFERENCES] += 1
            if claims is None:
                reason = "a document that is not there refers to the packet"
            elif claims.packets is not None:
                reason = "a document refers to the packet that does not name it"
            else:
                continue
            document_id = shown_id(self.tx, key[:4] + name)
            self._add(namespace, key[4:].hex(), (document_id,), reason)

    def _counters_of(self, namespace: NamespaceRow) -> None:
        if self.counted != namespace.counters:
            said, counted = _plain(namespace.counters), _plain(self.counted)
            reason = f"the counters say {said}, it is {counted}"
            self._add(namespace, None, (), reason)

    def numbers(self) -> None:
        """Find rows of namespaces that have no row themselves, and a count of them that is lost."""
        if has_lost_count(self.tx):
            reason = "the number of the last namespace is missing or too small"
            self.found.append(Damage(None, (), reason))
        for number in lost_numbers(self.tx):
            prefix = number.to_bytes(4, "big")
            for table in NUMBERED:
                self.num_rows[table] += sum(1 for _ in self.tx.scan_sizes(table, prefix=prefix))
            documents = [key for key, _ in self.tx.scan_sizes(Table.DOCUMENTS, prefix=prefix)]
            document_ids = tuple(shown_id(self.tx, key) for key in documents)
            reason = f"rows of a namespace whose own row is lost (number {number})"
            self.found.append(Damage(None, document_ids, reason))

    def leftovers(self) -> None:
        """Name rows that nothing leads to: orphaned chunks by their packets."""
        for table in NUMBERED:
            surplus = self.tx.count_rows(table) - self.num_rows[table]
            if surplus:
                reason = f"{surplus} rows of table {table} belong to nothing"
                self.found.append(Damage(None, (), reason))
        if self.tx.count_rows(Table.CHUNKS) != self.num_rows[Table.CHUNKS]:
            lost = set(lost_numbers(self.tx))
            chunks = [key for key, _ in self.tx.scan_sizes(Table.CHUNKS)]
            packets = {key[:-4] for key in chunks if has_form(Table.CHUNKS, key)}
            for key in sorted(packets):
                if number_of(key) in lost:
                    continue
                if self.tx.size(Table.MANIFESTS, key) is None:
                    reason = "chunks without a manifest"
                    self.found.append(Damage(key[4:].hex(), self._referring(key), reason))

    def _referring(self, key: bytes) -> tuple[str, ...]:
        return tuple(
            shown_id(self.tx, key[:4] + name) for name in self.tx.values(Table.REFERENCES, key)
        )

    def _add(
        self,
        namespace: NamespaceRow,
        packet_key: str | None,
        document_ids: tuple[str, ...],
        reason: str,
    ) -> None:
        name = namespace.name or None
        self.found.append(Damage(packet_key, document_ids, reason, name))


def _prefix(namespace: NamespaceRow) -> bytes:
    return namespace.id.to_bytes(4, "big")


def _plain(counters: Counters) -> str:
    return ", ".join(f"{name} {value}" for name, value in counters.to_dict().items())
