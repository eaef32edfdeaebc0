"""What lies in a bundle under which name, and the one way in which a member is put into the zip.

``docs/bundle.md`` is normative. A name is a label here, never a path: it is matched against one
pattern, and nothing is ever unpacked to a folder.
"""

from __future__ import annotations

import re
import zipfile

from kvpacket_store.bundle.limits import BundleLimits

__all__ = [
    "FORMAT_NAME",
    "FORMAT_VERSION",
    "HEAD",
    "INDEX",
    "NAME",
    "codec_pack",
    "comment_of",
    "document_description",
    "document_embeddings",
    "document_text",
    "limit_bytes",
    "make_info",
    "packet_description",
    "packet_enhancement",
    "packet_record",
]

FORMAT_NAME = "kvpacket-store bundle"
FORMAT_VERSION = 1
HEAD = "bundle.json"
INDEX = "index.txt"
NAME = re.compile(
    r"bundle\.json|index\.txt|documents/[0-9]{8}\.(?:json|txt|f32)|packets/[0-9a-f]{64}\.(?:json|kvr|kve)|"
    r"packs/[0-9a-f]{64}\.kvc"
)
_LONGEST_INDEX_ROW_BYTES = 64 + 1 + 20 + 1 + 77 + 1


def document_description(number: int) -> str:
    """Return the name of a document's JSON."""
    return f"documents/{number:08d}.json"


def document_text(number: int) -> str:
    """Return the name of a document's text."""
    return f"documents/{number:08d}.txt"


def document_embeddings(number: int) -> str:
    """Return the name of a document's embeddings."""
    return f"documents/{number:08d}.f32"


def packet_description(packet_key: str) -> str:
    """Return the name of a packet's JSON."""
    return f"packets/{packet_key}.json"


def packet_record(packet_key: str) -> str:
    """Return the name of a packet's record, or of its base."""
    return f"packets/{packet_key}.kvr"


def packet_enhancement(packet_key: str) -> str:
    """Return the name of what completes a packet's base."""
    return f"packets/{packet_key}.kve"


def codec_pack(digest: str) -> str:
    """Return the name of a codec pack that records name."""
    return f"packs/{digest}.kvc"


def limit_bytes(name: str, num_members: int, limits: BundleLimits) -> int:
    """Return how long a member may be.

    Examples
    --------
    >>> limit_bytes("packets/" + "0" * 64 + ".kvr", 5, BundleLimits(max_record_bytes=7))
    7
    """
    if name == INDEX:
        return num_members * _LONGEST_INDEX_ROW_BYTES
    return {
        "json": limits.max_json_bytes,
        "txt": limits.max_text_bytes,
        "f32": limits.max_embedding_bytes,
        "kvr": limits.max_record_bytes,
        "kve": limits.max_record_bytes,
        "kvc": limits.max_codec_pack_bytes,
    }[name.rpartition(".")[2]]


def make_info(name: str) -> zipfile.ZipInfo:
    """Return how a member is filed: stored, of no particular time, readable by its owner."""
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_STORED
    info.create_system = 3
    info.external_attr = 0o600 << 16  # K and V are as sensitive as the text
    return info


def comment_of(index_sha256: str) -> bytes:
    """Return the comment at the very end of the file: it seals the index, which seals the rest."""
    return f"{FORMAT_NAME} {FORMAT_VERSION} {index_sha256}".encode("ascii")
