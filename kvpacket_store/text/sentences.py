"""Sentence ends, by a small rule for scripts with and without spaces.

Segments are cut here only where a paragraph is too long, so a missed end costs little; what must
not happen is a cut after "Dr." or inside "3.14".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["sentence_ends", "sentence_spans"]

# Latin marks need a space behind them, the others do not. No pattern can match a run of marks from
# each of its characters again, so the time is linear.
_END = re.compile(
    r"[.!?…]['\"”’»)\]]{0,3}(?=\s)"
    r"|[。！？；｡؟۔।॥]+['\"”’」』）】》]{0,3}"
)
# fmt: off
_ABBREVIATIONS = frozenset([
    "al", "approx", "apr", "aug", "ave", "bros", "bzw", "ca", "capt", "cf", "co", "col", "corp",
    "dec", "dept", "dr", "ed", "eds", "eq", "etc", "feb", "fig", "figs", "gen", "gov", "hon", "inc",
    "jan", "jr", "jul", "jun", "lt", "ltd", "messrs", "mme", "mr", "mrs", "ms", "mt", "nos", "nov",
    "nr", "oct", "op", "p", "pp", "prof", "rev", "sen", "sep", "sept", "sgt", "sr", "st", "str",
    "vgl", "vol", "vols", "vs",
])
# fmt: on
_LOOK_BACK_CHARS = 16
_LOOK_AHEAD_CHARS = 8


def sentence_ends(text: str, start: int, end: int) -> Iterator[int]:
    """Yield the offset behind each sentence in ``text[start:end]``, before the space.

    Examples
    --------
    >>> list(sentence_ends("Dr. Tesla came. He left at 3.14 p.m. sharp. 好。是", 0, 50))
    [15, 43, 46]
    """
    for mark in _END.finditer(text, start, end):
        if text[mark.start()] != "." or not _is_inside_sentence(text, mark):
            yield mark.end()


def _is_inside_sentence(text: str, mark: re.Match[str]) -> bool:
    """Tell whether a full stop only abbreviates: an initial, a known word, or a lower-case sequel.

    It looks at a fixed stretch around the stop, so that changes elsewhere do not matter.
    """
    following = text[mark.end() : mark.end() + _LOOK_AHEAD_CHARS].lstrip()
    if following[:1].islower():
        return True
    before = text[max(mark.start() - _LOOK_BACK_CHARS, 0) : mark.start()].split()
    word = before[-1].lstrip("([\"'“‘«") if before else ""
    is_initial = len(word) == 1 and word.isupper() and word != "I"
    return is_initial or "." in word or word.lower() in _ABBREVIATIONS


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence, without the space around it.

    Examples
    --------
    >>> text = "Dr. Tesla came. He left. So"
    >>> [text[start:end] for start, end in sentence_spans(text)]
    ['Dr. Tesla came.', 'He left.', 'So']
    """
    spans, start = [], 0
    for end in [*sentence_ends(text, 0, len(text)), len(text)]:
        part = text[start:end]
        if part.strip():
            spans.append((end - len(part.lstrip()), start + len(part.rstrip())))
        start = end
    return spans
