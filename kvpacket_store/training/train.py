"""Train an adapter: corpus in, a folder with adapter, checkpoint, answers and report out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from kvpacket_store.adapters import Adapter, save_adapter
from kvpacket_store.durable import written_whole
from kvpacket_store.errors import UsageError
from kvpacket_store.models import Model, frozen
from kvpacket_store.prefill import preamble_adapter
from kvpacket_store.training.answer_cache import CachedTeacher
from kvpacket_store.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from kvpacket_store.training.disk import disk_errors
from kvpacket_store.training.options import TrainOptions
from kvpacket_store.training.report import TrainingReport, adapter_about
from kvpacket_store.training.samples import Sampler
from kvpacket_store.training.sources import Corpus, split
from kvpacket_store.training.student import SoftTokenStudent
from kvpacket_store.training.teacher import Teacher
from kvpacket_store.training.trainer import Progress, Trainer

__all__ = ["train_adapter"]

_CHECKPOINT, _ANSWERS, _REPORT = "checkpoint.safetensors", "answers", "report.json"
_SPREAD_ROWS = 4096
_REMEDY = "the last checkpoint is whole: make room, then go on with --resume"
Watch = Callable[[Progress], None]


def train_adapter(
    model: Model,
    corpus: Corpus,
    folder: str | Path,
    options: TrainOptions | None = None,
    *,
    start: Adapter | None = None,
    resume: bool = False,
    watch: Watch = lambda progress: None,
) -> TrainingReport:
    """Train header and trailer so that packets answer as the whole text does.

    The teacher is the model with full attention, the student the same model with packets; the loss
    is on the teacher's own answers (KV Packet, arXiv:2604.13226, section 3). No labels are used.

    Parameters
    ----------
    model : Model
        Stays as it is.
    corpus : Corpus
        See `gather`.
    folder : path
        Made where it is not there. Gets ``<its name>.safetensors`` (the best adapter so far),
        ``checkpoint.safetensors``, ``report.json`` and the teacher's answers.
    options : TrainOptions, optional
        In numbers.
    start : Adapter, optional
        Go on from this adapter; decides how many soft tokens there are, and whether they stay. A
        correction that it has is of other tokens afterwards, and left out: fit it again.
    resume : bool
        Go on from the folder's checkpoint: the outcome is that of a run that never stopped, bit
        for bit on the same machine.
    watch : callable
        Told where the run is.

    Raises
    ------
    UsageError
        Too little text; a checkpoint is there and ``resume`` is not asked for, or the other way
        round; something else than schedule and learning rate differs from the checkpoint's run.
    AdapterError
        ``start`` is of another width than the model; or the loss became no number: the best
        adapter so far is kept.
    StoreFullError
        Answers or a checkpoint cannot be written; the last checkpoint is whole.
    """
    run = _Run(model, corpus, Path(folder), options or TrainOptions(), start)
    with frozen(model), disk_errors(run.folder, _REMEDY):
        return run.go(resume, watch)


class _Run:
    """One run and its folder."""

    def __init__(
        self,
        model: Model,
        corpus: Corpus,
        folder: Path,
        options: TrainOptions,
        start: Adapter | None,
    ) -> None:
        if start is not None:
            longest = max(start.header_slots, start.trailer_tokens)
            options = dataclasses.replace(
                options,
                header="soft" if start.header_stays else "preamble",
                num_tokens=longest or options.num_tokens,
            )
        self.folder = folder
        self._model, self._corpus, self._options, self._start = model, corpus, options, start
        train, held_out = split(corpus.documents, corpus.questions, options.seed)
        self._sampler = Sampler(train, model.tokenizer, options, "train")
        validation = Sampler(held_out, model.tokenizer, options, "validation")
        self._held_out = [validation.sample(i) for i in range(options.validation_samples)]

    def go(self, resume: bool, watch: Watch) -> TrainingReport:
        state = self._begin(resume)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise UsageError(f"{self.folder} is a file; name a folder") from error
        options = self._options
        teacher = CachedTeacher(
            Teacher(self._model, answer_tokens=options.answer_tokens, top_k=options.top_k),
            self.folder / _ANSWERS,
        )
        trainer = Trainer(
            self._student(self._initial()), teacher, self._sampler.sample, self._held_out, state,
            options,
        )  # fmt: skip
        if not state.history:
            self._measure_start(trainer, watch)
            save_checkpoint(state, self.folder / _CHECKPOINT)
        ended = "interrupted"
        try:
            ended = trainer.run(self.folder / _CHECKPOINT, watch)
        except Exception:
            ended = "failed"
            raise
        finally:
            lost = contextlib.suppress(OSError, SafetensorError)  # what failed is told already
            with lost if ended == "failed" else contextlib.nullcontext():
                report = self._keep(state, ended)
        return report

    def _begin(self, resume: bool) -> Checkpoint:
        path = self.folder / _CHECKPOINT
        if resume:
            state = load_checkpoint(path)
            self._require_same_run(state.about["run"])
            return state
        if path.exists():
            raise UsageError(
                f"{self.folder} holds a run already; go on with it (--resume), or name another "
                "folder"
            )
        start = self._student(self._initial()).parameter.detach().cpu()
        empty = torch.zeros_like(start)
        return Checkpoint(0, start, empty, empty.clone(), start.clone(), about={"run": self._is()})

    def _is(self) -> dict[str, Any]:
        """Return what must be the same for a checkpoint to be gone on from."""
        return {
            "options": self._options.lasting(),
            "sources": [dataclasses.asdict(source) for source in self._corpus.sources],
            "model": self._model.fingerprint.to_dict(),
            "dtype": str(self._model.dtype),
            "start": None if self._start is None else self._start.prefill_digest,
        }

    def _require_same_run(self, theirs: dict[str, Any]) -> None:
        ours, before = _flat(self._is()), {"header": "soft", **_flat(theirs)}
        differing = [name for name in ours if ours[name] != before.get(name)]
        if differing:
            raise UsageError(
                f"the run in {self.folder} cannot be resumed like this: it had other "
                f"{', '.join(differing)}; give them as they were, or name another folder"
            )

    def _measure_start(self, trainer: Trainer, watch: Watch) -> None:
        """Look at the held-out samples without an adapter and with the one that it begins with."""
        state, began = trainer.state, time.monotonic()

        def told(share: float) -> None:
            watch(Progress("baseline", 0, share, None, None, None))

        none = self._student(Adapter.none(state.parameter.shape[1]))
        untrained = self._student(self._initial())
        state.about["kl_naive"] = trainer.held_out_kl(none, told)
        kl = trainer.held_out_kl(untrained, told)
        state.seconds += time.monotonic() - began
        state.history.append({"step": 0, "loss": kl, "kl": kl, "seconds": round(state.seconds, 1)})

    def _keep(self, state: Checkpoint, ended: str) -> TrainingReport:
        """Write the best adapter so far and the report."""
        path = self.folder / f"{self.folder.resolve().name}.safetensors"
        student = self._student(self._initial())
        with torch.no_grad():
            student.parameter.copy_(state.best)
        adapter = student.adapter(path.stem)
        report = self._report(state, ended, adapter, path)
        save_adapter(adapter, path, adapter_about(report, self._model.fingerprint.to_dict()))
        with written_whole(self.folder / _REPORT) as scratch:
            scratch.write_text(json.dumps(report.to_dict(), indent=1) + "\n")
        return report

    def _report(
        self, state: Checkpoint, ended: str, adapter: Adapter, path: Path
    ) -> TrainingReport:
        best = min(state.history, key=lambda look: look["kl"])
        naive = float(state.about["kl_naive"])
        return TrainingReport(
            adapter=str(path),
            digest=adapter.digest,
            tokens=adapter.header_tokens + adapter.trailer_tokens,
            model=Path(self._model.name).name,
            dtype=str(self._model.dtype).removeprefix("torch."),
            ended=ended,
            steps=state.step,
            best_step=int(best["step"]),
            seconds=round(state.seconds, 1),
            kl_naive=naive,
            kl_before=state.history[0]["kl"],
            kl_after=best["kl"],
            gap_closed=1 - best["kl"] / naive if naive else 0.0,
            history=state.history,
            sources=[dataclasses.asdict(source) for source in self._corpus.sources],
            options=self._options.to_dict(),
            failures=self._corpus.failures,
        )

    def _initial(self) -> Adapter:
        """Return what training starts from; random soft tokens have the embeddings' spread."""
        if self._start is not None:
            return self._start
        if self._options.header == "preamble":
            return preamble_adapter(self._model)
        vocabulary = int(self._model.embedding.weight.shape[0])
        ids = range(0, vocabulary, max(1, vocabulary // _SPREAD_ROWS))
        rows = self._model.embed(tuple(ids)).float().cpu().numpy()
        options = self._options
        return Adapter.untrained(rows, num_tokens=options.num_tokens, seed=options.seed)

    def _student(self, adapter: Adapter) -> SoftTokenStudent:
        return SoftTokenStudent(self._model, adapter, max_kept_bytes=self._options.max_kept_bytes)


def _flat(run: dict[str, Any]) -> dict[str, Any]:
    """Name every part of a run's description by itself, as JSON gives it back."""
    flat = {"sources": run["sources"], "dtype": run["dtype"], "start": run.get("start")}
    flat |= run["options"]
    flat |= {f"model {name}": digest for name, digest in run["model"].items()}
    return flat
