"""Plain decoding at long contexts, beside Hugging Face ``generate`` on the same prompt.

Each side first runs its own prefill; the time of a token is (n tokens − 1 token) / (n − 1).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from _report import report

from kvpacket_store.api import Engine, Store
from kvpacket_store.benchmarks.baseline import Baseline, fastest_baseline, load_baseline
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.benchmarks.ttft import documents_of, joint_ids

QUESTION = "What are the documents about?"


def theirs(baseline: Baseline, ids: tuple[int, ...], new_tokens: int) -> float:
    """Milliseconds a token of ``generate``, its prefill taken off."""
    first, _ = baseline.generate_ms(ids, 1)
    whole, _ = baseline.generate_ms(ids, new_tokens)
    return (whole - first) / (new_tokens - 1)


def ours(store: Store, chosen: list[str], new_tokens: int) -> float:
    """Milliseconds a token of the engine, everything before the first taken off."""
    started = time.perf_counter()
    answer = Engine(store).generate(
        QUESTION, documents=chosen, max_new_tokens=new_tokens, ignore_eos=True, decode="full"
    )
    total = 1e3 * (time.perf_counter() - started)
    first = answer.timings_ms.first_token or 0.0
    return min(total, answer.timings_ms.total) / (new_tokens - 1) - first / (new_tokens - 1)


def measure(model: str, contexts: list[int], new_tokens: int, runs: int) -> dict[str, Any]:
    """Return a row a context: medians of pairs."""
    rows = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        Store.create(Path(scratch) / "bench.kvps", model=model) as store,
    ):
        documents = example_documents()
        store.ingest(documents)
        for tokens in contexts:
            chosen = documents_of(store, documents, tokens)
            ids = joint_ids(store, chosen)
            baseline = _fastest_generate(model, ids)
            pairs = [
                (ours(store, chosen, new_tokens), theirs(baseline, ids, new_tokens))
                for _ in range(runs)
            ]
            ratios = [t / o for o, t in pairs]
            rows.append(
                {
                    "context_tokens": len(ids),
                    "ms_a_token": statistics.median(o for o, _ in pairs),
                    "hf_ms_a_token": statistics.median(t for _, t in pairs),
                    "hf_dtype": baseline.dtype,
                    "hf_attention": baseline.attention,
                    "ratio": statistics.median(ratios),
                    "spread": [min(ratios), max(ratios)],
                }
            )
    return {"machine": machine(), "runs": runs, "new_tokens": new_tokens, "rows": rows}


def _fastest_generate(model: str, ids: tuple[int, ...]) -> Baseline:
    """Try both dtypes: the one that prefills fastest need not decode fastest."""
    prefill = fastest_baseline(model, ids)
    candidates = [load_baseline(model, dtype, prefill.attention) for dtype in ("bf16", "fp32")]
    short = ids[:1024]
    return min(candidates, key=lambda candidate: theirs(candidate, short, 6))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--contexts", type=int, nargs="*", default=[2000, 7500])
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--runs", type=int, default=3)
    a = parser.parse_args()
    report("decode", measure(a.model, a.contexts, a.new_tokens, a.runs))
