"""Document → segments: spans of at most ``max_tokens`` tokens, each tokenized alone.

Pieces of the document are counted once and taken from left to right as long as they fit. Where the
next one does not fit and the segment is less than half full, that piece is split at the next finer
rung of ``cuts``; else the segment ends there. So a cut is at the best place that leaves no segment
half empty, and the time is linear in the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvpacket_store.errors import DocumentError, ModelError, UsageError
from kvpacket_store.text.cuts import Rung, cut_ladder, is_code
from kvpacket_store.text.plain import replace_surrogates
from kvpacket_store.text.tokenizer import Tokenizer
from kvpacket_store.types import Document, Segment

__all__ = ["MIN_MAX_TOKENS", "segment_document"]

# One character of four byte tokens, a newline, a quarter of it for the title, and some room.
MIN_MAX_TOKENS = 16
_GOOD_SHARE = 1 / 2
_FULL_SHARE = 7 / 8
# A piece with more characters a token than this is split before it is counted, so that no single
# call to the tokenizer gets a text that could fill many segments.
_MAX_TOKEN_CHARS = 16


def segment_document(
    document: Document, tokenizer: Tokenizer, max_tokens: int = 512
) -> list[Segment]:
    """Cut a document into segments.

    Parameters
    ----------
    document : Document
        ``metadata["media_type"]`` chooses where it is cut, ``metadata["title"]`` is put before
        every segment, cut off where it would take more than a quarter of one.
    tokenizer : Tokenizer
        The model's.
    max_tokens : int
        The most tokens of a segment, title and closing newline included; 16 or more.

    Returns
    -------
    list of Segment
        In order. Their spans tile the text but for the whitespace between them. A document that
        fits (with at most 16 characters a token, which is rarely exceeded) is one segment.

    Raises
    ------
    UsageError
        If ``max_tokens`` is below 16.
    DocumentError
        If the document has no text or its metadata cannot be used.
    ModelError
        If the tokenizer turns text into control tokens.
    """
    if max_tokens < MIN_MAX_TOKENS:
        raise UsageError(f"segments of {max_tokens} tokens are too short; ask for 16 or more")
    segments = list(_Segmenter(document, tokenizer, max_tokens).segments())
    if not segments:
        raise DocumentError(document.id, "is empty; leave it out or give it text")
    return segments


def _ends_well(filled: float, next_piece: _Piece, parts: list[_Piece]) -> bool:
    """Tell whether a segment may end before ``next_piece``, which does not fit.

    Half full is enough where filling it further would cut at a worse place; where that would only
    be another word or another character, it is filled.
    """
    is_finest = not parts or parts[-1].level > next_piece.level
    return not parts or filled >= (_GOOD_SHARE if is_finest else _FULL_SHARE)


@dataclass(slots=True)
class _Piece:
    """A span; ``level`` says how good a cut its start is, ``rung`` is the first to split it."""

    start: int
    end: int
    level: int = 0
    rung: int = 0
    num_tokens: int | None = None


class _Segmenter:
    """One document on its way into segments."""

    def __init__(self, document: Document, tokenizer: Tokenizer, max_tokens: int) -> None:
        self._id = document.id
        self._text = replace_surrogates(document.text)
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._media_type = _string(document, "media_type").partition(";")[0].strip().lower()
        self._keeps_indent = is_code(self._media_type) or self._media_type == "text/markdown"
        self._title_line = self._fitting_title_line(_string(document, "title"))
        num_fixed = self._count(self._title_line) + self._count("\n")
        self._budget = max_tokens - num_fixed
        self._rungs: list[Rung] = []  # laid only for a document that has to be cut

    def segments(self) -> Iterator[Segment]:
        """Yield the segments in order."""
        whole = _Piece(0, len(self._text))
        if whole.end <= self._max_tokens * _MAX_TOKEN_CHARS:
            segment = self._segment(0, whole.end)
            if segment is None or len(segment.token_ids) <= self._max_tokens:
                yield from [segment] if segment else []
                return
        self._rungs = cut_ladder(self._text, self._media_type, self._max_tokens)
        stack = [whole]
        while stack:
            segment = self._next_segment(stack)
            if segment:
                yield segment

    def _next_segment(self, stack: list[_Piece]) -> Segment | None:
        """Take the next segment from the stack, whose top is the next piece of the text."""
        budget = self._budget
        while True:
            taken = self._fill(stack, budget)
            segment = self._segment(taken[0].start, taken[-1].end)
            if segment is None or len(segment.token_ids) <= self._max_tokens:
                return segment
            # Together the pieces have more tokens than each alone: rare, and by few.
            stack.extend(reversed(taken))
            budget -= len(segment.token_ids) - self._max_tokens

    def _fill(self, stack: list[_Piece], budget: int) -> list[_Piece]:
        taken: list[_Piece] = []
        total = 0
        while stack:
            num_tokens = self._piece_tokens(stack[-1])
            if total + num_tokens <= budget:
                taken.append(stack.pop())
                total += num_tokens
                continue
            parts = self._split(stack[-1])
            if total and _ends_well(total / budget, stack[-1], parts):
                break
            if not parts:
                reason = f"has a character that does not fit into {self._max_tokens} tokens"
                raise DocumentError(self._id, f"{reason}; ask for longer segments")
            stack[-1:] = reversed(parts)
        return taken

    def _piece_tokens(self, piece: _Piece) -> int:
        """Count a piece's tokens, once; one that is far too long counts as just too long."""
        if piece.num_tokens is None:
            is_far_too_long = piece.end - piece.start > self._max_tokens * _MAX_TOKEN_CHARS
            span = self._text[piece.start : piece.end]
            piece.num_tokens = self._max_tokens + 1 if is_far_too_long else self._count(span)
        return piece.num_tokens

    def _split(self, piece: _Piece) -> list[_Piece]:
        """Split at the first rung that cuts the piece; empty where none does."""
        for index in range(piece.rung, len(self._rungs)):
            rung = self._rungs[index]
            cuts = [*rung.cuts(piece.start, piece.end)]
            if cuts:
                ends = [*cuts[1:], piece.end]
                first = _Piece(piece.start, cuts[0], piece.level, index + 1)
                rest = zip(cuts, ends, strict=True)
                return [first, *(_Piece(start, end, rung.level, index + 1) for start, end in rest)]
        return []

    def _segment(self, start: int, end: int) -> Segment | None:
        """Tokenize a span without the whitespace around it; ``None`` where no token is left."""
        start, end = self._trimmed(start, end)
        text = f"{self._title_line}{self._text[start:end]}\n"
        token_ids = tuple(self._tokenizer.tokenize(text)) if start < end else ()
        if not self._tokenizer.special_ids.isdisjoint(token_ids):
            raise ModelError(
                "the tokenizer made control tokens of a document's text; do not use it"
            )
        return Segment(token_ids, text, start, end) if token_ids else None

    def _trimmed(self, start: int, end: int) -> tuple[int, int]:
        span = self._text[start:end]
        first = start + len(span) - len(span.lstrip())
        if self._keeps_indent:
            line_start = self._text.rfind("\n", max(start - 1, 0), first) + 1
            first = line_start if line_start >= start else first
        return min(first, end), start + len(span.rstrip())

    def _fitting_title_line(self, title: str) -> str:
        """Return the title as a line, cut off where it would take over a quarter of a segment."""
        max_title_tokens = self._max_tokens // 4
        title = " ".join(replace_surrogates(title).split())[: self._max_tokens * _MAX_TOKEN_CHARS]
        if self._count(f"{title}\n") > max_title_tokens:
            fits, too_long = 0, len(title)
            while too_long - fits > 1:
                middle = (fits + too_long) // 2
                if self._count(f"{title[:middle]}\n") <= max_title_tokens:
                    fits = middle
                else:
                    too_long = middle
            title = title[:fits].rstrip()
        return f"{title}\n" if title else ""

    def _count(self, text: str) -> int:
        return len(self._tokenizer.tokenize(text)) if text else 0


def _string(document: Document, name: str) -> str:
    value = document.metadata.get(name) or ""
    if not isinstance(value, str):
        raise DocumentError(document.id, f"has a {name} that is no string; correct its metadata")
    return value
