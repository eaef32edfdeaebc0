"""Markdown: where headings and blocks begin, and what the first heading says.

The text itself stays as it is written: it is readable, and so are the segments cut from it.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = ["MarkdownOutline", "markdown_outline", "markdown_title"]

_FRONT_MATTER = re.compile(
    r"\A---[ \t]*\r?\n(?=[\w-]+[ \t]*:)(.*?\n)(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL
)
_FRONT_TITLE = re.compile(r"^title:[ \t]*(?P<quote>['\"]?)(.+?)(?P=quote)[ \t\r]*$", re.MULTILINE)
_NEWLINE = re.compile(r"\r\n?|\n")  # what the parser counts as a line end
_TITLE_CHARS = 65_536  # a first heading further down than this is no title


@dataclass(frozen=True, slots=True)
class MarkdownOutline:
    """Character offsets, ascending, of what begins at the start of a line.

    Parameters
    ----------
    headings : tuple of lists of int
        Headings of depth at most 1, at most 2, ... at most 6.
    blocks : list of int
        Paragraphs, lists, fences, tables: whatever stands by itself.
    """

    headings: tuple[list[int], ...]
    blocks: list[int]


def markdown_title(text: str) -> str | None:
    r"""Return the title in the front matter, else the first heading's text, else ``None``.

    Examples
    --------
    >>> markdown_title("intro\n\n## The *Normans*\n")
    'The Normans'
    """
    text = text[:_TITLE_CHARS]
    front_matter = _FRONT_MATTER.match(text)
    if front_matter:
        title = _FRONT_TITLE.search(front_matter[1])
        if title:
            return title[2].strip()
        text = text[front_matter.end() :]
    tokens = MarkdownIt("commonmark").parse(text)
    for heading, inline in itertools.pairwise(tokens):
        if heading.type == "heading_open":
            return _plain_inline(inline) or None
    return None


def markdown_outline(text: str) -> MarkdownOutline:
    r"""Find headings and top-level blocks; front matter and fenced code hold none.

    Examples
    --------
    >>> markdown_outline("# A\n\nb\n\n## C\n").headings[:2]
    ([0], [0, 8])
    """
    front_matter = _FRONT_MATTER.match(text)
    offset = front_matter.end() if front_matter else 0
    parser = MarkdownIt("commonmark")
    parser.disable(["inline", "text_join"])  # lines are enough: twice as fast
    tokens = parser.parse(text[offset:])
    starts = [0] + [newline.end() for newline in _NEWLINE.finditer(text[offset:])]
    headings: tuple[list[int], ...] = tuple([] for _ in range(6))
    blocks = []
    for token in tokens:
        if token.level or not token.map or token.nesting < 0:
            continue
        start = offset + starts[token.map[0]]
        blocks.append(start)
        if token.type == "heading_open":
            for rung in headings[int(token.tag[1]) - 1 :]:
                rung.append(start)
    return MarkdownOutline(headings, blocks)


def _plain_inline(inline: Token) -> str:
    """Return the text of a line of Markdown without its marks."""
    shown = ("text", "code_inline")
    parts = [
        token.content if token.type in shown else " "
        for token in inline.children or ()
        if token.type in (*shown, "softbreak", "hardbreak")
    ]
    return " ".join("".join(parts).split())
