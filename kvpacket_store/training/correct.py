"""Give an adapter a correction: corpus in, adapter file out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kvpacket_store import __version__
from kvpacket_store.adapters import Adapter, Correction, save_adapter
from kvpacket_store.errors import UsageError
from kvpacket_store.models import Model, frozen
from kvpacket_store.training.correcting import corrected_kl, fit_correction
from kvpacket_store.training.disk import disk_errors
from kvpacket_store.training.options import TrainOptions
from kvpacket_store.training.samples import Sample, Sampler
from kvpacket_store.training.sources import Corpus, split
from kvpacket_store.training.teacher import Teacher
from kvpacket_store.types import Report

__all__ = ["CorrectionReport", "correct_adapter"]

_REMEDY = "make room, or name another place"
_TRIES = 8  # for each sample wanted: some have one packet alone
# What an adapter's file says of its training goes on, under names of their own.
_OF_THE_HEADER = ("made_by", "sources", "options", "steps", "best_step", "kl_naive", "kl_after")
Watch = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class CorrectionReport(Report):
    """What a correction does on held-out samples.

    Parameters
    ----------
    adapter, digest : str
        The file, and what it holds.
    strength : float
        Of the fit that was taken; 0: none did better than none.
    kl : dict
        KL to the teacher by strength, nats a token; ``0.0`` is without the correction.
    samples, validation_samples : int
        Prompts of two packets or more.
    sources : list of dict
        Where the text came from.
    """

    adapter: str
    digest: str
    strength: float
    kl: dict[str, float]
    samples: int
    validation_samples: int
    sources: list[dict[str, Any]]


def correct_adapter(
    model: Model,
    corpus: Corpus,
    path: str | Path,
    adapter: Adapter,
    options: TrainOptions | None = None,
    *,
    about: Mapping[str, str] = MappingProxyType({}),
    watch: Watch = lambda stage, share: None,
) -> CorrectionReport:
    """Fit a correction on ``options.samples`` prompts, choose its strength, write the adapter.

    Minutes on two cores for SmolLM2 and 30 prompts; no gradient, no labels. Packets do not depend
    on it: bundles of a store with the adapter and of one with it corrected fit each other.

    Parameters
    ----------
    model : Model
        Stays as it is.
    corpus : Corpus
        See `gather`.
    path : path
        Of the safetensors file that is written; its folder is made.
    adapter : Adapter
        What packets are prefilled behind; a correction that it has is fitted anew.
    options : TrainOptions, optional
        Of samples; what is about gradients is not used.
    about : mapping, optional
        What the adapter's own file says of where it came from.
    watch : callable
        Told the stage and the share of it that is done.

    Raises
    ------
    UsageError
        The file is there already, or there is too little text for prompts of several packets.
    StoreFullError
        The file cannot be written.
    """
    options, path = options or TrainOptions(samples=30, validation_samples=12), Path(path)
    if options.max_packets < 2:
        raise UsageError("max_packets is 1; what lies before a packet needs prompts of 2 or more")
    if path.exists():
        raise UsageError(f"{path} is there already; name another file, or delete it")
    samples, validation = _prompts(model, corpus, options)
    with disk_errors(path, _REMEDY):
        path.parent.mkdir(parents=True, exist_ok=True)
    correction, kl = _fitted(model, adapter, (samples, validation), options, watch)
    strength = min(kl, key=lambda one: kl[one])
    made = dataclasses.replace(
        adapter, name=path.stem, correction=correction.scaled(strength) if strength else None
    )
    report = CorrectionReport(
        adapter=str(path),
        digest=made.digest,
        strength=strength,
        kl={str(one): value for one, value in kl.items()},
        samples=len(samples),
        validation_samples=len(validation),
        sources=[dataclasses.asdict(source) for source in corpus.sources],
    )
    with disk_errors(path, _REMEDY):
        save_adapter(made, path, _about(report, model, about))
    return report


def _fitted(
    model: Model,
    adapter: Adapter,
    prompts: tuple[list[Sample], list[Sample]],
    options: TrainOptions,
    watch: Watch,
) -> tuple[Correction, dict[float, float]]:
    """Return the fit at full strength, and the KL of each strength."""
    teacher = Teacher(model, answer_tokens=options.answer_tokens, top_k=options.top_k)
    with frozen(model):
        fit = fit_correction(model, adapter, prompts[0], lambda share: watch("fit", share))
        whole = dataclasses.replace(adapter, correction=fit)
        kl = corrected_kl(model, whole, prompts[1], teacher, lambda share: watch("strength", share))
    return fit, kl


def _prompts(
    model: Model, corpus: Corpus, options: TrainOptions
) -> tuple[list[Sample], list[Sample]]:
    """Return samples to fit to, and held-out ones, of two packets or more."""
    train, held_out = split(corpus.documents, corpus.questions, options.seed)
    return (
        _several(Sampler(train, model.tokenizer, options, "train"), options.samples),
        _several(
            Sampler(held_out, model.tokenizer, options, "validation"), options.validation_samples
        ),
    )


def _several(sampler: Sampler, count: int) -> list[Sample]:
    found: list[Sample] = []
    for number in range(_TRIES * count):
        sample = sampler.sample(number)
        if len(sample.segments) > 1:
            found.append(sample)
        if len(found) == count:
            return found
    raise UsageError(
        f"only {len(found)} of {count} prompts of several packets could be made; pass more "
        "documents, or ask for fewer prompts"
    )


def _about(report: CorrectionReport, model: Model, about: Mapping[str, str]) -> dict[str, str]:
    header = {f"header_{name}": about[name] for name in _OF_THE_HEADER if name in about}
    return {
        **header,
        "made_by": f"kvpacket-store {__version__}",
        "model": Path(model.name).name,
        "model_fingerprint": json.dumps(model.fingerprint.to_dict()),
        "correction_strength": str(report.strength),
        "correction_kl": json.dumps(report.kl),
        "correction_sources": json.dumps(report.sources),
    }
