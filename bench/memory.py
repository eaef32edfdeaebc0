"""Peak memory of an ingest of 2,000 paragraphs, as the operating system accounts it.

The paragraphs are the examples', each made distinct by a number in front. The ingest runs in a
process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _report import report

from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import example_documents


def write_corpus(path: Path, count: int) -> None:
    """Write ``count`` distinct paragraphs as JSONL."""
    documents = example_documents()
    with path.open("w") as lines:
        for i in range(count):
            text = f"{i}. {documents[i % len(documents)].text}"
            lines.write(json.dumps({"id": f"p{i}", "text": text}) + "\n")


def measure(count: int) -> dict[str, Any]:
    """Ingest in a child; return its peak resident size."""
    with tempfile.TemporaryDirectory() as scratch:
        corpus, store = Path(scratch) / "corpus.jsonl", Path(scratch) / "bench.kvps"
        write_corpus(corpus, count)
        kvps = [sys.executable, "-c", "from kvpacket_store.cli import main; main()"]
        subprocess.run([*kvps, "init", str(store)], check=True, stdout=subprocess.DEVNULL)
        child = subprocess.Popen(
            [*kvps, "ingest", str(store), str(corpus), "--json"], stdout=subprocess.PIPE
        )
        outcome = json.loads(child.stdout.read() if child.stdout else b"{}")
        _, _, usage = os.wait4(child.pid, 0)
    row = {
        "paragraphs": count,
        "tokens": outcome["tokens"],
        "raw_mb": outcome["raw_bytes"] / 1e6,
        "stored_mb": outcome["stored_bytes"] / 1e6,
        "peak_gib": usage.ru_maxrss / 2**20,
        "elapsed_s": outcome["elapsed_ms"] / 1e3,
    }
    return {"machine": machine(), "rows": [row]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paragraphs", type=int, default=2000)
    report("memory", measure(parser.parse_args().paragraphs))
