"""An ingest, beside the longer of the model's own prefill of the same tokens and the codec's work.

The model's own prefill is its forward over each segment, alone, nothing captured, nothing stored.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from _report import report

from kvpacket_store.api import Store
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.codec import encode
from kvpacket_store.types import Document


def prefill_ms(store: Store, documents: list[Document]) -> float:
    """Time the bare forwards."""
    model = store.model
    segments = [segment.token_ids for d in documents for segment in store.segments(d)]
    started = time.perf_counter()
    for ids in segments:
        model.forward(ids, model.new_cache(len(ids)))
    return 1e3 * (time.perf_counter() - started)


def codec_ms(store: Store, documents: list[Document]) -> float:
    """Time the encoding of the stored packets."""
    packets = [
        store.packet(d.id, index=i)
        for d in documents
        for i in range(len(store.show(d.id)["packets"]))
    ]
    started = time.perf_counter()
    for packet in packets:
        encode(packet.k, packet.v, kv_dtype=packet.kv_dtype, level=store.meta.codec)
    return 1e3 * (time.perf_counter() - started)


def measure(model: str, num_documents: int, runs: int) -> dict[str, Any]:
    """Return medians of runs that alternate."""
    documents = example_documents()[:num_documents]
    rows, codec = [], 0.0
    with tempfile.TemporaryDirectory() as scratch:
        for run in range(runs + 1):
            with Store.create(Path(scratch) / f"{run}.kvps", model=model) as store:
                bare = prefill_ms(store, documents)
                store.embedder.embed(["warm"])
                ingest = store.ingest(documents)
                codec = codec_ms(store, documents)
                if run:  # the first warms up
                    rows.append((ingest.elapsed_ms, bare, codec))
    ratios = [ingest / max(bare, codec) for ingest, bare, codec in rows]
    row = {
        "documents": len(documents),
        "tokens": ingest.tokens,
        "ingest_ms": statistics.median(r[0] for r in rows),
        "prefill_ms": statistics.median(r[1] for r in rows),
        "codec_ms": statistics.median(r[2] for r in rows),
        "ingest_over_longer": statistics.median(ratios),
        "spread": [min(ratios), max(ratios)],
        "tokens_per_s": 1e3 * ingest.tokens / statistics.median(r[0] for r in rows),
    }
    return {"machine": machine(), "runs": runs, "rows": [row]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--documents", type=int, default=30)
    parser.add_argument("--runs", type=int, default=3)
    a = parser.parse_args()
    report("ingest", measure(a.model, a.documents, a.runs))
