"""Plain decoding at long contexts, beside Hugging Face ``generate`` from the same K and V.

Both sides go on from one assembled cache; the peer gets a ``DynamicCache`` with a copy of it in the
dtype that decodes fastest here. A token's time is (n + 1 tokens − 1 token) / n.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from _report import report

from kvpacket_store.api import Engine, Store
from kvpacket_store.benchmarks.baseline import load_baseline
from kvpacket_store.benchmarks.decode_peer import fastest_peer, peer_ms_a_token
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.benchmarks.ttft import documents_of
from kvpacket_store.models import SlotCache

QUESTION = "What are the documents about?"
DTYPES = ("bf16", "fp32")


def ours(store: Store, ids: torch.Tensor, cache: SlotCache, new_tokens: int) -> float:
    """Milliseconds a token of the engine's step."""
    filled = ids.shape[1] - 1
    cache.set_length(filled)
    step = store.model.row_step(cache)
    token = int(step(int(ids[0, -1])).argmax())
    started = time.perf_counter()
    for _ in range(new_tokens):
        token = int(step(token).argmax())
    elapsed = 1e3 * (time.perf_counter() - started) / new_tokens
    cache.set_length(filled)
    return elapsed


def measure(model: str, contexts: list[int], new_tokens: int, runs: int) -> dict[str, Any]:
    """Return a row a context: medians of pairs."""
    rows = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        Store.create(Path(scratch) / "bench.kvps", model=model) as store,
    ):
        documents = example_documents()
        store.ingest(documents)
        engine = Engine(store)
        baselines = [load_baseline(model, dtype, "sdpa") for dtype in DTYPES]
        for tokens in contexts:
            chosen = documents_of(store, documents, tokens)
            cache, ids = engine.assemble(QUESTION, documents=chosen)
            store.model.forward(tuple(ids[0, cache.length : -1].tolist()), cache)
            best = fastest_peer(baselines, ids, cache)
            pairs = [
                (ours(store, ids, cache, new_tokens), peer_ms_a_token(best, ids, cache, new_tokens))
                for _ in range(runs)
            ]
            ratios = [t / o for o, t in pairs]
            rows.append(
                {
                    "context_tokens": ids.shape[1],
                    "ms_a_token": statistics.median(o for o, _ in pairs),
                    "hf_ms_a_token": statistics.median(t for _, t in pairs),
                    "hf_dtype": best.dtype,
                    "ratio": statistics.median(ratios),
                    "spread": [min(ratios), max(ratios)],
                }
            )
    return {"machine": machine(), "runs": runs, "new_tokens": new_tokens, "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--contexts", type=int, nargs="*", default=[2000, 7500])
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--runs", type=int, default=5)
    a = parser.parse_args()
    report("decode", measure(a.model, a.contexts, a.new_tokens, a.runs))
