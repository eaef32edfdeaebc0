"""How much a bundle may hold. Every bound is checked before anything of its size is allocated."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_LIMITS", "BundleLimits"]


@dataclass(frozen=True, slots=True)
class BundleLimits:
    """Bounds that a bundle must keep to be written or read.

    Parameters
    ----------
    max_bytes : int
        Of the whole file.
    max_members : int
        Files in it: two or three a document, two or three a packet.
    max_documents : int
        Documents in it.
    max_segments : int
        Of one document.
    max_json_bytes, max_json_values : int
        Of one description, of a document or of a packet. Values are counted by their commas and
        opening brackets, before they are parsed.
    max_text_bytes : int
        Of one document's text, UTF-8.
    max_embedding_bytes : int
        Of all embeddings of one document.
    max_record_bytes : int
        Of one packet's record, or of its enhancement, at most 1 GiB.
    max_codec_pack_bytes : int
        Of one codec pack.
    """

    max_bytes: int = 1 << 40
    max_members: int = 1 << 20
    max_documents: int = 250_000
    max_segments: int = 100_000
    max_json_bytes: int = 16 << 20
    max_json_values: int = 2_000_000
    max_text_bytes: int = 256 << 20
    max_embedding_bytes: int = 512 << 20
    max_record_bytes: int = 1 << 30
    max_codec_pack_bytes: int = 256 << 20


DEFAULT_LIMITS = BundleLimits()
