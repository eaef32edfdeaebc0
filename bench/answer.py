"""A whole answer of 64 tokens over about 2,000 tokens of documents, beside llama.cpp.

llama.cpp runs the same GGUF file on the same token ids with the same number of threads; its prompt
is prefilled from nothing, as without a document store. ``pip install llama-cpp-python`` builds it.
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
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.benchmarks.ttft import documents_of, joint_ids
from kvpacket_store.models import PRESETS

QUESTION = "What are the documents about?"


def llama_cpp(ids: tuple[int, ...], new_tokens: int, threads: int) -> Any:
    """Return a function that runs the peer once, ms; None where it is not installed."""
    try:
        from llama_cpp import Llama
    except ImportError:
        return None
    gguf = PRESETS["smollm2"].gguf()[0]
    llama = Llama(
        str(gguf), n_ctx=8192, n_threads=threads, n_threads_batch=threads, verbose=False, seed=0
    )

    def run() -> float:
        llama.reset()
        started = time.perf_counter()
        for count, _ in enumerate(llama.generate(list(ids), temp=0.0, reset=True), start=1):
            if count == new_tokens:
                break
        return 1e3 * (time.perf_counter() - started)

    return run


def measure(tokens: int, new_tokens: int, runs: int) -> dict[str, Any]:
    """Return medians of pairs."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        Store.create(Path(scratch) / "bench.kvps", model="smollm2") as store,
    ):
        documents = example_documents()
        store.ingest(documents)
        chosen = documents_of(store, documents, tokens)
        ids = joint_ids(store, chosen)
        peer = llama_cpp(ids, new_tokens, torch.get_num_threads())

        def ours() -> float:
            started = time.perf_counter()
            Engine(store).generate(
                QUESTION, documents=chosen, max_new_tokens=new_tokens, ignore_eos=True
            )
            return 1e3 * (time.perf_counter() - started)

        ours()
        pairs = [(ours(), peer() if peer else None) for _ in range(runs)]
    ratios = [theirs / own for own, theirs in pairs if theirs is not None]
    row = {
        "context_tokens": len(ids),
        "new_tokens": new_tokens,
        "answer_ms": statistics.median(own for own, _ in pairs),
        "llama_cpp_ms": statistics.median(t for _, t in pairs) if ratios else None,
        "ratio": statistics.median(ratios) if ratios else None,
        "spread": [min(ratios), max(ratios)] if ratios else None,
    }
    return {"machine": machine(), "runs": runs, "rows": [row]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--runs", type=int, default=5)
    a = parser.parse_args()
    report("answer", measure(a.tokens, a.new_tokens, a.runs))
