"""Where the question and the answer look: attention mass on sinks, soft tokens and text, by layer.

A packet that was prefilled alone has a sink of its own at its first tokens; several of them draw
attention that a joint prefill leaves on the preamble. That artifact is what mending methods and
adapters are about, and it can be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kvpacket_store.models import AttentionCall, AttentionRule, Model, attending
from kvpacket_store.quality.ape import ContextAttention
from kvpacket_store.quality.arm import Start
from kvpacket_store.quality.packets import Span

__all__ = ["KINDS", "attention_mass", "kinds_of"]

KINDS = ("preamble", "header", "start", "body", "trailer", "question")
"""``start`` are the first tokens of each segment: where a sink is that was prefilled alone."""
_START_TOKENS = 4


def kinds_of(spans: Sequence[Span]) -> torch.Tensor:
    """Return the number of each slot's kind in ``KINDS``, int64 ``[T]``.

    Examples
    --------
    >>> kinds_of([Span("preamble", 0, 2), Span("body", 2, 7), Span("question", 7, 8)]).tolist()
    [0, 0, 2, 2, 2, 2, 3, 5]
    """
    found = torch.zeros(spans[-1].end, dtype=torch.long)
    for span in spans:
        found[span.start : span.end] = KINDS.index(span.kind)
        if span.kind == "body":
            found[span.start : min(span.start + _START_TOKENS, span.end)] = KINDS.index("start")
    return found


@torch.inference_mode()
def attention_mass(model: Model, start: Start, answer: Sequence[int]) -> dict[str, Any]:
    """Return how a prompt's last rows share their attention out.

    Parameters
    ----------
    start : Start
        An arm.
    answer : sequence of int
        Run behind the prompt; the rows that are looked at are the question's and these.

    Returns
    -------
    dict
        ``mass``: for each layer, the share of each of ``KINDS``, mean over heads and rows;
        ``entropy``: for each layer, mean nats of a row's attention. A row sums to 1; slots behind
        the question count as ``question``.
    """
    ready = start()
    question = next(span for span in ready.spans if span.kind == "question")
    rows = question.end - question.start + len(answer)
    room = torch.full((len(answer),), KINDS.index("question"))
    watch = _Watch(rows, torch.cat([kinds_of(ready.spans), room]), ready.rule)
    # rows before the question run first, so that all rows that are watched are in one forward
    early = len(ready.input_ids) - (question.end - question.start)
    if early:
        with attending(ready.rule):
            model.forward(ready.input_ids[:early], ready.cache)
    with attending(watch):
        model.forward((*ready.input_ids[early:], *answer), ready.cache)
    return {"mass": watch.mass, "entropy": watch.entropy}


class _Watch:
    """A rule that attends as another does, and sums up where to."""

    def __init__(self, rows: int, kinds: torch.Tensor, inner: AttentionRule | None) -> None:
        self._rows, self._kinds, self._inner = rows, kinds, inner
        self.mass: list[list[float]] = []
        self.entropy: list[float] = []

    def __call__(self, call: AttentionCall) -> torch.Tensor:
        """See `AttentionRule`."""
        weights = _weights(call, self._inner)
        shares = torch.zeros(len(KINDS)).index_add(
            0, self._kinds, weights.mean(dim=(0, 1, 2, 3)).cpu()
        )
        logs = weights.clamp(min=1e-30).log()
        self.mass.append([float(share) for share in shares])
        self.entropy.append(float(-(weights * logs).sum(-1).mean()))
        value = call.value.float()[:, :, None]
        mixed = (weights @ value).flatten(1, 2)
        return mixed.to(call.query.dtype)


def _weights(call: AttentionCall, inner: AttentionRule | None) -> torch.Tensor:
    """Return the weights ``[B, H, G, Q, T]`` by which a rule mixes values."""
    if isinstance(inner, ContextAttention):
        return inner.weights(call)
    if inner is not None:
        raise TypeError("only APE's rule and the slots' own are known here")
    return ContextAttention(0, 0, 1.0, 1.0).weights(call)
