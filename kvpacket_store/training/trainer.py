"""The loop: batches, steps, looks at what is held out, checkpoints.

A checkpoint is written after every step: it is small, and whatever ends the run costs one step.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from kvpacket_store.errors import AdapterError
from kvpacket_store.training.checkpoint import Checkpoint, save_checkpoint
from kvpacket_store.training.options import TrainOptions
from kvpacket_store.training.samples import Sample
from kvpacket_store.training.student import Learner, Weights
from kvpacket_store.training.teacher import Answer

__all__ = ["Progress", "Trainer"]

_BETAS, _EPSILON = (0.9, 0.999), 1e-8
AnswerSource = Callable[[Sample], list[Answer]]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is, for whoever watches it.

    ``share`` of the run is done; ``seconds_left`` is None before anything can be said. ``kl`` is
    the last held-out one, ``loss`` that of the last step.
    """

    stage: str
    step: int
    share: float
    loss: float | None
    kl: float | None
    seconds_left: float | None


class Trainer:
    """Trains a learner, from a checkpoint's state on.

    Parameters
    ----------
    learner : Learner
        Its parameter is set to the state's.
    teacher : callable
        A sample's answers.
    sample : callable
        The training sample of a number.
    held_out : sequence of Sample
        What the KL is looked at on.
    state : Checkpoint
        Where to go on; changed as training goes on.
    options : TrainOptions
        Steps, batch, learning rate, weights of the loss.
    """

    def __init__(
        self,
        learner: Learner,
        teacher: AnswerSource,
        sample: Callable[[int], Sample],
        held_out: Sequence[Sample],
        state: Checkpoint,
        options: TrainOptions,
    ) -> None:
        self._learner = learner
        self._teacher = teacher
        self._sample = sample
        self._held_out = held_out
        self.state = state
        self._options = options
        self._weights = Weights(options.kl_weight, options.ce_weight)
        self._optimizer = _optimizer(learner.parameter, state)

    def run(self, path: Path, watch: Callable[[Progress], None]) -> str:
        """Train to the end; return why it ended: ``steps``, ``minutes`` or ``patience``.

        Parameters
        ----------
        path : Path
            Of the checkpoint.
        watch : callable
            Told where the run is.

        Raises
        ------
        AdapterError
            The loss is no number; the checkpoint is that of the step before.
        StoreFullError
            A checkpoint cannot be written.
        """
        while (ended := self._end()) is None:
            began = time.monotonic()
            loss = self._step(watch)
            self.state.losses.append(loss)
            self.state.step += 1
            self._keep()
            self.state.seconds += time.monotonic() - began
            if self.state.step % self._options.validate_every == 0 or self._share() >= 1:
                self._look(watch)
            save_checkpoint(self.state, path)
            watch(self._progress("train", loss))
        return ended

    def held_out_kl(self, learner: Learner, told: Callable[[float], None]) -> float:
        """Return a learner's KL on the held-out samples, in nats a token."""
        found = []
        for number, sample in enumerate(self._held_out):
            found.append(learner.kl(sample, self._teacher(sample)))
            told((number + 1) / len(self._held_out))
        return sum(found) / len(found)

    def _look(self, watch: Callable[[Progress], None]) -> None:
        """Look at the held-out samples; keep what is learned if it is the best so far."""
        state, began = self.state, time.monotonic()
        kl = self.held_out_kl(self._learner, lambda _: watch(self._progress("validate", None)))
        state.seconds += time.monotonic() - began
        if not math.isfinite(kl):
            raise self._diverged(f"held-out KL after step {state.step} is {kl}", state.step - 1)
        if kl < min((look["kl"] for look in state.history), default=math.inf):
            state.best = state.parameter.clone()
        mean = sum(state.losses) / max(len(state.losses), 1)
        state.history.append(
            {"step": state.step, "loss": mean, "kl": kl, "seconds": round(state.seconds, 1)}
        )
        state.losses = []

    def _step(self, watch: Callable[[Progress], None]) -> float:
        """Take one optimiser step; return its loss."""
        self._optimizer.zero_grad()
        for group in self._optimizer.param_groups:
            group["lr"] = self._options.learning_rate * (1 - self._share())
        total = 0.0
        for number in self._batch():
            sample = self._sample(number)
            loss = self._learner.loss(sample, self._teacher(sample), self._weights)
            (loss / self._options.batch).backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach()) / self._options.batch
            watch(self._progress("train", self.state.losses[-1] if self.state.losses else None))
        gradient = self._learner.parameter.grad
        if not math.isfinite(total) or gradient is None or not bool(gradient.isfinite().all()):
            raise self._diverged(f"loss of step {self.state.step + 1} is {total}", self.state.step)
        self._optimizer.step()
        return total

    def _diverged(self, what: str, kept_step: int) -> AdapterError:
        return AdapterError(
            f"the {what}: training cannot go on. The checkpoint of step {kept_step} and the best "
            "adapter are kept; go on with --resume and a lower --learning-rate"
        )

    def _batch(self) -> Iterator[int]:
        """Yield the numbers of the step's samples: each pass goes through all, in another order."""
        options = self._options
        first = self.state.step * options.batch
        for at in range(first, first + options.batch):
            in_pass, index = divmod(at, options.samples)
            order = list(range(options.samples))
            shuffled = random.Random(f"{options.seed}/order/{in_pass}")  # noqa: S311 — no secret
            shuffled.shuffle(order)
            yield order[index]

    def _keep(self) -> None:
        """Take what the step has changed into the state."""
        parameter = self._learner.parameter
        moments = self._optimizer.state[parameter]
        self.state.parameter = parameter.detach().clone()
        self.state.exp_avg = moments["exp_avg"].clone()
        self.state.exp_avg_sq = moments["exp_avg_sq"].clone()

    def _share(self) -> float:
        """Return how much of the run is done: by its steps, or by the clock where that is more."""
        share = self.state.step / self._options.steps
        if self._options.minutes is not None:
            share = max(share, self.state.seconds / (60 * self._options.minutes))
        return min(share, 1.0)

    def _end(self) -> str | None:
        if self.state.step >= self._options.steps:
            return "steps"
        if self._share() >= 1:
            return "minutes"
        kls = [look["kl"] for look in self.state.history]
        since_best = len(kls) - 1 - kls.index(min(kls)) if kls else 0
        return "patience" if since_best >= self._options.patience else None

    def _progress(self, stage: str, loss: float | None) -> Progress:
        kl = self.state.history[-1]["kl"] if self.state.history else None
        return Progress(stage, self.state.step, self._share(), loss, kl, self._seconds_left())

    def _seconds_left(self) -> float | None:
        """Estimate by the steps so far, looks at what is held out included."""
        state, minutes = self.state, self._options.minutes
        limit = math.inf if minutes is None else 60 * minutes - state.seconds
        if not state.step:
            return None if minutes is None else max(0.0, limit)
        start = state.history[0]["seconds"] if state.history else 0.0
        a_step = (state.seconds - start) / state.step
        return max(0.0, min(a_step * (self._options.steps - state.step), limit))


def _optimizer(parameter: torch.nn.Parameter, state: Checkpoint) -> torch.optim.AdamW:
    """Return AdamW as it was after the state's step."""
    with torch.no_grad():
        parameter.copy_(state.parameter)
    optimizer = torch.optim.AdamW([parameter], betas=_BETAS, eps=_EPSILON, weight_decay=0.0)
    if state.step:
        optimizer.state[parameter] = {
            "step": torch.tensor(float(state.step)),
            "exp_avg": state.exp_avg.to(parameter.device).clone(),
            "exp_avg_sq": state.exp_avg_sq.to(parameter.device).clone(),
        }
    return optimizer
