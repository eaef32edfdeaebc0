"""What is known of a packet, and the JSON of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.types import TokenIds

__all__ = ["PacketManifest", "PacketRecord", "StoredPacket"]

_MAX_LAYERS = 2


@dataclass(frozen=True, slots=True)
class PacketRecord:
    """A packet to be stored. Records are opaque here: the codec made them, the codec reads them.

    Parameters
    ----------
    packet_key : str
        64 hex characters.
    record : bytes
        All of the packet, or its base. Not empty.
    token_ids : tuple of int
        The segment's own.
    positions : int
        T: header, segment and trailer together.
    raw_bytes : int
        K and V as floats.
    kv_digest : str
        Digest of the K and V themselves.
    engine : str
        What prefilled it: framework, version, device.
    enhancement : bytes or None
        What completes a base. Not empty.
    importance : bytes or None
        How much each position is needed. Not empty.
    """

    packet_key: str
    record: bytes = field(repr=False)
    token_ids: TokenIds
    positions: int
    raw_bytes: int
    kv_digest: str
    engine: str
    enhancement: bytes | None = field(default=None, repr=False)
    importance: bytes | None = field(default=None, repr=False)

    @property
    def layers(self) -> tuple[bytes, ...]:
        """What is stored apart: the record, or base and enhancement; then the importance."""
        parts = (self.record, self.enhancement, self.importance)
        return tuple(part for part in parts if part is not None)

    @property
    def stored_bytes(self) -> int:
        """Of all layers."""
        return sum(map(len, self.layers))


@dataclass(frozen=True, slots=True)
class PacketManifest:
    """What is stored beside a packet's layers, and how they are cut.

    ``token_ids`` to ``engine`` are as in `PacketRecord`. ``layer_bytes`` are the lengths of its
    record, or of base and enhancement. Each is cut by itself into chunks of ``chunk_bytes``, the
    last one shorter; ``chunk_checksums`` are xxh3 (64 bits, hex), the base's first, and
    ``refcount`` says how many documents refer to the packet.
    A packet that was evicted has no layers: what is known of it stays, its records are gone.
    With ``has_importance`` the last of them is no record: it tells how much each position is
    needed.
    """

    packet_key: str
    token_ids: TokenIds
    positions: int
    raw_bytes: int
    kv_digest: str
    engine: str
    layer_bytes: tuple[int, ...]
    chunk_bytes: int
    chunk_checksums: tuple[str, ...] = field(repr=False)
    refcount: int = 0
    namespace: str | None = None
    has_importance: bool = False

    @property
    def tokens(self) -> int:
        """Of the segment alone."""
        return len(self.token_ids)

    @property
    def stored_bytes(self) -> int:
        """Of all layers."""
        return sum(self.layer_bytes)

    @property
    def num_records(self) -> int:
        """1, or 2 for base and enhancement; 0 where they were evicted."""
        return len(self.layer_bytes) - self.has_importance

    @property
    def is_evicted(self) -> bool:
        """Whether the records gave way to others; prefill the packet again from the token ids."""
        return not self.layer_bytes

    @property
    def num_chunks(self) -> int:
        """How many values hold all layers."""
        return len(self.chunk_checksums)

    @property
    def chunk_sizes(self) -> tuple[int, ...]:
        """Bytes of each chunk of all layers, in order."""
        return tuple(size for layer in self.layer_bytes for size in self._cut(layer))

    def layer_chunks(self, layer: int) -> range:
        """Return the numbers of a layer's chunks: 0 is the record or base, 1 the enhancement.

        The importance is layer ``num_records``.
        """
        counts = [-(-size // self.chunk_bytes) for size in self.layer_bytes]
        first = sum(counts[:layer])
        return range(first, first + counts[layer])

    def _cut(self, num_bytes: int) -> tuple[int, ...]:
        num_whole, rest = divmod(num_bytes, self.chunk_bytes)
        return (self.chunk_bytes,) * num_whole + ((rest,) if rest else ())

    def to_json(self) -> dict[str, Any]:
        """Return what the row in table ``manifests`` holds."""
        marks = {"has_importance": True} if self.has_importance else {}
        return marks | {
            "packet_key": self.packet_key,
            "token_ids": list(self.token_ids),
            "positions": self.positions,
            "raw_bytes": self.raw_bytes,
            "kv_digest": self.kv_digest,
            "engine": self.engine,
            "layer_bytes": list(self.layer_bytes),
            "chunk_bytes": self.chunk_bytes,
            "chunk_xxh3": list(self.chunk_checksums),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PacketManifest:
        """Read what `to_json` gave; refuse what cannot be cut that way."""
        try:
            manifest = cls(
                packet_key=values["packet_key"],
                token_ids=tuple(values["token_ids"]),
                positions=values["positions"],
                raw_bytes=values["raw_bytes"],
                kv_digest=values["kv_digest"],
                engine=values["engine"],
                layer_bytes=tuple(values["layer_bytes"]),
                chunk_bytes=values["chunk_bytes"],
                chunk_checksums=tuple(values["chunk_xxh3"]),
                has_importance=values.get("has_importance", False) is True,
            )
            is_sound = manifest._adds_up()
        except (KeyError, TypeError) as error:
            raise CorruptRecordError(
                f"a packet has an unreadable manifest ({error!r}); ingest its document again"
            ) from error
        if not is_sound:
            raise CorruptRecordError(
                f"packet {manifest.packet_key} has a manifest whose chunks do not add up; "
                "ingest its document again"
            )
        return manifest

    def _adds_up(self) -> bool:
        """Say whether there are as many checksums as chunks; nothing is made of these lengths."""
        lengths = (self.chunk_bytes, *self.layer_bytes)
        is_possible = self.has_importance <= self.num_records <= _MAX_LAYERS
        if not is_possible or not all(map(_is_length, lengths)):
            return False
        counts = [-(-size // self.chunk_bytes) for size in self.layer_bytes]
        return sum(counts) == self.num_chunks


def _is_length(value: object) -> bool:
    return type(value) is int and value > 0


class StoredPacket(NamedTuple):
    """A packet as it was read: copied out of the database and checked.

    ``record`` is all of it, or its base; ``enhancement`` completes a base, and is None where there
    is none or where it was not asked for (`PacketManifest.layer_bytes` tells).
    """

    manifest: PacketManifest
    record: bytes
    enhancement: bytes | None = None
