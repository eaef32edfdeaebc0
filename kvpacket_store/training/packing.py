"""A sample as packed rows: ``[preamble][header|segment|trailer]…[question + answer]…``.

Preamble and packets see themselves alone; a question's rows see all of them and their own past.
Questions stand behind each other in the packing and at the same positions, none sees another: so
the packets, which are most of the work, run once for all questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    chunks = [sample.preamble, *((*header, *segment, *trailer) for segment in sample.segments)]
    asked = [
        (*question, *answer[:-1])
        for question, answer in zip(sample.questions, answers, strict=True)
    ]
    ids = [i for chunk in (*chunks, *asked) for i in chunk]
    chunk_of = [number for number, chunk in enumerate((*chunks, *asked)) for _ in chunk]
    context = sum(map(len, chunks))
    positions = [*range(context), *(context + i for rows in asked for i in range(len(rows)))]
    wanted: list[int] = []
    end = context
    for rows, answer in zip(asked, answers, strict=True):
        end += len(rows)
        wanted += range(end - len(answer), end)
    return Packing(
        torch.tensor(ids, device=device),
        PackedRows(
            torch.tensor(positions, device=device),
            _visible(torch.tensor(chunk_of, device=device), len(chunks)),
            torch.tensor(wanted, device=device),
        ),
    )


def _visible(chunk_of: torch.Tensor, context_chunks: int) -> torch.Tensor:
    """Return bool ``[n, n]``: a row sees its own chunk's past, a question's row all context."""
    count = len(chunk_of)
    past = torch.ones((count, count), dtype=torch.bool, device=chunk_of.device).tril()
    is_context = chunk_of < context_chunks
    own = chunk_of[:, None] == chunk_of[None]
    return past & (own | (~is_context[:, None] & is_context[None]))
