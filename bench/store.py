"""The store alone, with made-up records: reading, a page of many documents, nightly churn."""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _report import report

from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

_BATCH_DOCUMENTS = 500


def _fill(store: PacketStore, names: list[str], record_bytes: int, version: int = 0) -> None:
    for start in range(0, len(names), _BATCH_DOCUMENTS):
        store.put_documents(
            "default",
            [
                make_write(name, [make_record(f"{name} {version}", record_bytes)], version=version)
                for name in names[start : start + _BATCH_DOCUMENTS]
            ],
        )


def _median_ms(action: Callable[[int], object], runs: int) -> float:
    times = []
    for i in range(runs):
        started = time.perf_counter()
        action(i)
        times.append(1e3 * (time.perf_counter() - started))
    return statistics.median(times)


def reading(folder: Path, runs: int) -> dict[str, Any]:
    """Copy records of 4 MB out of LMDB, checksums included; the file cache is warm."""
    record_bytes, names = 4_000_000, [f"d{i}" for i in range(20)]
    with PacketStore.create(folder / "reading.kvps", make_meta()) as store:
        _fill(store, names, record_bytes)
        keys = [make_record(f"{name} 0").packet_key for name in names]
        milliseconds = _median_ms(
            lambda i: store.read_record("default", keys[i % len(keys)]), runs * len(keys)
        )
    return {
        "what": "read a record of 4 MB",
        "value": record_bytes / milliseconds / 1e6,
        "unit": "GB/s",
    }


def paging(folder: Path, documents: int, runs: int) -> list[dict[str, Any]]:
    """List, look up and delete by id among many documents."""
    names = [f"d{i:07d}" for i in range(documents)]
    rng = random.Random(0)
    with PacketStore.create(folder / "paging.kvps", make_meta()) as store:
        _fill(store, names, 500)
        victims = rng.sample(names, runs)
        timed = {
            "list a page of 100": lambda i: store.list_documents("default", 100, victims[i]),
            "look up a document": lambda i: store.get_document("default", victims[-i]),
            "look up a packet": lambda i: store.has_packet(
                "default", make_record(f"{victims[-i]} 0").packet_key
            ),
            "delete a document": lambda i: store.delete_document("default", victims[i]),
        }
        return [
            {"what": f"{what} of {documents:,}", "value": _median_ms(action, runs), "unit": "ms"}
            for what, action in timed.items()
        ]


def churn(folder: Path, nights: int) -> dict[str, Any]:
    """Replace a quarter of the documents, night after night; compare the file with what is live."""
    sizes = [200_000, 500_000, 1_000_000, 2_000_000]
    rng = random.Random(0)
    versions = {f"d{i}": 0 for i in range(200)}
    size_of = {name: rng.choice(sizes) for name in versions}
    with PacketStore.create(folder / "churn.kvps", make_meta()) as store:
        for name in versions:
            _fill(store, [name], size_of[name])
        for _ in range(nights):
            for name in rng.sample(sorted(versions), len(versions) // 4):
                versions[name] += 1
                _fill(store, [name], size_of[name], versions[name])
        stats = store.stats()
    ratio = stats.file_bytes / stats.live_bytes
    return {"what": f"file over live bytes after {nights} nights", "value": ratio, "unit": "×"}


def measure(documents: int, runs: int, nights: int) -> dict[str, Any]:
    """Return every row."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rows = [reading(folder, runs), *paging(folder, documents, 20 * runs), churn(folder, nights)]
    return {"machine": machine(), "file_cache": "warm", "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--nights", type=int, default=12)
    arguments = parser.parse_args()
    report("store", measure(arguments.documents, arguments.runs, arguments.nights))
