"""PDF to text, for files that have a text layer."""

from __future__ import annotations

import io

import pypdf
from pypdf.errors import DependencyError, FileNotDecryptedError

from kvpacket_store.errors import DocumentError

__all__ = ["read_pdf"]

_ENCRYPTED = (
    "is an encrypted PDF; remove the password (qpdf --decrypt IN.pdf OUT.pdf) and ingest the copy"
)
_REPAIR = "repair it (qpdf IN.pdf OUT.pdf) and ingest the copy"
_NO_PAGES = "is a PDF without pages; leave it out"
_IMAGES = "has no text layer; run OCR over it (ocrmypdf IN.pdf OUT.pdf) and ingest the copy"


def read_pdf(document_id: str, data: bytes) -> tuple[str, str | None]:
    """Return the text, an empty line between pages, and the title where the file has one.

    Parameters
    ----------
    document_id : str
        For the message.
    data : bytes
        The whole file.

    Raises
    ------
    DocumentError
        If it is encrypted, broken, or pictures only; the message has a remedy for each.
    """
    try:
        pages, title = _extract(data)
    except (DependencyError, FileNotDecryptedError) as error:
        raise DocumentError(document_id, _ENCRYPTED) from error
    except Exception as error:
        # A damaged file makes the parser fail in any way: KeyError, RecursionError, its own.
        reason = f"cannot be read as PDF ({type(error).__name__}: {error}); "
        raise DocumentError(document_id, reason + _REPAIR) from error
    text = "\n\n".join(page.strip() for page in pages).strip()
    if not text:
        raise DocumentError(document_id, _IMAGES if pages else _NO_PAGES)
    return text, title.strip() or None


def _extract(data: bytes) -> tuple[list[str], str]:
    reader = pypdf.PdfReader(io.BytesIO(data))
    # Many files are encrypted with an empty password, only to forbid printing.
    if reader.is_encrypted and not reader.decrypt(""):
        raise FileNotDecryptedError("needs a password")
    title = reader.metadata.title if reader.metadata else None
    return [page.extract_text() for page in reader.pages], str(title or "")
