"""How good is an answer? Distances to the full recompute, and to the gold answers."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import torch

__all__ = ["answer_nll", "exact_match", "f1_score", "mean_kl", "overlap", "repetition"]


def mean_kl(teacher: torch.Tensor, student: torch.Tensor) -> float:
    """Return KL(teacher ‖ student) in nats a token, from logits ``[n, vocab]``.

    Examples
    --------
    >>> logits = torch.tensor([[1.0, 2.0]])
    >>> mean_kl(logits, logits)
    0.0
    """
    p = torch.log_softmax(teacher.float(), -1)
    q = torch.log_softmax(student.float(), -1)
    return float((p.exp() * (p - q)).sum(-1).mean())


def answer_nll(logits: torch.Tensor, token_ids: list[int]) -> float:
    """Return the negative log-likelihood of ``token_ids`` in nats a token."""
    logp = torch.log_softmax(logits.float(), -1)
    picked = logp.gather(1, torch.tensor(token_ids, device=logits.device)[:, None])
    return float(-picked.mean())


def _normalised(text: str) -> list[str]:
    """Lower-case, without punctuation and articles: the normalisation of SQuAD."""
    plain = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def f1_score(answer: str, golds: list[str]) -> float:
    """Return the best token F1 over the gold answers (SQuAD normalisation).

    Examples
    --------
    >>> f1_score("The cat sat", ["a cat", "dog"])
    0.6666666666666666
    """
    return max((_f1(_normalised(answer), _normalised(gold)) for gold in golds), default=0.0)


def _f1(found: list[str], gold: list[str]) -> float:
    if not found or not gold:
        return float(found == gold)
    common = sum((Counter(found) & Counter(gold)).values())
    return 2 * common / (len(found) + len(gold))


def overlap(answer: str, golds: list[str]) -> tuple[int, int, int]:
    """Return tokens in common with the nearest gold answer, of the answer, of that gold answer.

    Summed over a corpus they give its micro-F1: 2 · common / (found + gold).

    Examples
    --------
    >>> overlap("The cat sat", ["a cat", "dog"])
    (1, 2, 1)
    """
    found = _normalised(answer)
    nearest = max((_normalised(gold) for gold in golds), key=lambda gold: _f1(found, gold))
    return sum((Counter(found) & Counter(nearest)).values()), len(found), len(nearest)


def exact_match(answer: str, golds: list[str]) -> float:
    """Return 1 where the answer is one of the gold answers, after normalisation.

    Examples
    --------
    >>> exact_match("The Rhine.", ["Rhine"])
    1.0
    """
    return float(any(_normalised(answer) == _normalised(gold) for gold in golds))


def repetition(token_ids: Sequence[int], length: int = 4) -> float:
    """Return the share of runs of ``length`` tokens that occurred earlier in the same text.

    Drafts on looping text are accepted whatever they are made on, so a figure without this says
    little.

    Examples
    --------
    >>> repetition([1, 2, 3, 4, 5]), repetition([7] * 11)
    (0.0, 0.875)
    """
    runs = [tuple(token_ids[i : i + length]) for i in range(len(token_ids) - length + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0
