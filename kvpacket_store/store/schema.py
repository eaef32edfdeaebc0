"""Where everything lies: the tables (LMDB's named databases) and their keys.

========== ===================================== =================================================
table      key                                   value
========== ===================================== =================================================
meta       ``"store"``, ``"last_namespace"``     row: `StoreMeta`; uint32: last number given out
meta       ``"last_eviction"``                   uint64: ms since 1970
meta       ``"quality"``                         row: the report of the store's model and adapter
meta       ``"value/"``, collection, key         row: the key, and a value of another program's
namespaces name                                  row: number, generation, counters
documents  namespace, document                   row: manifest
texts      namespace, document                   row: the document's text
embeddings namespace, document, uint32 segment   xxh3, packet key, float32 values
manifests  namespace, packet                     row: manifest
references namespace, packet                     document, once for each that refers to the packet
chunks     namespace, packet, uint32 chunk       n * 4096 - 16 bytes of a record
usage      namespace, packet                     uint64 last use, ms; uint64 stored bytes
pins       namespace, document                   ``1``: its packets are not to be evicted
========== ===================================== =================================================

A *namespace* in a key is its number, 4 bytes. A *packet* is its packet key, 32 bytes. *Names*,
*documents* and *keys* are UTF-8 while short (`text_key`), so that tables list in the order of their
ids; a *collection* is 16 bytes of the SHA-256 of its namespace and name. All integers in keys are
big-endian: the order of bytes is then the order of numbers. A *row* is framed and checksummed
(``rows.py``). Namespace number 0 holds the packets that belong to the store, not to
a document; nothing refers to them.

The chunks of a packet in two layers are those of its base, then those of its enhancement: no value
has bytes of both, so that a base is read without touching the rest.

A record is cut into chunks because LMDB keeps a value of more than half a page on pages of its own,
side by side: 16 bytes of page header and n * 4096 - 16 of ours fill them to the last byte, and
pieces of this size find a place again where others were deleted.
"""

from __future__ import annotations

import enum
import hashlib
import re

from kvpacket_store.errors import CorruptRecordError, DocumentError, UsageError

__all__ = [
    "CHUNK_BYTES",
    "META_LAST_EVICTION",
    "META_LAST_NAMESPACE",
    "META_QUALITY",
    "META_STORE",
    "META_VALUE",
    "SHARED_NAMESPACE",
    "SHARED_NAME_KEY",
    "Table",
    "chunk_key",
    "document_key",
    "document_name_key",
    "embedding_key",
    "is_text",
    "namespace_key",
    "packet_bytes",
    "packet_row_key",
    "shared_row_key",
    "text_key",
    "verbatim_text",
]

CHUNK_BYTES = 32 * 4096 - 16
"""How much of a record one value holds; a manifest says which size its records were cut into."""

SHARED_NAMESPACE = 0
SHARED_NAME_KEY = b"\xff"  # no name has this key: UTF-8 never starts with it
META_STORE = b"store"
META_LAST_NAMESPACE = b"last_namespace"
META_LAST_EVICTION = b"last_eviction"
META_QUALITY = b"quality"
META_VALUE = b"value/"

_MAX_NAME_CHARS = 200
_MAX_DOCUMENT_ID_CHARS = 1000
_VERBATIM_BYTES = 440  # and 1 + 32 + 8 more stay under the 511 bytes that LMDB allows
_PACKET_KEY = re.compile(r"[0-9a-f]{64}")


class Table(enum.StrEnum):
    """The named databases."""

    META = "meta"
    NAMESPACES = "namespaces"
    DOCUMENTS = "documents"
    TEXTS = "texts"
    EMBEDDINGS = "embeddings"
    MANIFESTS = "manifests"
    REFERENCES = "references"
    CHUNKS = "chunks"
    USAGE = "usage"
    PINS = "pins"


def text_key(text: str) -> bytes:
    """Return a key for any text that sorts like it.

    Long texts are cut and told apart by a digest; the byte 0xFF, which UTF-8 never has, keeps them
    apart from short ones.

    Examples
    --------
    >>> text_key("a/b.md")
    b'a/b.md'
    >>> len(text_key("x" * 1000))
    473
    """
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded) <= _VERBATIM_BYTES:
        return encoded
    return encoded[:_VERBATIM_BYTES] + b"\xff" + hashlib.sha256(encoded).digest()


def verbatim_text(key: bytes) -> str | None:
    """Return the text that `text_key` made this of, or None where it was cut.

    Examples
    --------
    >>> verbatim_text(text_key("a/b.md")), verbatim_text(text_key("x" * 1000))
    ('a/b.md', None)
    """
    try:
        return None if b"\xff" in key else key.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise CorruptRecordError(
            f"a key of the store is no text ({error}); ingest what `kvps doctor` names again"
        ) from error


def namespace_key(name: str) -> bytes:
    """Return the key of a namespace's row; refuse what is no name."""
    if not is_text(name, _MAX_NAME_CHARS):
        raise UsageError(
            f"namespace {name!r:.80} is not a name; pass 1 to {_MAX_NAME_CHARS} characters"
        )
    return text_key(name)


def document_name_key(document_id: str) -> bytes:
    """Return a document's part of a key; refuse what is no id."""
    if not is_text(document_id, _MAX_DOCUMENT_ID_CHARS):
        raise DocumentError(
            f"{document_id!r:.80}", f"an id is a text of 1 to {_MAX_DOCUMENT_ID_CHARS} characters"
        )
    return text_key(document_id)


def document_key(namespace_id: int, document_id: str) -> bytes:
    """Return the key of a document's manifest and text."""
    return _u32(namespace_id) + document_name_key(document_id)


def embedding_key(document: bytes, segment_index: int) -> bytes:
    """Return the key of a segment's embedding, given its document's key."""
    return document + _u32(segment_index)


def packet_bytes(packet_key: str) -> bytes:
    """Return a packet key's 32 bytes; refuse what is no packet key."""
    if not (is_text(packet_key, 64) and _PACKET_KEY.fullmatch(packet_key)):
        raise UsageError(f"packet key {packet_key!r:.80} is not 64 lower-case hex characters")
    return bytes.fromhex(packet_key)


def packet_row_key(namespace_id: int, packet_key: str) -> bytes:
    """Return the key of a packet's manifest and references. `has` and `read` both come here."""
    return _u32(namespace_id) + packet_bytes(packet_key)


def shared_row_key(packet_key: str) -> bytes:
    """Return the key of a shared packet's manifest."""
    return packet_row_key(SHARED_NAMESPACE, packet_key)


def chunk_key(packet_row: bytes, chunk_index: int) -> bytes:
    """Return the key of one chunk, given its packet's key."""
    return packet_row + _u32(chunk_index)


def is_text(value: object, max_chars: int) -> bool:
    """Say whether this is a text of 1 to ``max_chars`` characters."""
    return isinstance(value, str) and 0 < len(value) <= max_chars


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "big")
