"""What a store does with packets that are its own: an adapter's header, a preamble."""

from __future__ import annotations

from kvpacket_store.errors import UsageError
from kvpacket_store.store.accounts import settle
from kvpacket_store.store.documents import remove_packet
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.namespaces import shared_namespace
from kvpacket_store.store.packet_copies import copy_packet, require_checksums
from kvpacket_store.store.packet_manifest import PacketManifest, PacketRecord
from kvpacket_store.store.packets import is_intact, prepare_packet, require_tokens, write_packet
from kvpacket_store.store.read_counts import ReadCounter
from kvpacket_store.store.reading_shelf import require_packet
from kvpacket_store.store.schema import packet_bytes, shared_row_key
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.writer import Writer
from kvpacket_store.types import TokenIds

__all__ = ["SharedShelf"]


class SharedShelf:
    """Packets that no namespace has and every answer may use. A part of `PacketStore`."""

    _environment: Environment
    _reads: ReadCounter
    _writer: Writer

    def put_shared(self, record: PacketRecord) -> None:
        """Write or replace a packet that belongs to the store: an adapter's header, a preamble.

        Nothing refers to it, and nothing deletes or evicts it. It has one layer: a base would save
        nobody anything.

        Raises
        ------
        UsageError
            It has an enhancement.
        """
        if record.enhancement is not None:
            raise UsageError(f"packet {record.packet_key} is shared and has 2 layers; encode 1")
        packet = prepare_packet(record)

        def action(tx: Transaction) -> None:
            row, key = shared_namespace(tx), shared_row_key(record.packet_key)
            remove_packet(tx, row, key, is_expected=False)
            row.counters.add(write_packet(tx, key, packet))
            settle(tx, row)

        packets = {packet_bytes(record.packet_key)}
        self._writer.write_evicting(action, need_bytes=packet.num_bytes, packets=packets)

    def has_shared(self, packet_key: str, token_ids: TokenIds | None = None) -> bool:
        """Say whether the packet is there with all its chunks."""
        with self._environment.read() as tx:
            return is_intact(tx, shared_row_key(packet_key), token_ids)

    def get_shared_manifest(self, packet_key: str) -> PacketManifest:
        """Return what is known of a shared packet; errors as `get_manifest`."""
        with self._environment.read() as tx:
            return require_packet(tx, shared_row_key(packet_key), packet_key, None)

    def read_shared(self, packet_key: str, token_ids: TokenIds | None = None) -> bytes:
        """Return a shared packet's record; errors as `read_packet`."""
        key = shared_row_key(packet_key)
        with self._environment.read() as tx:
            manifest = require_packet(tx, key, packet_key, None)
            require_tokens(manifest, token_ids)
            packet = copy_packet(tx, key, manifest)
        self._reads.add_packet(packet)
        return require_checksums(packet).record
