"""How likely the tokens of an answer were to the model, whatever the sampler did with that."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["MOST_LOGPROBS", "TokenLogprob", "token_logprob"]

MOST_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token, and the likeliest ones in its place.

    Parameters
    ----------
    token_id : int
        The token.
    logprob : float
        Its natural logarithm of probability: of the logits as they are, before temperature,
        penalty and cut-offs.
    top : list of (int, float)
        The likeliest ids with theirs, the likeliest first.
    """

    token_id: int
    logprob: float
    top: list[tuple[int, float]]


def token_logprob(logits: torch.Tensor, token_id: int, num_top: int) -> TokenLogprob:
    """Return what logits ``[vocab]`` say of a token, and of the ``num_top`` likeliest.

    Examples
    --------
    >>> found = token_logprob(torch.tensor([0.0, 0.0]), 1, num_top=1)
    >>> round(found.logprob, 3), found.top[0][0]
    (-0.693, 0)
    """
    logprobs = torch.log_softmax(logits.double().cpu(), dim=-1)
    likeliest = torch.sort(logprobs, descending=True, stable=True).indices[:num_top].tolist()
    top = [(other, float(logprobs[other])) for other in likeliest]
    return TokenLogprob(token_id, float(logprobs[token_id]), top)
