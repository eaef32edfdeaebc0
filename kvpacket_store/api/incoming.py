"""A document as it comes in: checked, made plain, and hashed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from kvpacket_store.errors import DocumentError
from kvpacket_store.types import Document

__all__ = ["MAX_ID_CHARS", "checked_document", "content_hash", "metadata_hash"]

MAX_ID_CHARS = 1000


def content_hash(document: Document) -> str:
    """SHA-256 of what decides a document's packets: its text, title and media type."""
    parts = [document.text, document.metadata.get("title"), document.metadata.get("media_type")]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def metadata_hash(document: Document) -> str:
    """SHA-256 of the metadata; changing it prefills nothing."""
    plain = json.dumps(document.metadata, sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()


def checked_document(document: Document) -> Document:
    """Return the document if it can be filed; metadata becomes plain JSON."""
    if not _is_document(document):
        raise DocumentError(str(document)[:40], f"is a {type(document).__name__}, no Document")
    if not _is_text(document.id) or not 0 < len(document.id) <= MAX_ID_CHARS:
        raise DocumentError(
            str(document.id)[:80], f"its id must have 1 to {MAX_ID_CHARS} characters"
        )
    if not _is_text(document.text):
        raise DocumentError(document.id, "its text must be a string")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(document.metadata), allow_nan=False))
        document.id.encode()
    except (TypeError, ValueError) as error:
        raise DocumentError(
            document.id, f"its metadata or id is not plain JSON: {error}"
        ) from error
    # as for files: NUL goes, and what no UTF-8 can hold becomes U+FFFD
    text = document.text.replace("\0", "").encode("utf-8", "replace").decode()
    return replace(document, text=text, metadata=plain)


def _is_document(value: object) -> bool:
    return isinstance(value, Document)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
