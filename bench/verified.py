"""Verified decoding beside one-token decoding and Hugging Face ``generate``, token for token."""

import argparse
import json
import sys

from _report import report

from kvpacket_store.benchmarks.baseline import load_baseline
from kvpacket_store.benchmarks.decode import DecodePlan, measure_decode, store_of_examples
from kvpacket_store.benchmarks.paragraphs import example_documents

if __name__ == "__main__":
    plan = DecodePlan()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--contexts", type=int, nargs="*", default=plan.contexts)
    parser.add_argument("--batches", type=int, nargs="*", default=plan.batches)
    parser.add_argument("--compressors", nargs="*", default=plan.compressors)
    parser.add_argument("--exactness", default=plan.exactness)
    parser.add_argument("--temperatures", type=float, nargs="*", default=plan.temperatures)
    parser.add_argument("--new-tokens", type=int, default=plan.new_tokens)
    parser.add_argument("--runs", type=int, default=plan.runs)
    a = parser.parse_args()
    plan = DecodePlan(
        tuple(a.contexts),
        tuple(a.batches),
        tuple(a.compressors),
        a.exactness,
        tuple(a.temperatures),
        a.new_tokens,
        a.runs,
    )
    with store_of_examples(a.model) as store:
        result = measure_decode(
            store,
            example_documents(),
            plan,
            peers=[load_baseline(a.model, dtype, "sdpa") for dtype in ("bf16", "fp32")],
            on_row=lambda row: print(json.dumps(row), file=sys.stderr, flush=True),
        )
    report("verified", result)
