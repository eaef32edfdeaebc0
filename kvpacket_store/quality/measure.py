"""Measure quality: every arm on the same items of every data set, and one report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvpacket_store.adapters import Adapter
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import QuestionItem
from kvpacket_store.errors import ContextOverflowError, QualityError, UsageError
from kvpacket_store.models import Model, cache_dir
from kvpacket_store.quality.arm import ALWAYS, ARMS, ArmSettings
from kvpacket_store.quality.arms import Arms
from kvpacket_store.quality.datasets import DataSet, Skipped
from kvpacket_store.quality.journal import Journal
from kvpacket_store.quality.prompt import item_digest
from kvpacket_store.quality.report import arms_report, doubts, gaps_closed
from kvpacket_store.quality.run import ItemResult, run_item
from kvpacket_store.types import KVDtype

__all__ = ["QualityPlan", "journal_path", "measure_quality", "require_sane"]

Progress = Callable[[str, float], None]
REPORT_VERSION = 1


@dataclass(frozen=True, slots=True)
class QualityPlan:
    """What to measure.

    Parameters
    ----------
    arms : sequence of str
        Of ``ARMS``; full, naive and none are always there.
    settings : ArmSettings
        Of the baselines.
    answer_tokens : int
        Longest greedy answer.
    segment_tokens : int
        Longest segment, so longest packet.
    kv_dtype : KVDtype, optional
        What packets hold; default the model's own.
    force : bool
        Report even where the full recompute does badly; the report says so.
    """

    arms: Sequence[str] = ARMS
    settings: ArmSettings = field(default_factory=ArmSettings)
    answer_tokens: int = 48
    segment_tokens: int = 512
    kv_dtype: KVDtype | None = None
    force: bool = False

    def __post_init__(self) -> None:
        unknown = [name for name in self.arms if name not in ARMS]
        if unknown:
            raise UsageError(f"no arm is named {unknown[0]!r}; there are {', '.join(ARMS)}")
        if not 0 <= self.settings.cacheblend_share <= 1 or self.settings.epic_tokens < 0:
            raise UsageError("CacheBlend's share is 0 to 1, EPIC's number of tokens 0 or more")

    @property
    def names(self) -> list[str]:
        """The arms, the full recompute first."""
        return [name for name in ARMS if name in self.arms or name in ALWAYS]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: what decides the figures."""
        return {
            "arms": self.names,
            **self.settings.to_dict(),
            "answer_tokens": self.answer_tokens,
            "segment_tokens": self.segment_tokens,
            "kv_dtype": None if self.kv_dtype is None else self.kv_dtype.value,
        }


def measure_quality(
    model: Model,
    adapter: Adapter,
    datasets: Sequence[DataSet],
    *,
    skipped: Sequence[Skipped] = (),
    plan: QualityPlan | None = None,
    journal: Path | None = None,
    progress: Progress = lambda stage, share: None,
) -> dict[str, Any]:
    """Return the report; see `report.arm_report` for an arm's figures.

    Parameters
    ----------
    skipped : sequence of Skipped
        Said in the report.
    journal : Path, optional
        Where items that are done are kept while the rest runs; deleted once there is a report.

    Raises
    ------
    UsageError
        No data set has an item that fits the model.
    QualityError
        The full recompute does badly (`require_sane`).
    """
    plan = plan or QualityPlan()
    arms = Arms(model, adapter, plan.settings, plan.kv_dtype)
    blocks, everything = [], []
    total = sum(len(data.items) for data in datasets)
    done = 0
    with Journal(journal) as kept:
        for data in datasets:
            results, too_long = [], 0
            for item in data.items:
                progress(data.name, done / total)
                try:
                    results.append(_kept_or_run(kept, arms, plan, item))
                except ContextOverflowError:
                    too_long += 1
                done += 1
            blocks.append(_block(data, results, too_long))
            everything += results
        if not everything:
            raise UsageError("no item fits the model; pass fewer or shorter documents")
        report = _report(model, adapter, plan, everything)
        report["datasets"] = blocks
        report["skipped"] = [{"name": one.name, "reason": one.reason} for one in skipped]
        report = require_sane(report, force=plan.force)
        kept.forget()
    return report


def _report(
    model: Model, adapter: Adapter, plan: QualityPlan, results: Sequence[ItemResult]
) -> dict[str, Any]:
    return {
        "version": REPORT_VERSION,
        "machine": machine(),
        "model": model.name,
        "model_fingerprint": model.fingerprint.to_dict(),
        "adapter": None if adapter.is_none else adapter.name,
        "adapter_digest": adapter.digest,
        "plan": plan.to_dict(),
        **_figures(results),
    }


def _kept_or_run(kept: Journal, arms: Arms, plan: QualityPlan, item: QuestionItem) -> ItemResult:
    key = item_digest(item)
    done: ItemResult | None = kept.get(key)
    if done is None:
        done = run_item(
            arms,
            plan.names,
            item,
            answer_tokens=plan.answer_tokens,
            segment_tokens=plan.segment_tokens,
        )
        kept.put(key, done)
    return done


def _figures(results: Sequence[ItemResult]) -> dict[str, Any]:
    arms = arms_report(results)
    return {"arms": arms, "gap_closed": gaps_closed(results), "doubts": doubts(arms)}


def _block(data: DataSet, results: Sequence[ItemResult], too_long: int) -> dict[str, Any]:
    about = {
        "name": data.name,
        "domain": data.domain,
        "source": data.source,
        "licence": data.licence,
        "n": len(results),
        "too_long": too_long,
    }
    if not results:
        return {**about, "arms": None, "gap_closed": None, "doubts": ["no item fits the model"]}
    return {**about, **_figures(results)}


def require_sane(report: dict[str, Any], *, force: bool = False) -> dict[str, Any]:
    """Return the report with ``sane`` and ``forced`` in it, or refuse it.

    Raises
    ------
    QualityError
        The full recompute itself does badly, so distances to it say nothing.
    """
    found = list(report["doubts"])
    for block in report["datasets"]:
        found += [f"{block['name']}: {doubt}" for doubt in block["doubts"]]
    sane = not report["doubts"]
    if not sane and not force:
        raise QualityError(
            f"this report would say nothing: {'; '.join(report['doubts'])}. Take easier questions, "
            "a longer --answer-tokens or another model, or pass --force to have it marked"
        )
    return {**report, "doubts": found, "sane": sane, "forced": force and not sane}


def journal_path(model: Model, adapter: Adapter, plan: QualityPlan, out_file: Path | None) -> Path:
    """Return where items that are done are kept: beside the result, else in the cache folder.

    Its name holds a digest of model, adapter and plan: results of another plan are not taken.
    """
    identity = [model.fingerprint.to_dict(), adapter.digest, plan.to_dict()]
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    if out_file is not None:
        return out_file.with_name(f".{out_file.name}.{digest}.partial")
    return cache_dir() / "quality" / f"{digest}.partial"
