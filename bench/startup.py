"""The second start: ``kvps ask`` on an existing store, as a whole process, cold to first answer.

Beside it, what no program on these libraries can save: a process that imports torch and
transformers, loads the same model from the same folder, and makes one token.
"""

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
from kvpacket_store.models.presets import preset_folder

BARE = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained({folder!r})
model = AutoModelForCausalLM.from_pretrained({folder!r})
model.generate(**tokenizer("Who was it?", return_tensors="pt"), max_new_tokens=1)
"""


def _seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def measure(runs: int) -> dict[str, Any]:
    """Return medians; the first pair, which fills the file cache, is not counted."""
    ask = [sys.executable, "-c", "from kvpacket_store.cli import main; main()", "ask"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "bench.kvps"
        with Store.create(folder, model="smollm2") as store:
            store.ingest(example_documents()[:20])
        command = [*ask, str(folder), "Who was it?", "--max-new-tokens", "1", "--json"]
        bare = [sys.executable, "-c", BARE.format(folder=str(preset_folder("smollm2")))]
        pairs = [(_seconds(command), _seconds(bare)) for _ in range(runs + 1)][1:]
    ours = [pair[0] for pair in pairs]
    row = {
        "median_s": statistics.median(ours),
        "min_s": min(ours),
        "max_s": max(ours),
        "bare_transformers_s": statistics.median(pair[1] for pair in pairs),
        "ratio": statistics.median(own / other for own, other in pairs),
    }
    return {"machine": machine(), "runs": runs, "rows": [row]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    report("startup", measure(parser.parse_args().runs))
