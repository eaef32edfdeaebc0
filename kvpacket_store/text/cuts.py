"""Where a document may be cut: a ladder of rungs, the best places first.

A rung maps a span to the offsets inside it where that rung would cut. What a rung says about a
place depends on the text before it, never on how long the text behind it is: so a document that
grows keeps its earlier segments.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from kvpacket_store.text.definitions import code_blocks, python_definitions
from kvpacket_store.text.sentences import sentence_ends

__all__ = ["CHARACTERS", "WORDS", "Rung", "cut_ladder", "is_code"]

WORDS, CHARACTERS = 100, 101  # levels; those of structure are below
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n(?:[^\S\n]*\n)*")
_LINE = re.compile(r"\n")
_SPACE = re.compile(r"\s")
_FINER = 8


@dataclass(frozen=True, slots=True)
class Rung:
    """One kind of place to cut at.

    Parameters
    ----------
    level : int
        Lower is better. Rungs of one level cut equally well, only finer.
    cuts : callable
        ``(start, end)`` to ascending offsets, ``start < offset < end``.
    """

    level: int
    cuts: Callable[[int, int], Iterable[int]]


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
        character. Places that are much closer to each other than this count as one.
    """
    places: list[Callable[[int, int], Iterable[int]]] = []
    if media_type == "text/markdown":
        places += _markdown_places(text)
    elif media_type == "text/x-python":
        places += [partial(_between, offsets) for offsets in python_definitions(text)]
    elif is_code(media_type):
        places.append(partial(_between, code_blocks(text)))
    places.append(partial(_matches, _PARAGRAPH, text))
    if not is_code(media_type):
        places.append(partial(sentence_ends, text))
    places.append(partial(_matches, _LINE, text))
    min_chars = max(stride_chars // _FINER, 1)
    rungs = [Rung(level, partial(_apart, place, min_chars)) for level, place in enumerate(places)]
    for level, runs in (WORDS, _word_runs), (CHARACTERS, _character_runs):
        rungs += [Rung(level, partial(runs, text, stride)) for stride in _strides(stride_chars)]
    return rungs


def _strides(stride_chars: int) -> list[int]:
    strides = []
    while stride_chars > 1:
        strides.append(stride_chars)
        stride_chars //= _FINER
    return [*strides, 1]


def _markdown_places(text: str) -> list[Callable[[int, int], Iterable[int]]]:
    from kvpacket_store.text.markdown import markdown_outline

    outline = markdown_outline(text)
    return [partial(_between, offsets) for offsets in (*outline.headings, outline.blocks)]


def _apart(
    place: Callable[[int, int], Iterable[int]], min_chars: int, start: int, end: int
) -> Iterator[int]:
    """Yield the cuts that leave at least ``min_chars`` before them.

    A heading stays with what follows it, and a million lines of one digit are not a million pieces.
    """
    for cut in place(start, end):
        if cut - start >= min_chars and cut < end:
            yield cut
            start = cut


def _between(offsets: Sequence[int], start: int, end: int) -> Iterator[int]:
    for index in range(bisect_right(offsets, start), len(offsets)):
        if offsets[index] >= end:
            return
        yield offsets[index]


def _matches(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[int]:
    return (match.end() for match in pattern.finditer(text, start, end))


def _word_runs(text: str, stride_chars: int, start: int, end: int) -> Iterator[int]:
    """Cut before the last space of each stride; a longer word stays whole."""
    while end - start > stride_chars:
        limit = start + stride_chars
        cut = max(text.rfind(space, start + 1, limit + 1) for space in " \n\t\u3000")
        if cut < 0:
            space_behind = _SPACE.search(text, limit, end)
            if not space_behind:
                return
            cut = space_behind.start()
        start = cut
        yield cut


def _character_runs(_text: str, stride_chars: int, start: int, end: int) -> Iterator[int]:
    return iter(range(start + stride_chars, end, stride_chars))
