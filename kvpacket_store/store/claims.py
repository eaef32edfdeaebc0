"""What documents claim as theirs: the packets that they name, the segments that they have."""

from __future__ import annotations

from dataclasses import dataclass

from kvpacket_store.errors import CodecError
from kvpacket_store.store.document_rows import parse_document
from kvpacket_store.store.schema import Table, packet_bytes
from kvpacket_store.store.transaction import Transaction

__all__ = ["Claims", "ClaimsReader", "is_without_manifest"]

_DIGEST_BYTES = 32
_MAX_KNOWN_PACKETS = 1 << 18


@dataclass(frozen=True, slots=True)
class Claims:
    """What belongs to one document.

    Parameters
    ----------
    packets : frozenset of bytes or None
        Packet keys; None where the manifest is unreadable or missing, so that everything which is
        filed under the document may be its.
    num_segments : int
        As many as it may have embeddings.
    """

    packets: frozenset[bytes] | None = None
    num_segments: int = 0

    def name(self, packet: bytes) -> bool:
        """Say whether the packet is, or may be, the document's."""
        return self.packets is None or packet in self.packets

    def have_segment(self, index: int) -> bool:
        """Say whether the document has, or may have, this segment."""
        return self.packets is None or index < self.num_segments


_EVERYTHING = Claims()


class ClaimsReader:
    """Reads manifests once for many questions, in one transaction or in several."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[bytes, Claims]] = {}
        self._num_packets = 0

    def of(self, tx: Transaction, document: bytes) -> Claims | None:
        """Return the claims of the document with this key; None where there is none.

        One whose manifest is lost is there as long as its text is: that is enough to ingest it.
        """
        row = tx.get(Table.DOCUMENTS, document)
        if row is None:
            return _EVERYTHING if is_without_manifest(tx, document) else None
        digest = row[:_DIGEST_BYTES]
        known = self._known.get(document)
        if known is not None and known[0] == digest:
            return known[1]
        claims = _parse(row)
        if self._num_packets > _MAX_KNOWN_PACKETS:
            self._known.clear()
            self._num_packets = 0
        self._known[document] = digest, claims
        self._num_packets += 1 + claims.num_segments
        return claims


def is_without_manifest(tx: Transaction, document: bytes) -> bool:
    """Say whether there is a text under this key whose manifest is lost."""
    is_there = tx.size(Table.DOCUMENTS, document) is not None
    return not is_there and tx.size(Table.TEXTS, document) is not None


def _parse(row: bytes) -> Claims:
    try:
        manifest = parse_document(row, "", "")
        packets = frozenset(packet_bytes(key) for key in manifest.packet_keys)
    except CodecError:
        return _EVERYTHING
    return Claims(packets, len(manifest.segments))
