"""What compression costs in quality: on packets, and on a joint cache.

Every token dropper at 10, 30, 50 and 70 % of the slots removed, and the base of a two-layer record
at each step, on the same questions. Distances are to the full recompute with nothing removed. The
preamble and the question always stay. Each row is kept as soon as it is there; the same call goes
on where one was interrupted.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from _report import RESULTS, report
from rich.progress import track

from kvpacket_store.adapters import Adapter
from kvpacket_store.api.adapter_choice import choose_adapter
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import QuestionItem
from kvpacket_store.codec import BASE_STEPS
from kvpacket_store.codec.packs import pack_for
from kvpacket_store.models import Model, load_model
from kvpacket_store.prefill import Prefiller
from kvpacket_store.quality.arm import Start
from kvpacket_store.quality.arms import Arms
from kvpacket_store.quality.compressed import as_one_preamble, base_alone, with_fewer_tokens
from kvpacket_store.quality.datasets import DataOptions, load_datasets
from kvpacket_store.quality.journal import Journal
from kvpacket_store.quality.packets import PacketSet
from kvpacket_store.quality.prompt import PromptTokens, item_digest, tokenize_item
from kvpacket_store.quality.run import hear, scored

SETS = ("xquad", "biographies", "needles")
# Left out: importance and kvzap, which need an importance that nothing stores yet.
DROPPERS = (
    "random",
    "streaming",
    "knorm",
    "keydiff",
    "tova",
    "h2o",
    "scissorhands",
    "expected",
    "snapkv",
)
REMOVED = (0.1, 0.3, 0.5, 0.7)
FIGURES = ("kl", "gold_nll", "f1", "em")


class Measurement:
    """One model and adapter; one item after another."""

    def __init__(self, model: Model, adapter: Adapter, a: argparse.Namespace) -> None:
        self.model = model
        self.arms = Arms(model, adapter)
        self.prefillers = {
            "joint": Prefiller(model, Adapter.none(adapter.hidden_size)),
            "packets": Prefiller(model, adapter),
        }
        self.pack = pack_for(model.fingerprint.weights)
        self.a = a

    def item(self, item: QuestionItem) -> dict[str, dict[str, float]]:
        """Return figures by row name."""
        prompt = tokenize_item(self.model, item, answer_tokens=self.a.answer_tokens)
        teacher = hear(self.model, prompt, self.arms.start("full", prompt), None)
        found = {}
        for name, start in self.starts(prompt):
            heard = hear(self.model, prompt, start, teacher.answer)
            figures = scored(self.model, item, prompt, heard, teacher)
            found[name] = {figure: float(figures[figure]) for figure in FIGURES}
        return found

    def starts(self, prompt: PromptTokens) -> Iterator[tuple[str, Start]]:
        """Yield every way to make the prompt small."""
        for kind, prefiller in self.prefillers.items():
            laid = as_one_preamble(prompt) if kind == "joint" else prompt
            packets = PacketSet(prefiller, laid)
            exact = self._placed(packets)
            yield f"{kind}/exact/0", exact
            for name, removed in itertools.product(self.a.droppers, self.a.removed):
                dropped = with_fewer_tokens(
                    self.model,
                    exact,
                    f"{name}:{1 - removed:g}",
                    preamble_tokens=len(prompt.preamble),
                    room_tokens=prompt.room_tokens,
                )
                yield f"{kind}/{name}/{removed:g}", dropped
            for step in BASE_STEPS if self.pack is not None else ():
                change = base_alone(self.pack, prefiller.kv_dtype, step)
                yield f"{kind}/base {step}/0", self._placed(PacketSet(prefiller, laid, change))

    def _placed(self, packets: PacketSet) -> Start:
        return lambda: self.arms.placed(packets)


def rows_of(items: list[dict[str, dict[str, float]]]) -> list[dict[str, Any]]:
    """Return a row a cache, method and share removed."""
    rows = []
    for name in items[0]:
        cache, method, removed = name.split("/", 2) if name.count("/") == 2 else _of_base(name)
        figures = {f: mean(item[name][f] for item in items) for f in FIGURES}
        row = {"cache": cache, "method": method, "removed": float(removed), **figures}
        rows.append(row | {"n": len(items)})
    return rows


def _of_base(name: str) -> tuple[str, str, str]:
    """Take a name apart in which the step has a slash of its own."""
    cache, _, rest = name.partition("/")
    method, _, removed = rest.rpartition("/")
    return cache, method, removed


def main() -> None:
    """Measure, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--adapter", help="a safetensors file")
    parser.add_argument("--limit", type=int, default=2, help="questions of each data set")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--droppers", nargs="+", default=list(DROPPERS))
    parser.add_argument("--removed", nargs="+", type=float, default=list(REMOVED))
    parser.add_argument("--answer-tokens", type=int, default=32)
    parser.add_argument("--data-folder", type=Path)
    a = parser.parse_args()
    model = load_model(a.model)
    adapter = choose_adapter(a.adapter, model)
    datasets, _ = load_datasets(a.sets, DataOptions(limit=a.limit, folder=a.data_folder))
    items = [item for data in datasets for item in data.items]
    measurement = Measurement(model, adapter, a)
    plan = json.dumps([a.model, adapter.digest, a.droppers, a.removed, a.answer_tokens])
    found = []
    with Journal(RESULTS / ".compression_quality.partial") as journal:
        for item in track(items, "items"):
            key = plan + item_digest(item)
            done = journal.get(key) or measurement.item(item)
            journal.put(key, done)
            found.append(done)
        journal.forget()
    report(
        "compression_quality",
        {
            "machine": machine(),
            "model": a.model,
            "adapter": None if adapter.is_none else adapter.name,
            "sets": a.sets,
            "rows": rows_of(found),
        },
    )


if __name__ == "__main__":
    main()
