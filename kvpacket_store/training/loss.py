"""How far the student's answer is from the teacher's, token by token."""

from __future__ import annotations

import torch

from kvpacket_store.training.teacher import Answer

__all__ = ["cross_entropy", "top_k_kl"]

# Below this a bin says nothing: its logarithm is made of rounding.
_LEAST_REST = 1e-6


def top_k_kl(answer: Answer, logits: torch.Tensor) -> torch.Tensor:
    """Return KL(teacher ‖ student) ``[n]`` in nats, over the kept tokens and one bin of the rest.

    Never more than the KL over the whole vocabulary (data processing inequality), and equal to it
    where all tokens are kept.

    Parameters
    ----------
    answer : Answer
        The teacher's k likeliest tokens.
    logits : ``[n, vocab]``
        The student's.

    Examples
    --------
    >>> logits = torch.tensor([[2.0, 1.0, 0.0]])
    >>> best = torch.log_softmax(logits, -1).topk(2)
    >>> float(top_k_kl(Answer((0,), best.indices, best.values), logits).abs() < 1e-6)
    1.0
    """
    logits = logits.float()
    total = torch.logsumexp(logits, -1)
    ids = answer.top_ids.to(logits.device)
    p_log = answer.top_logp.to(logits.device)
    p = p_log.exp()
    divergence = (p * (p_log - (logits.gather(1, ids) - total[:, None]))).sum(-1)
    if ids.shape[1] == logits.shape[1]:
        return divergence
    p_rest = 1 - p.sum(-1)
    others = logits.scatter(1, ids, -torch.inf)
    q_rest_log = torch.logsumexp(others, -1) - total
    rest = p_rest * (p_rest.clamp_min(_LEAST_REST).log() - q_rest_log)
    return divergence + torch.where(p_rest > _LEAST_REST, rest, 0.0)


def cross_entropy(answer: Answer, logits: torch.Tensor) -> torch.Tensor:
    """Return the student's −log probability ``[n]`` of the teacher's tokens, in nats."""
    wanted = torch.tensor(answer.token_ids, device=logits.device)
    return torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="none")
