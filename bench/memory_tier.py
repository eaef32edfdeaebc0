"""What the RAM tier should hold: nothing, records as stored, or K and V decoded.

Packets of the example corpus are asked for under a Zipf law (exponent 1), at caps that hold a part
of the corpus. The file cache is warm: that is the tier below.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _report import report

from kvpacket_store.api import Store
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.codec import decode
from kvpacket_store.memory import MemoryTier
from kvpacket_store.prefill import BodyKV


class _Record:
    """A record as stored, with its size."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.nbytes = len(data)


def _load_nothing(store: Store, tier: MemoryTier[Any]) -> Callable[[str], object]:
    del tier
    return lambda key: decode(store.packets.read_record("default", key))


def _load_records(store: Store, tier: MemoryTier[Any]) -> Callable[[str], object]:
    def load(key: str) -> object:
        held, _ = tier.get(key, lambda: _Record(store.packets.read_record("default", key)))
        return decode(held.data)

    return load


def _load_decoded(store: Store, tier: MemoryTier[Any]) -> Callable[[str], object]:
    def load(key: str) -> object:
        return tier.get(key, lambda: BodyKV(*decode(store.packets.read_record("default", key))))[0]

    return load


ARMS = {"nothing": _load_nothing, "records": _load_records, "decoded K and V": _load_decoded}


def measure(requests: int, shares: list[float]) -> dict[str, Any]:
    """Return mean and median time a packet for each arm at each cap."""
    rows = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        Store.create(Path(scratch) / "bench.kvps", model="smollm2") as store,
    ):
        store.ingest(example_documents())
        keys = [manifest.packet_key for manifest in store.packets.iter_packets("default")]
        corpus_bytes = store.stats().raw_bytes
        rng = np.random.default_rng(0)
        weights = 1 / np.arange(1, len(keys) + 1)
        asked = rng.permutation(keys)[
            rng.choice(len(keys), size=requests, p=weights / weights.sum())
        ]
        for share in shares:
            for name, make in ARMS.items():
                tier: MemoryTier[Any] = MemoryTier(int(share * corpus_bytes))
                load, times = make(store, tier), []
                for key in asked:
                    started = time.perf_counter()
                    load(str(key))
                    times.append(1e3 * (time.perf_counter() - started))
                rows.append(
                    {
                        "holds": name,
                        "cap_share_of_raw_corpus": share,
                        "hit_rate": tier.stats().hit_rate,
                        "mean_ms": statistics.mean(times),
                        "median_ms": statistics.median(times),
                    }
                )
    return {"machine": machine(), "file_cache": "warm", "requests": requests, "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--shares", type=float, nargs="*", default=[0.1, 0.25, 0.5])
    arguments = parser.parse_args()
    report("memory_tier", measure(arguments.requests, arguments.shares))
