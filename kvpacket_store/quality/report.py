"""From items to a report: means with intervals, gaps closed, and whether it can be believed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from kvpacket_store.quality.intervals import Columns, bootstrap_interval
from kvpacket_store.quality.run import ItemResult

__all__ = ["arm_report", "arms_report", "doubts", "gaps_closed"]

_MEANS = ("kl", "gold_nll", "gold_nll_answer", "f1", "em")
_FAULTS = ("empty", "no_end", "repeats")
_MOST_FAULTS = 0.5
Floats = npt.NDArray[np.float64]


def arms_report(results: Sequence[ItemResult]) -> dict[str, dict[str, Any]]:
    """Return each arm's figures over the items."""
    return {name: arm_report([result[name] for result in results]) for name in results[0]}


def arm_report(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one arm's figures.

    Times are medians; ``micro_f1`` is over the tokens of all answers; ``format_failures`` are
    shares of answers that are empty, that did not end within the limit, that repeat themselves,
    and of those that do any of it.
    """
    report: dict[str, Any] = {"n": len(rows)}
    for name in _MEANS:
        values = _column(rows, name)
        report[name] = float(values.mean())
        report[f"{name}_interval"] = bootstrap_interval({"x": values}, _mean_of_x)
    common, found, gold = (sum(part) for part in zip(*(r["overlap"] for r in rows), strict=True))
    report["micro_f1"] = 2 * common / (found + gold) if found + gold else 0.0
    failures = {name: float(_column(rows, name).mean()) for name in _FAULTS}
    any_fault = [any(row[name] for name in _FAULTS) for row in rows]
    report["format_failures"] = {**failures, "any": float(np.mean(any_fault))}
    report["ttft_ms"] = median(row["ttft_ms"] for row in rows)
    for name in ("flops", "recomputed_tokens", "context_tokens"):
        report[name] = float(_column(rows, name).mean())
    return report


def gaps_closed(results: Sequence[ItemResult]) -> dict[str, dict[str, Any]]:
    """Return, for every arm, how much of the way from naive reuse to full recompute it goes.

    ``kl``: 1 - KL(arm) / KL(naive). ``gold_nll``: (naive - arm) / (naive - full). 1 is all of it,
    0 none, below 0 is worse than naive; None where there is no gap.
    """
    return {
        name: {"kl": _kl_gap(results, name), "gold_nll": _nll_gap(results, name)}
        for name in results[0]
        if name not in {"full", "naive"}
    }


def doubts(arms: dict[str, dict[str, Any]]) -> list[str]:
    """Return why a report is not to be believed: the full recompute itself does badly."""
    full, none = arms["full"], arms["none"]
    found = []
    if full["gold_nll"] >= none["gold_nll"]:
        found.append(
            f"full recompute finds the gold answers no likelier ({full['gold_nll']:.2f} nats a "
            f"token) than the model does without documents ({none['gold_nll']:.2f})"
        )
    share = full["format_failures"]["any"]
    if share > _MOST_FAULTS:
        kinds = {name: full["format_failures"][name] for name in _FAULTS}
        worst = max(kinds, key=lambda name: kinds[name])
        found.append(
            f"{share:.0%} of full recompute's answers have a fault of form, most of them: {worst}"
        )
    return found


def _column(rows: Sequence[dict[str, Any]], name: str) -> Floats:
    return np.array([float(row[name]) for row in rows])


def _mean_of_x(columns: Columns) -> Floats:
    return columns["x"].mean(-1)  # type: ignore[no-any-return]


def _columns(results: Sequence[ItemResult], metric: str, *names: str) -> dict[str, Floats]:
    return {name: _column([result[name] for result in results], metric) for name in names}


def _with_interval(columns: Columns, share: Any) -> dict[str, Any] | None:
    value = float(share({name: values[None] for name, values in columns.items()})[0])
    if not np.isfinite(value):
        return None
    return {"share": value, "interval": bootstrap_interval(columns, share)}


def _kl_gap(results: Sequence[ItemResult], name: str) -> dict[str, Any] | None:
    def share(columns: Columns) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            gap: Floats = 1 - columns[name].mean(-1) / columns["naive"].mean(-1)
        return gap

    return _with_interval(_columns(results, "kl", "naive", name), share)


def _nll_gap(results: Sequence[ItemResult], name: str) -> dict[str, Any] | None:
    def share(columns: Columns) -> Floats:
        full, naive, arm = (columns[key].mean(-1) for key in ("full", "naive", name))
        with np.errstate(divide="ignore", invalid="ignore"):
            gap: Floats = np.where(naive > full, (naive - arm) / (naive - full), np.nan)
        return gap

    return _with_interval(_columns(results, "gold_nll", "full", "naive", name), share)
