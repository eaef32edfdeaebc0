"""Answers from packets beside full recompute, and beside the methods that mend reused K and V.

Without ``--limits``: all arms on all data sets → ``bench/results/quality.json``, as
``kvps bench quality --json`` gives it. With it: how quality depends on the number of packets
(``quality_packets.json``) and on their length (``quality_lengths.json``), on generated questions.
What is done is kept; the same call goes on where one was interrupted. ``quality_tables.py`` puts
the tables into docs/quality.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from _report import RESULTS, report
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from kvpacket_store.adapters import Adapter
from kvpacket_store.api.adapter_choice import choose_adapter
from kvpacket_store.api.quality_gate import kept_report
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.models import Model, load_model
from kvpacket_store.quality.arm import ARMS
from kvpacket_store.quality.datasets import (
    DATASETS,
    DataOptions,
    load_datasets,
    questions_of_file,
)
from kvpacket_store.quality.journal import Journal
from kvpacket_store.quality.measure import (
    QualityPlan,
    journal_path,
    measure_quality,
)

PACKETS = (1, 2, 5, 10, 20, 30)
DOCUMENT_TOKENS = (80, 160, 320, 640, 1000, 2000)
SWEPT_SETS = ("biographies", "needles")


class Measurement:
    """One model and adapter."""

    def __init__(self, model: Model, adapter: Adapter, a: argparse.Namespace) -> None:
        self.model, self.adapter, self.a = model, adapter, a

    def main_table(self) -> None:
        """Measure every data set, and the user's own questions where there are some."""
        options = DataOptions(self.a.limit, seed=self.a.seed, folder=self.a.data_folder)
        result = self._measure(
            self.a.sets, options, QualityPlan(self.a.arms, force=True), "quality"
        )
        rows = [{"arm": name, **_plain(figures)} for name, figures in result["arms"].items()]
        report("quality", {**result, "rows": rows})
        if self.a.ship is not None:
            self.a.ship.write_text(json.dumps(kept_report(result), indent=1) + "\n")

    def packets(self, counts: list[int]) -> None:
        """Vary how many documents a question has; they are short."""
        options = {n: DataOptions(self.a.limit, n, 120, self.a.seed) for n in counts}
        plan = QualityPlan(self.a.arms, force=True)
        self._sweep("quality_packets", "packets", {n: (o, plan) for n, o in options.items()})

    def lengths(self, lengths: list[int]) -> None:
        """Vary how long packets are; there are three of them."""
        asked = {}
        for tokens in lengths:
            plan = QualityPlan(self.a.arms, segment_tokens=max(512, 2 * tokens), force=True)
            asked[tokens] = (DataOptions(self.a.limit, 3, tokens, self.a.seed), plan)
        self._sweep("quality_lengths", "document_tokens", asked)

    def _sweep(
        self, name: str, varied: str, asked: dict[int, tuple[DataOptions, QualityPlan]]
    ) -> None:
        """Measure one value after another; those that are done are kept until all are."""
        rows = []
        identity = f"{self.adapter.digest} {self.a.arms} {self.a.limit} {self.a.seed}"
        with Journal(RESULTS / f".{name}.partial") as journal:
            for value, (options, plan) in asked.items():
                key = f"{self.model.name} {identity} {value}"
                done = journal.get(key)
                if done is None:
                    found = self._measure(SWEPT_SETS, options, plan, name)
                    done = [{varied: value, **row} for row in _rows(found)]
                    journal.put(key, done)
                rows += done
            journal.forget()
        adapter = None if self.adapter.is_none else self.adapter.name
        about = {"machine": machine(), "model": self.model.name, "adapter": adapter}
        report(name, {**about, "questions": self.a.limit, "rows": rows})

    def _measure(
        self, sets: tuple[str, ...], options: DataOptions, plan: QualityPlan, name: str
    ) -> dict[str, Any]:
        datasets, skipped = load_datasets(sets, options)
        if self.a.data is not None and name == "quality":
            datasets.append(questions_of_file(self.a.data, options))
        journal = journal_path(self.model, self.adapter, plan, RESULTS / f"{name}.json")
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns) as bar:
            task = bar.add_task(name, total=1.0)
            return measure_quality(
                self.model,
                self.adapter,
                datasets,
                skipped=skipped,
                plan=plan,
                journal=journal,
                progress=lambda stage, share: bar.update(
                    task, completed=share, description=f"{name}: {stage}"
                ),
            )


def _rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row an arm and data set."""
    return [
        {"set": block["name"], "arm": name, **_plain(figures)}
        for block in found["datasets"]
        if block["arms"] is not None
        for name, figures in block["arms"].items()
    ]


def _plain(figures: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in figures.items() if not isinstance(v, dict | tuple | list)}


def main() -> None:
    """Measure, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--adapter", help="a safetensors file, or none")
    parser.add_argument("--limit", type=int, default=6, help="questions of each data set")
    parser.add_argument("--sets", nargs="+", default=list(DATASETS))
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    parser.add_argument("--data", type=Path, help="JSONL: question, answers, documents")
    parser.add_argument("--data-folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ship", type=Path, help="keep here what ships with the adapter")
    parser.add_argument("--limits", action="store_true", help="vary packets and lengths instead")
    parser.add_argument("--packets", type=int, nargs="*", default=list(PACKETS))
    parser.add_argument("--lengths", type=int, nargs="*", default=list(DOCUMENT_TOKENS))
    a = parser.parse_args()
    model = load_model(a.model)
    adapter = choose_adapter(a.adapter, model)
    measurement = Measurement(model, adapter, a)
    if not a.limits:
        measurement.main_table()
        return
    if a.packets:
        measurement.packets(a.packets)
    if a.lengths:
        measurement.lengths(a.lengths)


if __name__ == "__main__":
    main()
