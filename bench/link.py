"""Answers while the exact K and V are on a slow way here: the base is local, the rest is remote.

The peer waits until everything has come, and then decodes one token a step. Ours drafts on the base
meanwhile. The link is simulated: reading an enhancement takes its bytes over the link's speed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from _report import report

from kvpacket_store.api import Engine, Store
from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.benchmarks.ttft import documents_of

QUESTION = "Write a detailed answer with the facts from the documents. What are they about?"


class Link:
    """A way of so many bytes a second, shared by all who use it."""

    def __init__(self, bytes_per_s: float) -> None:
        self.carried_bytes = 0
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0
        self._lock = threading.Lock()

    def __call__(self, num_bytes: int) -> None:
        """Return when so many bytes would have come."""
        with self._lock:
            self.carried_bytes += num_bytes
            arrival = max(self._free_at, time.perf_counter()) + num_bytes / self._bytes_per_s
            self._free_at = arrival
        time.sleep(max(arrival - time.perf_counter(), 0.0))


def once(store: Store, asked: dict[str, Any], link_mb_s: float) -> dict[str, float]:
    """Time a pair on fresh engines; nothing of the packets is in memory."""
    engine, link = Engine(store, memory_bytes=0), Link(1e6 * link_mb_s)
    engine.decoder.policy = SwapPolicy(link=link)
    drafted = engine.generate(QUESTION, **asked, decode="verified", compressor="lookup+base")
    waiting_ms = link.carried_bytes / (1e3 * link_mb_s)
    plain = Engine(store, memory_bytes=0).generate(QUESTION, **asked, decode="full")
    if plain.token_ids != drafted.token_ids:
        raise AssertionError("verified decoding gave other tokens")
    return {
        "link_ms": waiting_ms,
        "waited_ms": waiting_ms + plain.timings_ms.total,
        "drafted_ms": drafted.timings_ms.total,
        "first_draft_ms": drafted.timings_ms.first_draft or 0.0,
        "first_token_ms": drafted.timings_ms.first_token or 0.0,
        "waited_first_token_ms": waiting_ms + (plain.timings_ms.first_token or 0.0),
        "mean_accepted": drafted.decode.mean_accepted or 0.0,
    }


def measure(contexts: list[int], new_tokens: int, runs: int, link_mb_s: float) -> dict[str, Any]:
    """Return a row a context: medians of pairs."""
    rows = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        Store.create(Path(scratch) / "bench.kvps", model="smollm2", codec="linear") as store,
    ):
        documents = example_documents()
        store.ingest(documents)
        for context in contexts:
            asked = {
                "documents": documents_of(store, documents, context),
                "max_new_tokens": new_tokens,
                "ignore_eos": True,
            }
            once(store, asked | {"max_new_tokens": 8}, 1e4)  # compile, warm the file cache
            pairs = [once(store, asked, link_mb_s) for _ in range(runs)]
            ratios = sorted(pair["waited_ms"] / pair["drafted_ms"] for pair in pairs)
            medians = {key: statistics.median(pair[key] for pair in pairs) for key in pairs[0]}
            rows.append(
                {
                    "context_tokens": context,
                    "new_tokens": new_tokens,
                    "link_mb_s": link_mb_s,
                    **medians,
                    "ratio": statistics.median(ratios),
                    "spread": [ratios[0], ratios[-1]],
                }
            )
    return {"machine": machine(), "runs": runs, "codec": "linear", "rows": rows}


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--context-tokens", type=int, nargs="*", default=[2000, 4000, 7500])
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--link-mb-s", type=float, default=50.0)
    args = parser.parse_args()
    report("link", measure(args.context_tokens, args.new_tokens, args.runs, args.link_mb_s))


if __name__ == "__main__":
    main()
