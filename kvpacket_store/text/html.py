"""HTML to text: what a reader would see, a line for every block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from bs4 import BeautifulSoup
from bs4.dammit import EncodingDetector
from bs4.element import NavigableString, PageElement, PreformattedString, Tag
from bs4.exceptions import ParserRejectedMarkup

from kvpacket_store.errors import DocumentError

__all__ = ["html_encoding", "read_html"]

_DROPPED = frozenset(
    ["iframe", "nav", "noscript", "object", "script", "style", "svg", "template", "title"]
)
# fmt: off
_NEWLINES = dict.fromkeys([
    "address", "article", "aside", "blockquote", "body", "details", "dl", "fieldset", "figure",
    "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "ol", "p",
    "pre", "section", "table", "ul",
], 2) | dict.fromkeys(
    ["caption", "dd", "div", "dt", "figcaption", "legend", "li", "option", "summary", "tr"], 1
)
# fmt: on
# Bounded: an unclosed one must not be searched for again and again.
_XML_DECLARATION = re.compile(r"<\?xml[^>]{0,200}>", re.IGNORECASE)
_SPACES = re.compile(r"\s+")
_BEFORE_NEWLINE = re.compile(r"(?<![ \t])[ \t]+\n")


class _Piece(NamedTuple):
    """Text, or a break that asks for ``num_newlines`` between the texts around it."""

    text: str = ""
    is_preformatted: bool = False
    num_newlines: int = 0


_SEPARATORS = {"br": _Piece("\n", is_preformatted=True), "td": _Piece(" "), "th": _Piece(" ")}


def html_encoding(data: bytes) -> str:
    """Return the encoding that the page declares for itself, UTF-8 where it declares none."""
    declared = EncodingDetector.find_declared_encoding(data, is_html=True)
    if not declared:
        return "utf-8"
    try:
        "".encode(declared)
    except (LookupError, UnicodeError):
        return "utf-8"
    # A declaration that could be read byte by byte is not in UTF-16, whatever it says.
    return "utf-8" if declared.lower().startswith(("utf-16", "utf-32")) else declared


def read_html(document_id: str, markup: str) -> tuple[str, str | None]:
    r"""Return the readable text and the title; scripts, styles and navigation are left out.

    Raises
    ------
    DocumentError
        If the parser refuses the markup; correct it, or leave the page out.

    Examples
    --------
    >>> read_html("a", "<title>T</title><nav>menu</nav><p>a <b>b</b></p><ul><li>c<li>d</ul>")
    ('a b\n\nc\nd', 'T')
    """
    if "<" not in markup:  # bs4 would warn that this might be a file name
        markup = f"<p>{markup}</p>"
    try:
        soup = BeautifulSoup(_XML_DECLARATION.sub("", markup), "html.parser")
    except ParserRejectedMarkup as error:
        reason = "has markup that no parser takes, such as an unclosed '<!['; correct it"
        raise DocumentError(document_id, reason) from error
    heading = soup.find("title") or soup.find("h1")
    title = _SPACES.sub(" ", heading.get_text()).strip() if heading else ""
    return _tidy(_pieces(soup)), title or None


def _pieces(soup: BeautifulSoup) -> Iterator[_Piece]:
    """Yield texts and breaks in document order. Pages nest deeper than Python recurses."""
    stack: list[tuple[PageElement | _Piece, bool]] = [(soup, False)]
    while stack:
        node, is_preformatted = stack.pop()
        if isinstance(node, _Piece):
            yield node
        elif isinstance(node, Tag) and node.name not in _DROPPED:
            is_preformatted = is_preformatted or node.name in ("pre", "textarea")
            edge = _Piece(num_newlines=_NEWLINES.get(node.name, 0))
            stack.append((edge, True))
            stack.extend((child, is_preformatted) for child in reversed(node.contents))
            yield _SEPARATORS.get(node.name, edge)
        elif isinstance(node, NavigableString) and not isinstance(node, PreformattedString):
            yield _Piece(str(node), is_preformatted)


def _tidy(pieces: Iterator[_Piece]) -> str:
    """Join: outside of preformatted text a run of spaces is one space, and none begins a line."""
    parts: list[str] = []
    num_newlines, is_after_space = 0, True
    for piece in pieces:
        num_newlines = max(num_newlines, piece.num_newlines)
        text = piece.text if piece.is_preformatted else _SPACES.sub(" ", piece.text)
        if not piece.is_preformatted and (is_after_space or num_newlines):
            text = text.lstrip(" ")
        if text:
            parts += ["\n" * num_newlines, text]
            num_newlines, is_after_space = 0, text.endswith((" ", "\n"))
    return _BEFORE_NEWLINE.sub("\n", "".join(parts)).strip()
