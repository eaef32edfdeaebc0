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
from kvpacket_store.adapters import Adapter, save_adapter
from kvpacket_store.errors import UsageError
from kvpacket_store.models import Model, frozen
from kvpacket_store.training.correcting import corrected_kl, fit_correction
from kvpacket_store.training.options import TrainOptions
from kvpacket_store.training.samples import Sample, Sampler
from kvpacket_store.training.sources import Corpus, split
from kvpacket_store.training.teacher import Teacher
from kvpacket_store.types import Report

__all__ = ["CorrectionReport", "correct_adapter"]

_TRIES = 8  # for each sample wanted: some have one packet alone


@dataclass(frozen=True, slots=True)
class CorrectionReport(Report):
    """What a correction does on held-out samples.

    Parameters
    ----------
    adapter, digest : str
        The file, and what it holds.
    strength : float
        Of the fit that was taken.
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
    watch: Callable[[str, float], None] = lambda stage, share: None,
) -> CorrectionReport:
    """Fit a correction on ``options.samples`` prompts, choose its strength, write the adapter.

    Minutes on two cores for SmolLM2 and 30 prompts; no gradient, no labels. Packets that were made
    with the adapter stay valid; a store takes another adapter only when it is made.

    Parameters
    ----------
    model : Model
        Stays as it is.
    corpus : Corpus
        See `gather`.
    path : path
        Of the safetensors file that is written.
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
        Too little text for prompts of several packets.
    StoreFullError
        The file cannot be written.
    """
    options, path = options or TrainOptions(samples=30, validation_samples=12), Path(path)
    train, held_out = split(corpus.documents, corpus.questions, options.seed)
    samples = _several(Sampler(train, model.tokenizer, options, "train"), options.samples)
    validation = _several(
        Sampler(held_out, model.tokenizer, options, "validation"), options.validation_samples
    )
    teacher = Teacher(model, answer_tokens=options.answer_tokens, top_k=options.top_k)
    with frozen(model):
        fit = fit_correction(model, adapter, samples, lambda share: watch("fit", share))
        watch("strength", 0.0)
        whole = dataclasses.replace(adapter, correction=fit)
        kl = corrected_kl(model, whole, validation, teacher)
    strength = min(kl, key=lambda one: kl[one])
    correction = fit.scaled(strength) if strength else None
    made = dataclasses.replace(adapter, name=path.stem, correction=correction)
    report = CorrectionReport(
        adapter=str(path),
        digest=made.digest,
        strength=strength,
        kl={str(one): value for one, value in kl.items()},
        samples=len(samples),
        validation_samples=len(validation),
        sources=[dataclasses.asdict(source) for source in corpus.sources],
    )
    save_adapter(made, path, {**about, **_about(report, model)})
    return report


def _several(sampler: Sampler, count: int) -> list[Sample]:
    """Return samples of two packets or more."""
    found: list[Sample] = []
    for number in range(_TRIES * count):
        sample = sampler.sample(number)
        if len(sample.segments) > 1:
            found.append(sample)
        if len(found) == count:
            return found
    raise UsageError(
        f"only {len(found)} of {count} prompts of several packets could be made; pass more "
        "documents, or a larger sample_tokens"
    )


def _about(report: CorrectionReport, model: Model) -> dict[str, str]:
    return {
        "made_by": f"kvpacket-store {__version__}",
        "model": Path(model.name).name,
        "model_fingerprint": json.dumps(model.fingerprint.to_dict()),
        "correction_strength": str(report.strength),
        "correction_kl": json.dumps(report.kl),
        "correction_sources": json.dumps(report.sources),
    }
