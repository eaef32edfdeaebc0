"""JSON objects and JSONL lines to documents.

A record is ``{"id", "text", "metadata"}``: id a non-empty string (or an integer, which becomes
one), text a string, metadata an object or absent. Other fields are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

from kvpacket_store.errors import DocumentError
from kvpacket_store.text.plain import clean_text, read_text
from kvpacket_store.types import Document

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "document_from_record",
    "make_document",
    "parse_record",
    "read_jsonl",
    "read_lines",
]

MAX_DOCUMENT_BYTES = 256 * 2**20  # of one file or line: what is held in memory at once
_MAX_ID_CHARS = 1000
_TOO_DEEP = "is nested too deeply; flatten it"


def read_jsonl(
    lines: Iterable[bytes], name: str, source: str
) -> Iterator[Document | DocumentError]:
    """Yield a document for every line, or the error that names file and line; blank ones are none.

    Parameters
    ----------
    lines : iterable of bytes
        As ``read_lines`` gives them.
    name : str
        The file, for messages.
    source : str
        Becomes ``metadata["source"]`` where the line says nothing.
    """
    for number, line in enumerate(lines, start=1):
        where = f"{name}:{number}"
        if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
            yield DocumentError(name, "is JSONL in UTF-16; convert it (iconv -f utf-16 -t utf-8)")
            return
        if not line.strip():
            continue
        try:
            record, warnings = parse_record(line, where)
            yield document_from_record(record, where, source, warnings)
        except DocumentError as error:
            yield error


def read_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines; one that is longer than a document may be comes cut off just behind that."""
    while line := stream.readline(MAX_DOCUMENT_BYTES + 1):
        yield line
        while len(line) > MAX_DOCUMENT_BYTES and not line.endswith(b"\n"):
            line = stream.readline(MAX_DOCUMENT_BYTES + 1)


def parse_record(line: bytes, where: str) -> tuple[object, list[str]]:
    """Return the JSON value of one line, and warnings about its bytes.

    Raises
    ------
    DocumentError
        If the line is too long or no JSON; it names ``where``.
    """
    if len(line) > MAX_DOCUMENT_BYTES:
        reason = f"is longer than {MAX_DOCUMENT_BYTES} bytes; split the document"
        raise DocumentError(where, reason)
    text, warnings = read_text(where, line)
    try:
        return json.loads(text, parse_constant=_refuse_constant), warnings
    except RecursionError:
        raise DocumentError(where, _TOO_DEEP) from None
    except ValueError as error:
        raise DocumentError(where, f"is not JSON ({error}); correct or remove the line") from error


def document_from_record(
    record: object, where: str, source: str, warnings: Iterable[str] = ()
) -> Document:
    """Check a record and make it a document.

    Parameters
    ----------
    record : object
        A JSON value.
    where : str
        How messages name it: its own id may be what is wrong.
    source : str
        Becomes ``metadata["source"]`` where the record says nothing.
    warnings : iterable of str
        What was repaired before; kept in ``metadata["warnings"]``.

    Raises
    ------
    DocumentError
        If it is no such record, or its text is empty.

    Examples
    --------
    >>> document_from_record({"id": 7, "text": "Hello."}, "a.jsonl:1", "a.jsonl").id
    '7'
    """
    if not isinstance(record, Mapping):
        raise DocumentError(where, 'is not an object; write {"id": …, "text": …, "metadata": {…}}')
    document_id, text = record.get("id"), record.get("text")
    if isinstance(document_id, int) and not isinstance(document_id, bool):
        document_id = str(document_id)
    if not isinstance(document_id, str):
        raise DocumentError(where, "has no id; give it a string under 'id'")
    if not isinstance(text, str):
        raise DocumentError(
            where, f"has no text (id {document_id!r}); give it a string under 'text'"
        )
    metadata = _metadata(record.get("metadata"), where)
    return make_document(
        document_id,
        text,
        {"source": source, "media_type": "text/plain", **metadata},
        where=where,
        warnings=warnings,
    )


def make_document(
    document_id: str,
    text: str,
    metadata: Mapping[str, Any],
    *,
    where: str,
    warnings: Iterable[str] = (),
) -> Document:
    """Clean id and text, refuse what no packet can be made of, and keep the warnings.

    Raises
    ------
    DocumentError
        If the id is empty or too long, or the text is empty.
    """
    document_id, _ = clean_text(document_id)
    if not 0 < len(document_id) <= _MAX_ID_CHARS:
        reason = f"has an id of {len(document_id)} characters; give it 1 to {_MAX_ID_CHARS}"
        raise DocumentError(where, reason)
    text, repairs = clean_text(text)
    if not text or text.isspace():
        raise DocumentError(where, "is empty; leave it out or give it text")
    all_warnings = [*warnings, *repairs]
    if all_warnings:
        metadata = {**metadata, "warnings": all_warnings}
    return Document(document_id, text, metadata)


def _metadata(value: object, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise DocumentError(where, "has metadata that is no object; write {…} or leave it out")
    for name in ("title", "media_type"):
        if not isinstance(value.get(name, ""), str):
            raise DocumentError(where, f"has a {name} that is no string; correct its metadata")
    try:
        cleaned: dict[str, Any] = _clean_value(value)
    except RecursionError:
        raise DocumentError(where, _TOO_DEEP) from None
    return cleaned


def _clean_value(value: Any) -> Any:
    """Return the JSON value with clean strings: they are printed, tokenized and stored as UTF-8."""
    if isinstance(value, str):
        return clean_text(value)[0]
    if isinstance(value, Mapping):
        return {_clean_value(key): _clean_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean_value(item) for item in value]
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
