"""HTML to text: what a reader would see, a line for every block."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bs4 import BeautifulSoup
from bs4.dammit import EncodingDetector
from bs4.element import Comment, NavigableString, PageElement, PreformattedString, Tag

__all__ = ["html_encoding", "read_html"]

_DROPPED = frozenset(
    ["iframe", "nav", "noscript", "object", "script", "style", "svg", "template", "title"]
)
# fmt: off
_BREAKS = {
    **dict.fromkeys([
        "address", "article", "aside", "blockquote", "body", "details", "dl", "fieldset", "figure",
        "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "ol", "p",
        "pre", "section", "table", "ul",
    ], "\n\n"),
    **dict.fromkeys(
        ["br", "caption", "dd", "div", "dt", "figcaption", "legend", "li", "option", "tr"], "\n"
    ),
    "td": " ",
    "th": " ",
}
# fmt: on
# Bounded: an unclosed one must not be searched for again and again.
_XML_DECLARATION = re.compile(r"<\?xml[^>]{0,200}>", re.IGNORECASE)
_SPACES = re.compile(r"\s+")
_BEFORE_NEWLINE = re.compile(r"(?<![ \t])[ \t]+\n")
_MANY_NEWLINES = re.compile(r"\n{3,}")


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


def read_html(markup: str) -> tuple[str, str | None]:
    r"""Return the readable text and the title; scripts, styles and navigation are left out.

    Examples
    --------
    >>> read_html("<title>T</title><nav>menu</nav><p>a <b>b</b></p><ul><li>c<li>d</ul>")
    ('a b\n\nc\nd', 'T')
    """
    if "<" not in markup:  # bs4 would warn that this might be a file name
        markup = f"<p>{markup}</p>"
    soup = BeautifulSoup(_XML_DECLARATION.sub("", markup), "html.parser")
    heading = soup.find("title") or soup.find("h1")
    title = _SPACES.sub(" ", heading.get_text()).strip() if heading else ""
    return _tidy(_pieces(soup)), title or None


def _pieces(soup: BeautifulSoup) -> Iterator[tuple[str, bool]]:
    """Yield text and breaks in document order, each with whether its spaces are to be kept.

    An explicit stack: pages nest deeper than Python recurses.
    """
    stack: list[tuple[PageElement | str, bool]] = [(soup, False)]
    while stack:
        node, is_kept = stack.pop()
        if isinstance(node, Tag):
            if node.name in _DROPPED:
                continue
            is_kept = is_kept or node.name in ("pre", "textarea")
            end = _BREAKS.get(node.name, "")
            stack.append((end, True))
            stack.extend((child, is_kept) for child in reversed(node.contents))
            stack.append((end, True))
        elif isinstance(node, NavigableString):
            if not isinstance(node, (Comment, PreformattedString)):
                yield str(node), is_kept
        else:
            yield str(node), is_kept


def _tidy(pieces: Iterator[tuple[str, bool]]) -> str:
    """Join, with runs of spaces as one space outside of preformatted text."""
    parts: list[str] = []
    is_line_start = True
    for piece, is_kept in pieces:
        if not is_kept:
            piece = _SPACES.sub(" ", piece)  # noqa: PLW2901
            if is_line_start:
                piece = piece.lstrip(" ")  # noqa: PLW2901
        if piece:
            parts.append(piece)
            is_line_start = piece.endswith((" ", "\n"))
    return _MANY_NEWLINES.sub("\n\n", _BEFORE_NEWLINE.sub("\n", "".join(parts))).strip()
