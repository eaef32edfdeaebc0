"""Bytes to clean text: byte-order marks, broken UTF-8, NUL characters, lone surrogates.

Nothing is dropped in silence: every repair is one warning, which travels in the document's
metadata.
"""

from __future__ import annotations

import codecs
import re

from kvpacket_store.errors import DocumentError

__all__ = ["clean_text", "looks_binary", "read_text", "replace_surrogates"]

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SURROGATES = re.compile("[\ud800-\udfff]")
_SAMPLE_BYTES = 8192
# Latin-1 prose has about one accent in twenty characters, Cyrillic in a single-byte encoding or
# compressed bytes are mostly undecodable; between the two lies the line.
_MAX_REPLACED_SHARE = 0.3
_MIN_SHARE_BYTES = 32  # below this a share says nothing


def read_text(document_id: str, data: bytes, encoding: str = "utf-8") -> tuple[str, list[str]]:
    r"""Return text with ``\n`` line ends, and one warning for every kind of repair.

    Parameters
    ----------
    document_id : str
        For the message.
    data : bytes
        A byte-order mark decides the encoding (UTF-8, UTF-16, UTF-32).
    encoding : str
        What to take where there is no mark. Bytes that do not fit become U+FFFD.

    Raises
    ------
    DocumentError
        If most of it cannot be text in that encoding; convert it, or leave it out.

    Examples
    --------
    >>> read_text("menu", b"caf\xe9\r\n")
    ('caf\ufffd\n', ['1 invalid utf-8 sequence was replaced by U+FFFD'])
    """
    mark, encoding = next(((m, e) for m, e in _MARKS if data.startswith(m)), (b"", encoding))
    text = data[len(mark) :].decode(encoding, errors="replace")
    warnings = []
    # U+FFFD in the source itself is no damage.
    num_replaced = text.count("\ufffd") - data.count("\ufffd".encode(encoding, errors="ignore"))
    if num_replaced > 0:
        if len(data) >= _MIN_SHARE_BYTES and num_replaced > _MAX_REPLACED_SHARE * len(text):
            raise DocumentError(
                document_id,
                f"is not text in {encoding}: {num_replaced} of {len(text)} characters cannot be "
                "decoded; convert it (iconv -f ENCODING -t utf-8) or leave it out",
            )
        noun = "sequence was" if num_replaced == 1 else "sequences were"
        warnings.append(f"{num_replaced} invalid {encoding} {noun} replaced by U+FFFD")
    text, more = clean_text(text.replace("\r\n", "\n").replace("\r", "\n"))
    return text, warnings + more


def clean_text(text: str) -> tuple[str, list[str]]:
    r"""Remove NUL characters and replace lone surrogates, with a warning for each kind.

    Examples
    --------
    >>> clean_text("a\x00b")
    ('ab', ['1 NUL character was removed'])
    """
    warnings = []
    num_nul = text.count("\x00")
    if num_nul:
        noun = "character was" if num_nul == 1 else "characters were"
        warnings.append(f"{num_nul} NUL {noun} removed")
        text = text.replace("\x00", "")
    repaired = replace_surrogates(text)
    if repaired != text:
        warnings.append("lone surrogates were replaced by U+FFFD")
    return repaired, warnings


def replace_surrogates(text: str) -> str:
    """Put U+FFFD for each surrogate code point; the length stays.

    No tokenizer and no encoder takes them, and they come from JSON escapes and from file names.
    """
    return _SURROGATES.sub("\ufffd", text)


def looks_binary(data: bytes, is_named_text: bool) -> bool:
    """Tell whether ``data`` is no text.

    Parameters
    ----------
    data : bytes
        Its first 8 KiB decide.
    is_named_text : bool
        The file's name says that it is text. Then a few NUL characters are damage to be repaired;
        in a file of unknown kind they mean that it is binary, as they do for git, and so do many
        bytes that are not UTF-8.
    """
    sample = data[:_SAMPLE_BYTES]
    if any(sample.startswith(mark) for mark, _ in _MARKS):
        return False
    num_bad = sample.count(0)
    if not is_named_text:
        if num_bad:
            return True
        num_bad = sample.decode(errors="replace").count("\ufffd")
    return len(sample) >= _MIN_SHARE_BYTES and num_bad > _MAX_REPLACED_SHARE * len(sample)
