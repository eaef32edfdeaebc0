"""The second start: ``kvps ask`` on an existing store, as a whole process, cold to first answer."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _report import report

from kvpacket_store.api import Store
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import example_documents


def measure(runs: int) -> dict[str, Any]:
    """Return medians; the first run, which fills the file cache, is not counted."""
    ask = [sys.executable, "-c", "from kvpacket_store.cli import main; main()", "ask"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "bench.kvps"
        with Store.create(folder, model="smollm2") as store:
            store.ingest(example_documents()[:20])
        command = [*ask, str(folder), "Who was it?", "--max-new-tokens", "1", "--json"]
        seconds = []
        for _ in range(runs + 1):
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - started)
    row = {
        "median_s": statistics.median(seconds[1:]),
        "min_s": min(seconds[1:]),
        "max_s": max(seconds[1:]),
    }
    return {"machine": machine(), "runs": runs, "rows": [row]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    report("startup", measure(parser.parse_args().runs))
