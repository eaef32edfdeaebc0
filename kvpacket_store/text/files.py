"""The bytes of one file to a document, by what the name and the bytes say it is."""

from __future__ import annotations

from kvpacket_store.errors import DocumentError
from kvpacket_store.text.media_types import media_type_of
from kvpacket_store.text.plain import looks_binary, read_text
from kvpacket_store.text.records import make_document
from kvpacket_store.types import Document

__all__ = ["document_from_bytes", "is_binary_file"]

_PDF_MAGIC = b"%PDF-"


def is_binary_file(name: str, data: bytes) -> bool:
    """Tell whether a file holds neither text nor anything that text can be read from."""
    media_type = _media_type(name, data)
    return media_type != "application/pdf" and looks_binary(data, media_type is not None)


def document_from_bytes(document_id: str, name: str, data: bytes, source: str) -> Document:
    """Read text, Markdown, HTML, PDF or source code.

    Parameters
    ----------
    document_id : str
        The document's id; also the title of source code, which has no other.
    name : str
        The file's name; its suffix chooses the reader. Unknown ones are read as plain text.
    data : bytes
        The whole file.
    source : str
        Becomes ``metadata["source"]``.

    Returns
    -------
    Document
        With ``source``, ``media_type``, and where known ``title`` and ``warnings`` as metadata.

    Raises
    ------
    DocumentError
        If it cannot be read or is empty; the message has a remedy.

    Examples
    --------
    >>> document_from_bytes("a.md", "a.md", b"# Normans", "a.md").metadata["title"]
    'Normans'
    """
    if is_binary_file(name, data):
        reason = (
            "is binary (or UTF-16 without a byte-order mark); convert it to text or leave it out"
        )
        raise DocumentError(document_id, reason)
    media_type = _media_type(name, data) or "text/plain"
    text, title, warnings = _read(document_id, data, media_type)
    metadata = {"source": source, "media_type": media_type}
    if title:
        metadata["title"] = title
    return make_document(document_id, text, metadata, where=document_id, warnings=warnings)


def _media_type(name: str, data: bytes) -> str | None:
    known = media_type_of(name)
    return "application/pdf" if known is None and data.startswith(_PDF_MAGIC) else known


def _read(document_id: str, data: bytes, media_type: str) -> tuple[str, str | None, list[str]]:
    """Return text, title and warnings. The readers load when their first file comes."""
    if media_type == "application/pdf":
        from kvpacket_store.text.pdf import read_pdf

        return *read_pdf(document_id, data), []
    if media_type == "text/html":
        from kvpacket_store.text.html import html_encoding, read_html

        markup, warnings = read_text(document_id, data, html_encoding(data))
        return *read_html(document_id, markup), warnings
    text, warnings = read_text(document_id, data)
    title = None
    if media_type == "text/markdown":
        from kvpacket_store.text.markdown import markdown_title

        title = markdown_title(text)
    elif media_type.startswith("text/x-"):
        title = document_id
    return text, title, warnings
