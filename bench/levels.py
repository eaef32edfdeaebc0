"""Time to first token by codec level, from the same packets: records read from LMDB and decoded.

One store a level; their answers run in turn, so that what else the machine does meets all of them.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from _report import report

from kvpacket_store.api import Engine, Store
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import example_documents

LEVELS = (("raw", 1), ("fast", 1), ("linear", 1), ("linear", 2))
STAGES = ("first_token", "load", "decode", "assemble", "prefill")


def first_token(store: Store, ids: list[str]) -> dict[str, float]:
    """Answer with nothing in memory."""
    engine = Engine(store, memory_bytes=0)
    answer = engine.generate("What are the documents about?", documents=ids, max_new_tokens=1)
    return {stage: float(answer.to_dict()["timings_ms"][stage]) for stage in STAGES}


def measure(model: str, num_documents: int, runs: int) -> dict[str, Any]:
    """Return a row a level."""
    documents = example_documents()[:num_documents]
    with tempfile.TemporaryDirectory() as scratch:
        stores, ingests = [], []
        for codec, layers in LEVELS:
            path = Path(scratch) / f"{codec}{layers}.kvps"
            stores.append(Store.create(path, model=model, codec=codec, layers=layers))
            ingests.append(stores[-1].ingest(documents))
        times: list[list[dict[str, float]]] = [[] for _ in stores]
        for run in range(runs + 1):
            for store, found in zip(stores, times, strict=True):
                timings = first_token(store, [document.id for document in documents])
                if run:  # the first warms up
                    found.append(timings)
        rows = [
            {
                "codec": codec,
                "layers": layers,
                "stored_bytes": ingest.stored_bytes,
                **{stage: statistics.median(t[stage] for t in found) for stage in STAGES},
                "spread": [
                    min(t["first_token"] for t in found),
                    max(t["first_token"] for t in found),
                ],
            }
            for (codec, layers), ingest, found in zip(LEVELS, ingests, times, strict=True)
        ]
        for store in stores:
            store.close()
    return {"machine": machine(), "runs": runs, "tokens": ingests[0].tokens, "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--documents", type=int, default=12)
    parser.add_argument("--runs", type=int, default=5)
    a = parser.parse_args()
    report("levels", measure(a.model, a.documents, a.runs))
