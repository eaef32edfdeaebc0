"""Accepted length against draft bits a scalar, K and V apart; and whether all tokens are the same.

Drafts of 32 tokens on bases of every pair of steps, on prompts with dropped tokens, and on
quantised ones. A prompt is the five paragraphs of an article and a question. Text that loops is
accepted whatever drafts are made on, so it is left out of the curve, and counted; its tokens are
compared all the same. An answer's last round is cut by the answer's end, and counts.

Each row is written as soon as it is there; the same call goes on where one was interrupted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _acceptance_plot import draw
from _accepted import INSTRUCTION, Sums, prompts_of
from _report import RESULTS, show
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kvpacket_store.api import Answer, Engine, Store
from kvpacket_store.api.recode import recode
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import QuestionItem
from kvpacket_store.codec import BASE_STEPS
from kvpacket_store.codec.step_costs import DEFAULT_BASE_BITS

DROPPERS = ("snapkv", "tova", "h2o", "expected", "keydiff", "knorm", "streaming", "random")
OFTEN = ("snapkv", "tova", "streaming", "random")  # at every share
SHARES = ("0.25", "0.5", "0.125")
QUANTISERS = ("fp8", "int8", "int4", "kivi:4", "kivi:2", "kvquant:4", "kvquant:2")
BITS = (1.68, 1.9, 2.2, DEFAULT_BASE_BITS, 2.7)
MIXED = ("base*snapkv:0.25", "snapkv:0.25*int8", "base*int4", "lookup", "lookup+snapkv:0.25")


@dataclass(frozen=True)
class Setting:
    """What is drafted on; a base of steps for K and for V, or of bits that are shared out."""

    compressor: str
    kind: str
    steps: tuple[str, str] | float = DEFAULT_BASE_BITS

    @property
    def name(self) -> str:
        """As a row is called."""
        if self.kind != "base":
            return self.compressor
        if isinstance(self.steps, float):
            return f"base {self.steps} bits"
        return f"base {self.steps[0]}, {self.steps[1]}"


def settings() -> Iterator[Setting]:
    """Yield what is drafted on; each of the bases recodes the store, and others use the default."""
    for bits in sorted(BITS, key=lambda bits: bits == DEFAULT_BASE_BITS):
        yield Setting("base", "base", bits)
    for share, scorer in itertools.product(SHARES, DROPPERS):
        if share == SHARES[0] or scorer in OFTEN:
            yield Setting(f"{scorer}:{share}", "tokens")
    for name in QUANTISERS:
        yield Setting(name, "bits")
    for name in MIXED:
        yield Setting(name, "mixed")
    for pair in itertools.product(BASE_STEPS, repeat=2):
        yield Setting("base", "base", pair)


class Measurement:
    """One model, one store, some prompts."""

    def __init__(self, store: Store, prompts: list[QuestionItem], a: argparse.Namespace) -> None:
        self.store = store
        self.engine = Engine(store)
        self.prompts = prompts
        self.a = a
        self._steps: tuple[str, str] | float = DEFAULT_BASE_BITS
        self._full: dict[tuple[int, float], Answer] = {}

    def full(self, index: int, temperature: float) -> Answer:
        """Return the answer of one-token decoding, by itself; it is made once."""
        key = (index, temperature)
        if key not in self._full:
            request = self._request(index, temperature)
            self._full[key] = self.engine.generate(**request, decode="full")
        return self._full[key]

    def rows(self, setting: Setting) -> Iterator[dict[str, Any]]:
        """Yield a row a temperature."""
        if setting.steps != self._steps:
            recode(self.store, "linear", 2, base_step=setting.steps)
            self._steps = setting.steps
        for temperature in self.a.temperatures:
            sums = Sums()
            for index, answer in enumerate(self._drafted(setting, temperature)):
                sums.take(answer, self.full(index, temperature))
            k, v = self._base_bits() if setting.kind == "base" else (None, None)
            row = {"compressor": setting.name, "kind": setting.kind, "temperature": temperature}
            bits = {"k_bits_per_scalar": k, "v_bits_per_scalar": v}
            yield row | bits | sums.row()

    def _drafted(self, setting: Setting, temperature: float) -> Iterator[Answer]:
        """Answer all prompts together: that is sooner, and no token may depend on it."""
        drafts = {"decode": "verified", "compressor": setting.compressor}
        drafts["draft_tokens"] = self.a.draft_tokens
        asked = [self._request(i, temperature) | drafts for i in range(len(self.prompts))]
        for answer in self.engine.generate_many(asked):
            if isinstance(answer, Exception):
                raise answer
            yield answer

    def _request(self, index: int, temperature: float) -> dict[str, Any]:
        item = self.prompts[index]
        return {
            "question": f"{INSTRUCTION} {item.question}",
            "documents": [document.id for document in item.documents],
            "max_new_tokens": self.a.new_tokens,
            "temperature": temperature,
            "seed": index,
            "ignore_eos": True,
        }

    def _base_bits(self) -> tuple[float, float]:
        """Return bits a scalar of the base, of K and of V, as the store has them."""
        layers = self.store.stats().layers
        k, v = (sum(layer[f"{side}_base"] for layer in layers) / len(layers) for side in "kv")
        return k, v


def measure(a: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Measure what is not in the file yet; write the file after each setting."""
    prompts = prompts_of(a.prompts)
    plan = {key: value for key, value in vars(a).items() if key not in ("only", "again")}
    result = _begun(path, plan) if not a.again else None
    result = result or {"machine": machine(), "plan": plan, "rows": []}
    done = {row["compressor"] for row in result["rows"]}
    todo = [one for one in settings() if one.name not in done and a.only in one.name]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        tempfile.TemporaryDirectory() as scratch,
        Store.create(Path(scratch) / "bench.kvps", model=a.model, codec="linear") as store,
        Progress(*columns, TimeRemainingColumn()) as bar,
    ):
        store.ingest({d.id: d for item in prompts for d in item.documents}.values())
        measurement = Measurement(store, prompts, a)
        task = bar.add_task("drafts", total=len(todo))
        for setting in todo:
            bar.update(task, description=setting.name)
            result["rows"] += list(measurement.rows(setting))
            result["total"] = totals(result["rows"])
            path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
            bar.advance(task)
    return result


def totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many tokens of how many are those of one-token decoding."""
    found = {key: sum(row[key] for row in rows) for key in ("tokens_identical", "tokens_compared")}
    return {**found, "identical": all(row["identical"] for row in rows)}


def _begun(path: Path, plan: dict[str, Any]) -> dict[str, Any] | None:
    """Return what an earlier call of the same plan left on a machine like this."""
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    is_same = (found["plan"], found["machine"]) == (plan, machine())
    return found if is_same else None


COLUMNS = {
    "compressor": "drafts on",
    "temperature": "T",
    "mean_accepted": "accepted",
    "k_bits_per_scalar": "K",
    "v_bits_per_scalar": "V",
    "draft_bits_per_scalar": "bits",
    "draft_tokens_kept_share": "kept",
    "looping": "loops",
    "identical": "same",
}


def main() -> None:
    """Measure, draw, and show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--draft-tokens", type=int, default=32)
    parser.add_argument("--temperatures", type=float, nargs="*", default=[0.0, 0.8])
    parser.add_argument("--only", default="", help="settings with this in their name")
    parser.add_argument("--again", action="store_true", help="measure what is there already, too")
    a = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    try:
        measure(a, RESULTS / "acceptance.json")
    except KeyboardInterrupt:
        print("interrupted; the same call goes on from here")
    path = RESULTS / "acceptance.json"
    if path.is_file():
        result = json.loads(path.read_text())
        show("acceptance", COLUMNS, result["rows"])
        (RESULTS / "acceptance.svg").write_text(draw(result))
        total = result["total"]
        print(f"{total['tokens_identical']:,} of {total['tokens_compared']:,} tokens identical")


if __name__ == "__main__":
    main()
