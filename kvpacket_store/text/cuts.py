"""Where a document may be cut: a ladder of rungs, the best places first.

A rung maps a span to the offsets strictly inside it where that rung would cut. What a rung says
about a place depends on the text before it, never on how long the text behind it is: so a document
that grows keeps its earlier segments.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from kvpacket_store.text.definitions import code_blocks, python_definitions
from kvpacket_store.text.sentences import sentence_ends

__all__ = ["Rung", "cut_ladder", "is_code"]

Rung: TypeAlias = Callable[[int, int], Sequence[int]]

_PARAGRAPH = re.compile(r"\n[^\S\n]*\n(?:[^\S\n]*\n)*")
_LINE = re.compile(r"\n")
_STRIDE_FACTOR = 8


def is_code(media_type: str) -> bool:
    """Tell whether ``media_type`` is that of source code."""
    return media_type.startswith("text/x-") and media_type not in ("text/x-rst", "text/x-tex")


def cut_ladder(text: str, media_type: str, stride_chars: int) -> list[Rung]:
    """Return the rungs for a text.

    Parameters
    ----------
    text : str
        The whole document.
    media_type : str
        Markdown is cut at headings and blocks first, source code at definitions and never at
        sentences; everything else at paragraphs, sentences, lines, words, characters.
    stride_chars : int
        About how long the longest run of words is to be; each later rung is finer, down to one
        character.
    """
    rungs: list[Rung] = []
    if media_type == "text/markdown":
        rungs += _markdown_rungs(text)
    elif media_type == "text/x-python":
        rungs += [partial(_between, offsets) for offsets in python_definitions(text)]
    elif is_code(media_type):
        rungs.append(partial(_between, code_blocks(text)))
    rungs.append(partial(_matches, _PARAGRAPH, text))
    if not is_code(media_type):
        rungs.append(partial(_sentences, text))
    rungs.append(partial(_matches, _LINE, text))
    while stride_chars > 1:
        rungs.append(partial(_runs, text, stride_chars))
        stride_chars //= _STRIDE_FACTOR
    rungs.append(partial(_runs, text, 1))
    return rungs


def _markdown_rungs(text: str) -> list[Rung]:
    from kvpacket_store.text.markdown import markdown_outline

    outline = markdown_outline(text)
    return [partial(_between, offsets) for offsets in (*outline.headings, outline.blocks)]


def _between(offsets: Sequence[int], start: int, end: int) -> Sequence[int]:
    return offsets[bisect_right(offsets, start) : bisect_left(offsets, end)]


def _matches(pattern: re.Pattern[str], text: str, start: int, end: int) -> Sequence[int]:
    ends = [match.end() for match in pattern.finditer(text, start, end)]
    return ends[:-1] if ends and ends[-1] == end else ends


def _sentences(text: str, start: int, end: int) -> Sequence[int]:
    return [offset for offset in sentence_ends(text, start, end) if offset < end]


def _runs(text: str, stride_chars: int, start: int, end: int) -> Sequence[int]:
    """Cut before the last space of each stride, or inside a word that is longer than it."""
    offsets = []
    while end - start > stride_chars:
        limit = start + stride_chars
        space = max(text.rfind(space, start + 1, limit + 1) for space in " \n\t\u3000")
        start = space if space > start else limit
        offsets.append(start)
    return offsets
