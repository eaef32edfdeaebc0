"""Fit a correction: what K and V behind other documents have beside those of a packet alone.

Least squares with a little ridge, in closed form: one pass over some prompts, no gradient. Then a
strength is chosen by the KL of answers on held-out samples, since a fit to K and V overdoes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch

from kvpacket_store.adapters import DISTANCE_EDGES, REPEAT_KINDS, Adapter, Correction
from kvpacket_store.assemble import Before, Corrector, Predecessors, place
from kvpacket_store.models import Model, SlotCache, bits_to_tensor
from kvpacket_store.prefill import BodyKV, Prefiller
from kvpacket_store.training.loss import top_k_kl
from kvpacket_store.training.samples import Sample
from kvpacket_store.training.teacher import Answer, Teacher

__all__ = ["STRENGTHS", "corrected_kl", "fit_correction"]

STRENGTHS = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)
_HALF_TOKENS = 150  # of 50, 150 and 400 tried
_RIDGE = 0.03  # of the mean variance; maps of repeated rows have less to go by than that of all
_BUCKETS = len(DISTANCE_EDGES) + 1


class _Sums:
    """Normal equations ``x'x`` and ``x'y`` of each layer and head, K and V apart.

    ``x`` has a row and its bias for all, then both again for rows that repeat, and once more for
    those that repeat with the token before them: the penalty is on what these add.
    """

    def __init__(self, model: Model) -> None:
        layout = model.layout
        self._heads = (2, layout.num_layers, layout.num_kv_heads)
        self._dim = layout.head_dim
        width = layout.head_dim + _BUCKETS + (REPEAT_KINDS - 1) * (layout.head_dim + 1)
        self._xx = torch.zeros(*self._heads, width, width, dtype=torch.float64)
        self._xy = torch.zeros(*self._heads, width, layout.head_dim, dtype=torch.float64)
        self._edges = torch.tensor(DISTANCE_EDGES)

    def take(self, alone: torch.Tensor, joint: torch.Tensor, before: Before) -> None:
        """Count one packet in: ``[2, L, H, n, D]`` alone, and as the joint prefill has it."""
        bucket = torch.bucketize(torch.arange(alone.shape[3]), self._edges, right=True)
        parts = [alone, self._of_all(torch.nn.functional.one_hot(bucket, _BUCKETS).float())]
        repeats = torch.from_numpy(before.repeats)
        for kind in range(1, REPEAT_KINDS):
            does = (repeats >= kind).float()[:, None]
            parts += [does * alone, self._of_all(does)]
        weight = before.positions / (before.positions + _HALF_TOKENS)
        x = weight * torch.cat(parts, dim=-1)
        self._xx += (x.mT @ x).double()
        self._xy += (x.mT @ (joint - alone)).double()

    def solve(self) -> Correction:
        """Return the fit at full strength."""
        dim, first = self._dim, self._dim + _BUCKETS
        rows = self._xx[..., dim:first, dim:first].sum((-2, -1))  # weights squared, of all rows
        means = self._xx[..., dim:first, :dim].sum(-2)
        spread = self._xx.diagonal(dim1=-2, dim2=-1)[..., :dim] - means**2 / rows[..., None]
        ridge = _RIDGE * spread.mean(-1, keepdim=True).clamp_min(1e-6)
        penalty = ridge.expand(self._xx.shape[:-1]).clone()
        for start in (dim, *range(first + dim, penalty.shape[-1], dim + 1)):
            penalty[..., start : start + (_BUCKETS if start == dim else 1)] = 1e-6
        found = torch.linalg.solve(self._xx + torch.diag_embed(penalty), self._xy).float()
        maps, biases = [found[..., :dim, :]], [found[..., dim:first, :]]
        for start in range(first, found.shape[-2], dim + 1):
            maps.append(maps[-1] + found[..., start : start + dim, :])
            biases.append(biases[-1] + found[..., start + dim : start + dim + 1, :])
        return Correction(torch.stack(maps).numpy(), torch.stack(biases).numpy(), _HALF_TOKENS)

    def _of_all(self, columns: torch.Tensor) -> torch.Tensor:
        return columns.expand(*self._heads, *columns.shape)


def fit_correction(
    model: Model,
    adapter: Adapter,
    samples: Sequence[Sample],
    told: Callable[[float], None] = lambda share: None,
) -> Correction:
    """Return the correction, at full strength, that brings packets nearest to a joint prefill.

    Parameters
    ----------
    model : Model
        Whose K and V.
    adapter : Adapter
        What packets are prefilled behind.
    samples : sequence of Sample
        Their packets; questions are not needed. Some have two packets or more.
    told : callable
        The share that is done.
    """
    sums, prefiller = _Sums(model), Prefiller(model, adapter)
    soft = adapter.header_slots + adapter.trailer_tokens
    for number, sample in enumerate(samples):
        ids = (*sample.preamble, *(i for segment in sample.segments for i in segment))
        whole = torch.stack(model.capture(ids, model.new_cache(len(ids)))).float().cpu()
        start, predecessors = len(sample.preamble), Predecessors()
        for segment in sample.segments:
            end = start + len(segment)
            before = predecessors.then(segment, soft + len(segment))
            if before.positions:
                alone = _as_tensor(prefiller.segment(segment), prefiller)[:, :, :, : len(segment)]
                sums.take(alone, whole[:, :, :, start:end], before)
            start = end
        told((number + 1) / len(samples))
    return sums.solve()


def corrected_kl(
    model: Model,
    adapter: Adapter,
    samples: Sequence[Sample],
    teacher: Teacher,
    told: Callable[[float], None] = lambda share: None,
) -> dict[float, float]:
    """Return the KL to the teacher in nats a token, mean over questions, for each strength.

    0 is the adapter without its correction.
    """
    found: dict[float, list[float]] = {strength: [] for strength in STRENGTHS}
    correctors = [Corrector(_at_strength(adapter, strength), model) for strength in STRENGTHS]
    prefiller = Prefiller(model, adapter)
    for number, sample in enumerate(samples):
        answers = teacher.answers(sample)
        bodies = [prefiller.segment(segment) for segment in sample.segments]
        room = max(map(len, sample.questions)) + max(len(a.token_ids) for a in answers)
        for corrector, kls in zip(correctors, found.values(), strict=True):
            cache = _placed(prefiller, corrector, sample, bodies, room)
            kls += [
                _kl(model, cache, question, answer)
                for question, answer in zip(sample.questions, answers, strict=True)
            ]
        told((number + 1) / len(samples))
    return {strength: sum(kls) / len(kls) for strength, kls in found.items()}


def _at_strength(adapter: Adapter, strength: float) -> Adapter:
    correction = None
    if adapter.correction is not None and strength:
        correction = adapter.correction.scaled(strength)
    return dataclasses.replace(adapter, correction=correction)


def _placed(
    prefiller: Prefiller,
    corrector: Corrector,
    sample: Sample,
    bodies: Sequence[BodyKV],
    room: int,
) -> SlotCache:
    """Put a sample's packets into slots, with room for a question and its answer."""
    model, header = prefiller.model, prefiller.header()
    slots = sum(header.k.shape[2] + body.k.shape[2] for body in bodies)
    cache = model.new_cache(len(sample.preamble) + slots + room)
    model.forward(sample.preamble, cache)
    start, predecessors = cache.length, Predecessors()
    for segment, body in zip(sample.segments, bodies, strict=True):
        positions = header.k.shape[2] + body.k.shape[2]
        correct = corrector.behind(predecessors.then(segment, positions))
        for part, change in ((header, None), (body, correct)):
            place(
                model, cache, part.k, part.v,
                kv_dtype=prefiller.kv_dtype, start=start, correct=change,
            )  # fmt: skip
            start += part.k.shape[2]
    cache.set_length(start)
    return cache


def _kl(model: Model, cache: SlotCache, question: Sequence[int], answer: Answer) -> float:
    length, count = cache.length, len(answer.token_ids)
    ids = (*question, *answer.token_ids[:-1])
    logits = model.forward(ids, cache, keep_logits=count)
    cache.set_length(length)
    return float(top_k_kl(answer, logits).mean())


def _as_tensor(body: BodyKV, prefiller: Prefiller) -> torch.Tensor:
    """Return K and V as ``[2, L, H, n, D]``."""
    sides = [bits_to_tensor(side, prefiller.kv_dtype).float() for side in (body.k, body.v)]
    return torch.stack(sides)
