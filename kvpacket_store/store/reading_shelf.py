"""How packets are read: whole, or one layer of them."""

from __future__ import annotations

from dataclasses import replace

from kvpacket_store.errors import CodecError, NotFoundError
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.namespaces import find_namespace
from kvpacket_store.store.packet_copies import (
    copy_layer,
    copy_packet,
    require_checksums,
    require_layer,
)
from kvpacket_store.store.packet_manifest import PacketManifest, StoredPacket
from kvpacket_store.store.packets import find_manifest, is_intact, require_held, require_tokens
from kvpacket_store.store.read_counts import BytesRead, ReadCounter
from kvpacket_store.store.schema import packet_row_key
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.types import TokenIds

__all__ = ["ReadingShelf", "no_packet", "require_packet"]


class ReadingShelf:
    """Packets, read. A part of `PacketStore`.

    Pass ``token_ids`` wherever they are known: a packet that holds other tokens is then a miss,
    even if its key is the same.
    """

    _environment: Environment
    _reads: ReadCounter

    def has_packet(
        self,
        namespace: str,
        packet_key: str,
        token_ids: TokenIds | None = None,
        *,
        deep: bool = False,
    ) -> bool:
        """Say whether `read_packet` finds all its chunks; ``deep`` reads and checks them too."""
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
            return replace(require_packet(tx, key, packet_key, namespace), namespace=namespace)

    def read_packet(
        self, namespace: str, packet_key: str, token_ids: TokenIds | None = None
    ) -> StoredPacket:
        """Return a packet whole as of one moment: copied out, then checked chunk by chunk.

        Raises
        ------
        NotFoundError
            No such packet in this namespace, one that was evicted, or one that holds other
            tokens; prefill it.
        CorruptRecordError
            A chunk is missing or does not match its checksum; prefill it again.
        """
        return self._read_packet(namespace, packet_key, token_ids, base_only=False)

    def read_base(
        self, namespace: str, packet_key: str, token_ids: TokenIds | None = None
    ) -> StoredPacket:
        """Return a packet without its enhancement, of which no chunk is looked at.

        Errors as `read_packet`: damage to the enhancement is none of the base.
        """
        return self._read_packet(namespace, packet_key, token_ids, base_only=True)

    def read_record(
        self, namespace: str, packet_key: str, token_ids: TokenIds | None = None
    ) -> bytes:
        """Return the bytes of `read_base`: a packet's only record, or its base."""
        return self.read_base(namespace, packet_key, token_ids).record

    def read_enhancement(
        self,
        namespace: str,
        packet_key: str,
        token_ids: TokenIds | None = None,
        *,
        kv_digest: str,
    ) -> bytes:
        """Return what completes a base that was read before; of the base no chunk is looked at.

        Parameters
        ----------
        kv_digest : str
            Of the base's manifest: a packet that was replaced meanwhile by another prefill is a
            miss. One that was only encoded anew is not; there ``decode_layers`` tells whether both
            are of one encoding.

        Raises
        ------
        NotFoundError
            As `read_packet`, or the packet now holds other K and V, or has one layer; read it anew.
        CorruptRecordError
            A chunk of the enhancement is missing or damaged; prefill the packet again.
        """
        with self._environment.read() as tx:
            key, manifest = _held(tx, namespace, packet_key, token_ids)
            _require_digest(manifest, kv_digest)
            _require_two_layers(manifest)
            data = copy_layer(tx, key, manifest, 1)
        self._reads.add(enhancement=len(data))
        require_layer(manifest, 1, data)
        return data

    def read_importance(self, namespace: str, packet_key: str) -> bytes | None:
        """Return how much each position of a packet is needed; None where that is not stored.

        Errors as `read_packet`; no chunk of a record is looked at.
        """
        with self._environment.read() as tx:
            key, manifest = _held(tx, namespace, packet_key, None)
            if not manifest.has_importance:
                return None
            layer = manifest.num_records
            data = copy_layer(tx, key, manifest, layer)
        require_layer(manifest, layer, data)
        return data

    @property
    def bytes_read(self) -> BytesRead:
        """How many record bytes this handle has copied out in this process, by layer."""
        return self._reads.total

    def _read_packet(
        self, namespace: str, packet_key: str, token_ids: TokenIds | None, *, base_only: bool
    ) -> StoredPacket:
        with self._environment.read() as tx:
            key, manifest = _held(tx, namespace, packet_key, token_ids)
            packet = copy_packet(tx, key, manifest, base_only=base_only)
        self._reads.add_packet(packet)
        return require_checksums(packet)


def _key(tx: Transaction, namespace: str, packet_key: str) -> bytes | None:
    """Build the key that every reading of a packet goes by; None where there is no namespace."""
    row = find_namespace(tx, namespace)
    key = packet_row_key(0 if row is None else row.id, packet_key)
    return None if row is None else key


def _held(
    tx: Transaction, namespace: str, packet_key: str, token_ids: TokenIds | None
) -> tuple[bytes, PacketManifest]:
    """Return the key and manifest of a packet whose layers are there."""
    key = _key(tx, namespace, packet_key)
    manifest = require_packet(tx, key, packet_key, namespace)
    require_tokens(manifest, token_ids)
    require_held(manifest)
    return key or b"", replace(manifest, namespace=namespace)


def _require_digest(manifest: PacketManifest, kv_digest: str) -> None:
    """Make it a miss where the packet now holds other K and V than what was read of it."""
    if manifest.kv_digest != kv_digest:
        raise NotFoundError(
            f"packet {manifest.packet_key} was replaced by one of other K and V since its base was "
            "read; read it anew"
        )


def _require_two_layers(manifest: PacketManifest) -> None:
    """Make it a miss where no layer completes the base that was read."""
    if manifest.num_records == 1:
        raise NotFoundError(
            f"packet {manifest.packet_key} has one layer and no enhancement; read its record"
        )


def require_packet(
    tx: Transaction, key: bytes | None, packet_key: str, namespace: str | None
) -> PacketManifest:
    """Return a packet's manifest; errors as ``ReadingShelf.get_manifest``."""
    manifest = None if key is None else find_manifest(tx, key)
    if manifest is None:
        raise no_packet(packet_key, namespace)
    return manifest


def no_packet(packet_key: str, namespace: str | None) -> NotFoundError:
    """Return the error of a packet that is not there, for the caller to raise."""
    where = "the store's own packets" if namespace is None else f"namespace {namespace!r:.80}"
    return NotFoundError(f"no packet {packet_key} in {where}; ingest its document")
