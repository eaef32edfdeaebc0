"""Is memory flat over many answers? Hits, misses and cancellations mixed, on a small RAM tier."""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
from pathlib import Path
from typing import Any

from _report import report

from kvpacket_store.api import Engine, Store
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.errors import CancelledError

_SAMPLE_EVERY = 50


def _anonymous_mib() -> float:
    """Return RssAnon: memory of our own, the mapped store file apart."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status has no RssAnon")


def _range(samples: list[tuple[int, float]]) -> list[float]:
    """Return the least and the most: a body more or less in use moves every sample by 25 MiB."""
    sizes = [mib for _, mib in samples]
    return [min(sizes), max(sizes)]


def measure(calls: int, documents: int) -> dict[str, Any]:
    """Return between what bounds memory stayed, in the first half and in the second."""
    rng, samples, cancelled = random.Random(0), [], 0
    with (
        tempfile.TemporaryDirectory() as scratch,
        Store.create(Path(scratch) / "bench.kvps", model="smollm2") as store,
    ):
        corpus = example_documents()[:documents]
        store.ingest(corpus)
        ids = [document.id for document in corpus]
        engine = Engine(store, memory_bytes=store.stats().raw_bytes // 4)
        for i in range(calls):
            cancel = threading.Event()
            pieces = engine.stream(
                "What is it about?",
                documents=rng.sample(ids, 2),
                cancel=cancel,
                max_new_tokens=3,
                ignore_eos=True,
            )
            try:
                next(pieces)
                if i % 5 == 0:
                    cancel.set()
                list(pieces)
            except CancelledError:
                cancelled += 1
            if i % _SAMPLE_EVERY == 0:
                samples.append((i, _anonymous_mib()))
        stats = engine.memory.stats()
    half = len(samples) // 2
    row = {
        "calls": calls,
        "cancelled": cancelled,
        "hit_rate": stats.hit_rate,
        "first_half_mib": _range(samples[:half]),
        "second_half_mib": _range(samples[half:]),
    }
    return {"machine": machine(), "samples": samples, "rows": [row]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--documents", type=int, default=30)
    arguments = parser.parse_args()
    report("steady", measure(arguments.calls, arguments.documents))
