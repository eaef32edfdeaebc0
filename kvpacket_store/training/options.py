"""What a training run is asked for, and which of it may change when it is resumed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kvpacket_store.errors import UsageError

__all__ = ["TrainOptions"]

# Everything else decides what the samples, the answers or the soft tokens are.
_MAY_CHANGE = frozenset({"learning_rate", "steps", "minutes", "patience", "max_kept_bytes"})
_HEADERS = ("preamble", "soft")
_AT_LEAST_ONE = ("steps", "batch", "samples", "validation_samples", "validate_every", "patience")


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """A training run in numbers.

    Parameters
    ----------
    header : str
        What training starts from. ``"preamble"``: the header is the prompt's preamble, which is
        left behind, and there is no trailer. ``"soft"``: random soft tokens before and after each
        segment, which stay (KV Packet, arXiv:2604.13226).
    num_tokens : int
        Soft tokens of a ``"soft"`` header, and as many of its trailer.
    steps, batch : int
        Optimiser steps, and samples a step.
    samples, validation_samples : int
        How many different samples there are; steps go through the first again and again.
    questions : int
        Asked of each sample's packets, in one forward.
    max_packets : int
        Packets a sample has 1 to so many.
    sample_tokens : int
        The most tokens of a sample: preamble, packets, questions and answers. A header that is left
        behind comes on top.
    answer_tokens : int
        The most tokens of a teacher's answer.
    top_k : int
        Of the teacher's probabilities, how many are kept; the rest is one more bin.
    kl_weight, ce_weight : float
        Of the KL divergence and of the cross-entropy in the loss.
    learning_rate : float
        At the first step; it falls linearly to 0.
    validate_every, patience : int
        Steps between two looks at the held-out KL, and how many without improvement end the run.
    minutes : float, optional
        Ends the run, with the learning rate at 0 by then. Such a run goes by the clock, so that
        it cannot be repeated bit for bit.
    seed : int
        Decides samples, order and first soft tokens.
    max_kept_bytes : int
        Layers are run again on the way back where keeping their rows would take more.

    Raises
    ------
    UsageError
        A number that cannot be; names it.

    Examples
    --------
    >>> TrainOptions(steps=0)
    Traceback (most recent call last):
    ...
    kvpacket_store.errors.UsageError: steps is 0; 1 is the least
    """

    header: str = "preamble"
    num_tokens: int = 8
    steps: int = 100
    batch: int = 8
    samples: int = 256
    validation_samples: int = 16
    questions: int = 4
    max_packets: int = 8
    sample_tokens: int = 2000
    answer_tokens: int = 32
    top_k: int = 64
    kl_weight: float = 1.0
    ce_weight: float = 0.0
    learning_rate: float = 3e-3
    validate_every: int = 10
    patience: int = 5
    minutes: float | None = None
    seed: int = 0
    max_kept_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        positive = (*_AT_LEAST_ONE, "num_tokens", "questions", "max_packets", "answer_tokens")
        for name in (*positive, "top_k"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; 1 is the least")
        if self.header not in _HEADERS:
            raise UsageError(f"header is {self.header!r}; take one of {', '.join(_HEADERS)}")
        if self.sample_tokens < 128:
            raise UsageError(f"sample_tokens is {self.sample_tokens}; 128 is the least")
        if min(self.kl_weight, self.ce_weight) < 0 or self.kl_weight + self.ce_weight <= 0:
            raise UsageError("kl_weight and ce_weight must not be negative, nor both 0")
        if not 0 < self.learning_rate < 1:
            raise UsageError(f"learning_rate is {self.learning_rate}; it lies between 0 and 1")
        if self.minutes is not None and self.minutes <= 0:
            raise UsageError(f"minutes is {self.minutes}; name a time, or none")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    def lasting(self) -> dict[str, Any]:
        """Return what must be the same when a run is resumed."""
        return {name: value for name, value in asdict(self).items() if name not in _MAY_CHANGE}
