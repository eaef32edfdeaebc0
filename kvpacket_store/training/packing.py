"""A sample as packed rows: ``[preamble][header|segment|trailer]…[question + answer]…``.

Preamble and packets see themselves alone; a question's rows see all of them and their own past.
Questions stand behind each other in the packing and at the same positions, none sees another: so
the packets, which are most of the work, run once for all questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from kvpacket_store.models import PackedRows
from kvpacket_store.training.samples import Sample
from kvpacket_store.types import TokenIds

__all__ = ["Packing", "pack"]


@dataclass(frozen=True, slots=True)
class Packing:
    """Packed rows and what stands in them.

    Parameters
    ----------
    row_ids : int64 ``[n]``
        Token ids; where there is a soft token, -(1 + its number) in header + trailer.
    rows : PackedRows
        Positions, mask, and the rows that predict answer tokens, question by question.
    """

    row_ids: torch.Tensor
    rows: PackedRows


def pack(
    sample: Sample,
    answers: Sequence[TokenIds],
    *,
    header_tokens: int,
    trailer_tokens: int,
    header_stays: bool = True,
    device: torch.device | None = None,
) -> Packing:
    """Lay out a sample with the teacher's answers.

    Parameters
    ----------
    sample : Sample
        Preamble, segments and questions.
    answers : sequence of token ids
        One a question; the last token of each is predicted and not read.
    header_tokens, trailer_tokens : int
        Soft tokens around each segment.
    header_stays : bool
        False: no question sees a header, and it takes no position of its own.

    Examples
    --------
    >>> sample = Sample((1,), ((2, 3),), ((4,), (5,)), ("", ""))
    >>> packing = pack(sample, [(6, 7), (8,)], header_tokens=1, trailer_tokens=1)
    >>> packing.row_ids.tolist()
    [1, -1, 2, 3, -2, 4, 6, 5]
    >>> packing.rows.positions.tolist(), packing.rows.logit_rows.tolist()
    ([0, 1, 2, 3, 4, 5, 6, 5], [5, 6, 7])
    """
    header = tuple(-1 - i for i in range(header_tokens))
    trailer = tuple(-1 - header_tokens - i for i in range(trailer_tokens))
    laid = _Rows()
    laid.add(sample.preamble, seen=True)
    for segment in sample.segments:
        laid.next_chunk()
        first = laid.position if header_stays else laid.position - header_tokens
        laid.add(header, seen=header_stays, first=first)
        laid.add((*segment, *trailer), seen=True)
    context, wanted = laid.position, list[int]()
    for question, answer in zip(sample.questions, answers, strict=True):
        laid.next_chunk(context)
        laid.add((*question, *answer[:-1]), seen=False)
        wanted += range(len(laid.ids) - len(answer), len(laid.ids))
    visible = laid.visible(first_asking=len(sample.segments) + 1, device=device)
    return Packing(
        torch.tensor(laid.ids, device=device),
        PackedRows(
            torch.tensor(laid.positions, device=device),
            visible,
            torch.tensor(wanted, dtype=torch.long, device=device),
        ),
    )


@dataclass(slots=True)
class _Rows:
    """Rows so far: token, position, chunk, and whether questions see it."""

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)
    seen: list[bool] = field(default_factory=list)
    chunk: int = 0
    position: int = 0

    def next_chunk(self, position: int | None = None) -> None:
        """Begin rows that see none of those before; at ``position``, else where these end."""
        self.chunk += 1
        self.position = self.position if position is None else position

    def add(self, ids: Sequence[int], *, seen: bool, first: int | None = None) -> None:
        """Add rows from position ``first``, else where the last ones end."""
        first = self.position if first is None else first
        self.position = first + len(ids)
        self.ids += ids
        self.positions += range(first, self.position)
        self.chunks += [self.chunk] * len(ids)
        self.seen += [seen] * len(ids)

    def visible(self, *, first_asking: int, device: torch.device | None) -> torch.Tensor:
        """Return bool ``[n, n]``: a row sees its own chunk's past, a question's what is seen."""
        chunks = torch.tensor(self.chunks, device=device)
        past = torch.ones((len(chunks), len(chunks)), dtype=torch.bool, device=device).tril()
        asks, seen = chunks >= first_asking, torch.tensor(self.seen, device=device)
        return past & ((chunks[:, None] == chunks[None]) | (asks[:, None] & seen[None]))
