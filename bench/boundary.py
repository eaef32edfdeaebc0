"""Where question and answer look, by layer and arm: sinks, soft tokens, text.

Writes ``bench/results/boundary.json`` and ``boundary.html``. The packet arm has the model's
adapter, or that of ``--adapter``; ``--untrained`` shows the one that training begins with too.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from _report import RESULTS, report
from rich.progress import track

from kvpacket_store.adapters import Adapter
from kvpacket_store.api.adapter_choice import choose_adapter
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.cli.boundary_page import boundary_page
from kvpacket_store.models import Model, load_model
from kvpacket_store.prefill import preamble_adapter
from kvpacket_store.quality.arm import ARMS
from kvpacket_store.quality.arms import Arms
from kvpacket_store.quality.boundary import KINDS, attention_mass
from kvpacket_store.quality.datasets import DataOptions, load_datasets
from kvpacket_store.quality.prompt import tokenize_item
from kvpacket_store.quality.run import hear

SETS = ("xquad", "biographies", "needles")


def measure(model: Model, adapters: dict[str, Adapter], a: argparse.Namespace) -> dict[str, Any]:
    """Return the mean mass of each arm, and how far it is from full recompute's."""
    datasets, _ = load_datasets(a.sets, DataOptions(limit=a.limit, folder=a.data_folder))
    items = [item for data in datasets for item in data.items]
    width = next(iter(adapters.values())).hidden_size
    plain = Arms(model, Adapter.none(width))
    adapted = {name: Arms(model, adapter) for name, adapter in adapters.items()}
    found: dict[str, list[Any]] = {}
    for item in track(items, "items"):
        prompt = tokenize_item(model, item, answer_tokens=a.answer_tokens)
        answer = hear(model, prompt, plain.start("full", prompt), None).answer
        starts = {name: plain.start(name, prompt) for name in ARMS if name not in {"packet"}}
        starts |= {name: arms.start("packet", prompt) for name, arms in adapted.items()}
        for name, start in starts.items():
            found.setdefault(name, []).append(attention_mass(model, start, answer))
    mass = {name: np.mean([one["mass"] for one in ones], axis=0) for name, ones in found.items()}
    return {
        "machine": machine(),
        "model": model.name,
        "adapter": None if adapters["packet"].is_none else adapters["packet"].name,
        "items": len(items),
        "kinds": list(KINDS),
        "arms": {name: _arm(values, mass["full"]) for name, values in mass.items()},
    }


def _arm(mass: Any, full: Any) -> dict[str, Any]:
    """Return an arm's means; the distance is half the sum of differences, text taken together."""
    distance = np.abs(_told_apart(mass) - _told_apart(full)).sum(-1).mean() / 2
    return {
        "mass": np.round(mass, 5).tolist(),
        "mean": np.round(mass.mean(0), 5).tolist(),
        "distance": float(distance),
    }


def _told_apart(mass: Any) -> Any:
    """Take soft tokens with the starts of segments: both are where a packet's own sink may be."""
    preamble, header, start, body, trailer, question = np.moveaxis(mass, -1, 0)
    return np.stack([preamble, header + start, body + trailer, question], axis=-1)


def main() -> None:
    """Measure, keep, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--adapter", help="a safetensors file, preamble or none")
    parser.add_argument("--untrained", action="store_true", help="beside it, before training")
    parser.add_argument("--limit", type=int, default=4, help="questions of each data set")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--answer-tokens", type=int, default=24)
    parser.add_argument("--data-folder", type=Path)
    a = parser.parse_args()
    model = load_model(a.model)
    adapters = {"packet": choose_adapter(a.adapter, model)}
    if a.untrained:
        adapters["packet, untrained"] = preamble_adapter(model)
    result = measure(model, adapters, a)
    result["rows"] = [
        {"arm": name, **dict(zip(KINDS, arm["mean"], strict=True)), "distance": arm["distance"]}
        for name, arm in result["arms"].items()
    ]
    report("boundary", result)
    (RESULTS / "boundary.html").write_text(boundary_page(result))


if __name__ == "__main__":
    main()
