"""The student: the same model, which sees packets, and the soft tokens that it is given.

The trainer asks it for losses and parameters alone, so that something else can be learned in the
place of input embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from kvpacket_store.adapters import Adapter
from kvpacket_store.errors import AdapterError
from kvpacket_store.models import Model, packed_logits
from kvpacket_store.training.loss import cross_entropy, top_k_kl
from kvpacket_store.training.packing import pack
from kvpacket_store.training.samples import Sample
from kvpacket_store.training.teacher import Answer

__all__ = ["Learner", "SoftTokenStudent", "Weights"]


@dataclass(frozen=True, slots=True)
class Weights:
    """What the loss is made of."""

    kl: float
    ce: float


class Learner(Protocol):
    """What the trainer needs: something to learn, and how good it is on a sample."""

    @property
    def parameter(self) -> torch.nn.Parameter:
        """What is learned, fp32."""

    def loss(self, sample: Sample, answers: Sequence[Answer], weights: Weights) -> torch.Tensor:
        """Return the scalar loss, differentiable."""

    def kl(self, sample: Sample, answers: Sequence[Answer]) -> float:
        """Return the KL to the teacher in nats a token, mean over questions."""

    def adapter(self, name: str) -> Adapter:
        """Return what was learned."""


class SoftTokenStudent:
    """Learns header and trailer as input embeddings.

    Parameters
    ----------
    model : Model
        Frozen by the caller.
    adapter : Adapter
        Where learning starts.
    max_kept_bytes : int
        Layers are run again on the way back where keeping their rows would take more.

    Raises
    ------
    AdapterError
        The adapter's width is not the model's.
    """

    def __init__(self, model: Model, adapter: Adapter, *, max_kept_bytes: int = 4 << 30) -> None:
        width = int(model.embedding.weight.shape[1])
        if adapter.hidden_size != width:
            raise AdapterError(
                f"adapter {adapter.name!r} has hidden size {adapter.hidden_size}, "
                f"model {model.name!r} has {width}; start from an adapter of this model"
            )
        self._model = model
        self._header_tokens = adapter.header_tokens
        self._trailer_tokens = adapter.trailer_tokens
        self._header_stays = adapter.header_stays
        self._max_kept_bytes = max_kept_bytes
        both = torch.tensor(np.concatenate([adapter.header, adapter.trailer]), device=model.device)
        self.parameter = torch.nn.Parameter(both)

    def loss(self, sample: Sample, answers: Sequence[Answer], weights: Weights) -> torch.Tensor:
        """Return the loss: a mean over questions of the means over their answers' tokens."""
        total = torch.zeros((), device=self._model.device)
        for answer, logits in self._by_question(sample, answers):
            if weights.kl:
                total = total + weights.kl * top_k_kl(answer, logits).mean()
            if weights.ce:
                total = total + weights.ce * cross_entropy(answer, logits).mean()
        return total / len(answers)

    @torch.no_grad()
    def kl(self, sample: Sample, answers: Sequence[Answer]) -> float:
        """Return the KL to the teacher in nats a token, mean over questions."""
        found = [top_k_kl(a, logits).mean() for a, logits in self._by_question(sample, answers)]
        return float(torch.stack(found).mean())

    def adapter(self, name: str) -> Adapter:
        """Return header and trailer as they are now."""
        values = self.parameter.detach().cpu().numpy()
        cut = self._header_tokens
        return Adapter(name, values[:cut].copy(), values[cut:].copy(), self._header_stays)

    def logits(self, sample: Sample, answers: Sequence[Answer]) -> torch.Tensor:
        """Return the logits ``[sum of answer tokens, vocab]`` that predict the answers."""
        packing = pack(
            sample,
            [answer.token_ids for answer in answers],
            header_tokens=self._header_tokens,
            trailer_tokens=self._trailer_tokens,
            header_stays=self._header_stays,
            device=self._model.device,
        )
        recompute = torch.is_grad_enabled() and self._kept_bytes(packing.row_ids) > (
            self._max_kept_bytes
        )
        embedded = self._embed(packing.row_ids)
        return packed_logits(self._model, embedded, packing.rows, recompute=recompute)

    def _by_question(
        self, sample: Sample, answers: Sequence[Answer]
    ) -> list[tuple[Answer, torch.Tensor]]:
        logits = self.logits(sample, answers)
        parts = torch.split(logits, [len(answer.token_ids) for answer in answers])
        return list(zip(answers, parts, strict=True))

    def _embed(self, row_ids: torch.Tensor) -> torch.Tensor:
        """Return input embeddings ``[n, hidden]``; gradients lead to soft tokens alone.

        The embedding table is often the output head as well: it is read without a gradient.
        """
        with torch.no_grad():
            fixed: torch.Tensor = self._model.embedding(row_ids.clamp_min(0))
        soft = self.parameter.to(self._model.dtype)
        is_soft = row_ids < 0
        if not bool(is_soft.any()):
            return fixed
        chosen = soft[(-1 - row_ids).clamp_min(0)]
        return torch.where(is_soft[:, None], chosen, fixed)

    def _kept_bytes(self, row_ids: torch.Tensor) -> int:
        """Estimate what the way back would need if every layer's rows were kept."""
        config = self._model.config
        scalars = 12 * config.hidden_size + 4 * config.intermediate_size
        layers = self._model.layout.num_layers
        return int(len(row_ids) * layers * scalars * self._model.dtype.itemsize)
