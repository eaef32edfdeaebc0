"""Files, folders, JSONL and standard input to documents, one at a time.

A document that cannot be read becomes a ``DocumentError`` in its place, and the rest goes on.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from kvpacket_store.errors import DocumentError, UsageError
from kvpacket_store.text import records
from kvpacket_store.text.files import document_from_bytes, is_binary_file
from kvpacket_store.text.media_types import media_type_of
from kvpacket_store.text.plain import replace_surrogates
from kvpacket_store.types import Document

__all__ = ["read_documents"]

_STDIN = "stdin"
_TWICE = "has the id of an earlier document; name the folder above both, or give ids in JSONL"
_READ_BYTES = 2**20


def read_documents(
    paths: Sequence[str], stdin: IO[Any] | None = None
) -> Iterator[Document | DocumentError]:
    """Read every document that the arguments name, lazily and in a fixed order.

    Parameters
    ----------
    paths : sequence of str
        Files; folders, read with their subfolders in the order of names, hidden, binary and empty
        files and links to folders left out; ``.jsonl`` files, a document a line; ``-`` for
        standard input, which is JSONL if its first line is an object with a ``text``, else one
        document.
    stdin : file, optional
        Where ``-`` reads from, binary or text.

    Returns
    -------
    iterator of Document or DocumentError
        Ids are the ``id`` of a JSONL line, the path below the folder that was named, or the name
        of a file that was named itself. An id that an earlier document of this call has is an
        error, for the second would replace the first. One document is in memory at a time.

    Raises
    ------
    UsageError
        Before anything is read, if a path does not exist.
    """
    if isinstance(paths, str):
        raise UsageError("paths come as a list; put the one path into a list")
    missing = [path for path in paths if path != "-" and not Path(path).exists()]
    if missing:
        raise UsageError(f"nothing was read: there is no {', '.join(map(repr, missing))}")
    if "-" in paths and (stdin is None or paths.count("-") > 1):
        raise UsageError("'-' can be named once, and only where there is a standard input")
    return _unique(itertools.chain.from_iterable(_read_path(path, stdin) for path in paths))


def _unique(results: Iterator[Document | DocumentError]) -> Iterator[Document | DocumentError]:
    seen: set[bytes] = set()  # 16 bytes an id, however long it is
    for result in results:
        if isinstance(result, Document):
            digest = hashlib.blake2b(result.id.encode(), digest_size=16).digest()
            if digest in seen:
                yield DocumentError(result.id, f"{_TWICE} (this is {result.metadata['source']})")
                continue
            seen.add(digest)
        yield result


def _read_path(path: str, stdin: IO[Any] | None) -> Iterator[Document | DocumentError]:
    if path == "-" and stdin is not None:
        return _read_stdin(stdin)
    named = Path(path)
    if named.is_dir():
        return _read_folder(named)
    if named.name.startswith("."):
        reason = "is hidden; pipe it in (-) or rename it if it is meant to be read"
        return iter([DocumentError(named.name, reason)])
    return _read_file(named, named.name, is_named=True)


def _read_folder(folder: Path) -> Iterator[Document | DocumentError]:
    stack = [folder]
    while stack:
        path = stack.pop()
        document_id = path.relative_to(folder).as_posix()
        try:
            if path == folder or (path.is_dir() and not path.is_symlink()):
                children = sorted(path.iterdir(), key=lambda child: child.name, reverse=True)
                stack += [child for child in children if not child.name.startswith(".")]
            elif path.is_file():
                yield from _read_file(path, document_id, is_named=False)
        except OSError as error:
            yield _unreadable(document_id, error)


def _read_file(
    path: Path, document_id: str, *, is_named: bool
) -> Iterator[Document | DocumentError]:
    document_id = replace_surrogates(document_id)  # names that are not UTF-8
    source = replace_surrogates(path.as_posix())
    try:
        with path.open("rb") as file:
            if media_type_of(path.name) == "application/jsonl":
                yield from records.read_jsonl(records.read_lines(file), document_id, source)
                return
            data = _read_bounded(file, document_id)
        # an empty file in a tree is no failure: Python packages are full of them
        if is_named or (data and not is_binary_file(path.name, data)):
            yield document_from_bytes(document_id, path.name, data, source)
    except OSError as error:
        yield _unreadable(document_id, error)
    except DocumentError as error:
        yield error


def _read_stdin(stdin: IO[Any]) -> Iterator[Document | DocumentError]:
    stream = _binary(stdin)
    lines = records.read_lines(stream)
    num_blank, first = 0, b""
    for line in lines:
        if line.strip():
            first = line
            break
        num_blank += 1
    if _is_record(first):
        blank = itertools.repeat(b"\n", num_blank)  # so that messages name the right line
        yield from records.read_jsonl(itertools.chain(blank, [first], lines), _STDIN, "-")
        return
    try:
        yield document_from_bytes(_STDIN, _STDIN, _read_bounded(stream, _STDIN, first), "-")
    except DocumentError as error:
        yield error


def _binary(stream: IO[Any]) -> IO[bytes]:
    if isinstance(stream, io.StringIO):
        return io.BytesIO(stream.read().encode(errors="replace"))
    buffer: IO[bytes] = getattr(stream, "buffer", stream)
    return buffer


def _is_record(line: bytes) -> bool:
    try:
        record, _ = records.parse_record(line, _STDIN)
    except DocumentError:
        return False
    return isinstance(record, dict) and "text" in record


def _read_bounded(file: IO[bytes], document_id: str, first: bytes = b"") -> bytes:
    """Read to the end in steps: a limit asked for at once would be allocated for every file."""
    parts, num_bytes = [first], len(first)
    while num_bytes <= records.MAX_DOCUMENT_BYTES and (part := file.read(_READ_BYTES)):
        parts.append(part)
        num_bytes += len(part)
    if num_bytes > records.MAX_DOCUMENT_BYTES:
        reason = f"is longer than {records.MAX_DOCUMENT_BYTES} bytes; split it"
        raise DocumentError(document_id, reason)
    return b"".join(parts)


def _unreadable(document_id: str, error: OSError) -> DocumentError:
    reason = f"cannot be read ({error.strerror or error}); correct that, or leave it out"
    return DocumentError(document_id, reason)
