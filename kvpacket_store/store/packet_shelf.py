"""What a store does with packets: it writes and lists them, and see ``reading_shelf``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from kvpacket_store.store.accounts import settle
from kvpacket_store.store.documents import replace_packet, stage_packet
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.namespaces import (
    every_namespace,
    find_namespace,
    find_or_add_namespace,
)
from kvpacket_store.store.numbers import has_form
from kvpacket_store.store.packet_manifest import PacketManifest, PacketRecord
from kvpacket_store.store.packets import (
    PreparedPacket,
    find_manifest,
    prepare_packet,
)
from kvpacket_store.store.reading_shelf import ReadingShelf, no_packet
from kvpacket_store.store.schema import (
    Table,
    namespace_key,
    packet_bytes,
)
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.writer import Writer

__all__ = ["PacketShelf"]

_PAGE_ROWS = 256


class PacketShelf(ReadingShelf):
    """Packets of documents, by namespace. A part of `PacketStore`."""

    _environment: Environment
    _writer: Writer

    def touch(self, namespace: str, packet_keys: Iterable[str]) -> None:
        """Say that packets were used, so that others are evicted before them.

        Noted in memory, and written with the next write, after some hundred notes or half a
        minute, and at `close`. Never fails for the store's sake; what cannot be written is noted
        again, and of very many notes the oldest are forgotten.
        """
        self._writer.note_uses(namespace, packet_keys)

    def replace_record(
        self,
        namespace: str,
        record: PacketRecord,
        *,
        keep_since_ms: int | None = None,
        is_use: bool = True,
    ) -> None:
        """Write a packet's layers anew: a repair, after an eviction, or in another encoding.

        Documents go on referring to it. Unless it ``is_use``, the packet gives way to others as
        soon as before. Errors and ``keep_since_ms`` as in `put_document`, and:

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
            if row is None or not replace_packet(tx, row, packet, is_use=is_use):
                raise no_packet(record.packet_key, namespace)
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

    def iter_packet_keys(self, namespace: str) -> Iterator[str]:
        """Yield the key of every packet, in order, whether or not its manifest can be read.

        Some hundred are read at a time, so packets that come or go meanwhile may be missed.
        """
        with self._environment.read() as tx:
            row = find_namespace(tx, namespace)
        prefix = start = b"" if row is None else row.id.to_bytes(4, "big")
        while row is not None:
            with self._environment.read() as tx:
                found = islice(tx.scan(Table.MANIFESTS, prefix=prefix, start=start), _PAGE_ROWS)
                keys = [key for key, _ in found]
            if not keys:
                break
            start = keys[-1] + b"\x00"
            yield from (key[4:].hex() for key in keys if has_form(Table.MANIFESTS, key))

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
