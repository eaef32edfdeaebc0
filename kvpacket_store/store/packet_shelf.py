"""What a store does with packets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kvpacket_store.errors import CodecError, NotFoundError
from kvpacket_store.store.accounts import settle
from kvpacket_store.store.documents import remove_packet, replace_packet, stage_packet
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.manifests import PacketManifest, PacketRecord
from kvpacket_store.store.namespaces import (
    every_namespace,
    find_namespace,
    find_or_add_namespace,
    shared_namespace,
)
from kvpacket_store.store.packets import (
    PreparedPacket,
    copy_record,
    find_manifest,
    is_intact,
    prepare_packet,
    require_checksums,
    require_held,
    require_tokens,
    write_packet,
)
from kvpacket_store.store.schema import (
    Table,
    namespace_key,
    packet_bytes,
    packet_row_key,
    shared_row_key,
)
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.writer import Writer
from kvpacket_store.types import TokenIds

__all__ = ["PacketShelf"]

_PAGE_ROWS = 256


class PacketShelf:
    """Packets of documents, by namespace, and those of the store. A part of `PacketStore`.

    Pass ``token_ids`` wherever they are known: a packet that holds other tokens is then a miss,
    even if its key is the same.
    """

    _environment: Environment
    _writer: Writer

    def has_packet(
        self,
        namespace: str,
        packet_key: str,
        token_ids: TokenIds | None = None,
        *,
        deep: bool = False,
    ) -> bool:
        """Say whether `read_record` finds all its chunks; ``deep`` reads and checks them too."""
        if deep:
            try:
                self.read_packet(namespace, packet_key, token_ids)
            except (NotFoundError, CodecError):
                return False
            return True
        with self._environment.read() as tx:
            key = _key(tx, namespace, packet_key)
            return key is not None and is_intact(tx, key, token_ids)

    def get_manifest(self, namespace: str, packet_key: str) -> PacketManifest:
        """Return what is known of a packet, evicted or not (``is_evicted``).

        Raises
        ------
        NotFoundError
            No such packet in this namespace.
        CorruptRecordError
            The manifest is damaged; ingest its document again.
        """
        with self._environment.read() as tx:
            key = _key(tx, namespace, packet_key)
            return replace(_require(tx, key, packet_key, namespace), namespace=namespace)

    def read_record(
        self, namespace: str, packet_key: str, token_ids: TokenIds | None = None
    ) -> bytes:
        """Return a packet's record: copied out of the database, then checked chunk by chunk.

        Raises
        ------
        NotFoundError
            No such packet in this namespace, one that was evicted, or one that holds other
            tokens; prefill it.
        CorruptRecordError
            A chunk is missing or does not match its checksum; prefill it again.
        """
        return self.read_packet(namespace, packet_key, token_ids)[1]

    def read_packet(
        self, namespace: str, packet_key: str, token_ids: TokenIds | None = None
    ) -> tuple[PacketManifest, bytes]:
        """Return a packet's manifest and its record as of one moment; errors as `read_record`."""
        with self._environment.read() as tx:
            key = _key(tx, namespace, packet_key)
            manifest = _require(tx, key, packet_key, namespace)
            require_tokens(manifest, token_ids)
            require_held(manifest)
            record = copy_record(tx, key or b"", manifest)
        require_checksums(manifest, record)
        return replace(manifest, namespace=namespace), record

    def touch(self, namespace: str, packet_keys: Iterable[str]) -> None:
        """Say that packets were used, so that others are evicted before them.

        Noted in memory, and written with the next write, after some hundred notes or half a
        minute, and at `close`. Never fails for the store's sake; what cannot be written is noted
        again, and of very many notes the oldest are forgotten.
        """
        self._writer.note_uses(namespace, packet_keys)

    def replace_record(
        self, namespace: str, record: PacketRecord, *, keep_since_ms: int | None = None
    ) -> None:
        """Write a packet's record anew, for a repair or after an eviction.

        Documents go on referring to it. Errors and ``keep_since_ms`` as in `put_document`, and:

        Raises
        ------
        NotFoundError
            No document of this namespace refers to the packet.
        UsageError
            The packet that is there holds other tokens.
        """
        packet = prepare_packet(record)

        def action(tx: Transaction) -> None:
            row = find_namespace(tx, namespace)
            if row is None or not replace_packet(tx, row, packet):
                raise _no_packet(record.packet_key, namespace)
            settle(tx, row)

        self._write_packets(action, [packet], keep_since_ms)

    def iter_packets(self, namespace: str | None = None) -> Iterator[PacketManifest]:
        """Yield every packet's manifest, by namespace, in the order of the keys.

        Some hundred are read at a time, so packets that come or go meanwhile may be missed.

        Raises
        ------
        CorruptRecordError
            A manifest is damaged; ingest its document again.
        """
        with self._environment.read() as tx:
            if namespace is None:
                rows = list(every_namespace(tx))
            else:
                row = find_namespace(tx, namespace)
                rows = [] if row is None else [row]
        for row in rows:
            prefix = start = row.id.to_bytes(4, "big")
            while page := self._page(prefix, start):
                for key, manifest in page:
                    start = key + b"\x00"
                    yield replace(manifest, namespace=row.name)

    def _page(self, prefix: bytes, start: bytes) -> list[tuple[bytes, PacketManifest]]:
        page: list[tuple[bytes, PacketManifest]] = []
        with self._environment.read() as tx:
            for key, _ in tx.scan(Table.MANIFESTS, prefix=prefix, start=start):
                manifest = find_manifest(tx, key)
                if manifest is not None:
                    page.append((key, manifest))
                if len(page) == _PAGE_ROWS:
                    break
        return page

    # --- packets that no document refers to

    def stage_packets(
        self,
        namespace: str,
        records: Mapping[str, PacketRecord],
        *,
        keep_since_ms: int | None = None,
    ) -> None:
        """Write packets whose document is still to come, in one synced commit.

        A long document need not be in memory at once, and an interrupted ingest finds again what
        it has made. What no document comes to refer to is for `gc`.
        ``keep_since_ms`` as in `put_document`.

        Raises
        ------
        UsageError
            A packet that is there holds other tokens. Nothing was written.
        """
        namespace_key(namespace)
        packets = [prepare_packet(record) for record in records.values()]

        def action(tx: Transaction) -> None:
            row = find_or_add_namespace(tx, namespace)
            for packet in packets:
                stage_packet(tx, row, packet)
            settle(tx, row)

        self._write_packets(action, packets, keep_since_ms)

    def put_shared(self, record: PacketRecord) -> None:
        """Write or replace a packet that belongs to the store: an adapter's header, a preamble.

        Nothing refers to it, and nothing deletes or evicts it.
        """
        packet = prepare_packet(record)

        def action(tx: Transaction) -> None:
            row, key = shared_namespace(tx), shared_row_key(record.packet_key)
            remove_packet(tx, row, key, is_expected=False)
            row.counters.add(write_packet(tx, key, packet))
            settle(tx, row)

        self._write_packets(action, [packet], None)

    def _write_packets(
        self,
        action: Callable[[Transaction], None],
        packets: Sequence[PreparedPacket],
        keep_since_ms: int | None,
    ) -> None:
        self._writer.write_evicting(
            action,
            need_bytes=sum(packet.num_bytes for packet in packets),
            packets={packet_bytes(packet.manifest.packet_key) for packet in packets},
            keep_since_ms=keep_since_ms,
        )

    def has_shared(self, packet_key: str, token_ids: TokenIds | None = None) -> bool:
        """Say whether the packet is there with all its chunks."""
        with self._environment.read() as tx:
            return is_intact(tx, shared_row_key(packet_key), token_ids)

    def get_shared_manifest(self, packet_key: str) -> PacketManifest:
        """Return what is known of a shared packet; errors as `get_manifest`."""
        with self._environment.read() as tx:
            return _require(tx, shared_row_key(packet_key), packet_key, None)

    def read_shared(self, packet_key: str, token_ids: TokenIds | None = None) -> bytes:
        """Return a shared packet's record; errors as `read_record`."""
        key = shared_row_key(packet_key)
        with self._environment.read() as tx:
            manifest = _require(tx, key, packet_key, None)
            require_tokens(manifest, token_ids)
            record = copy_record(tx, key, manifest)
        require_checksums(manifest, record)
        return record


def _key(tx: Transaction, namespace: str, packet_key: str) -> bytes | None:
    """Build the key that every reading of a packet goes by; None where there is no namespace."""
    row = find_namespace(tx, namespace)
    key = packet_row_key(0 if row is None else row.id, packet_key)
    return None if row is None else key


def _require(
    tx: Transaction, key: bytes | None, packet_key: str, namespace: str | None
) -> PacketManifest:
    manifest = None if key is None else find_manifest(tx, key)
    if manifest is None:
        raise _no_packet(packet_key, namespace)
    return manifest


def _no_packet(packet_key: str, namespace: str | None) -> NotFoundError:
    where = "the store's own packets" if namespace is None else f"namespace {namespace!r:.80}"
    return NotFoundError(f"no packet {packet_key} in {where}; ingest its document")
