"""Answers from packets beside full recompute, naive reuse and no documents."""

import argparse
from pathlib import Path

from _report import report

from kvpacket_store.benchmarks.quality import measure_quality

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--adapter")
    parser.add_argument("--data", type=Path, help="JSONL: question, answers, documents")
    a = parser.parse_args()
    report("quality", measure_quality(a.model, data=a.data, limit=a.limit, adapter=a.adapter))
