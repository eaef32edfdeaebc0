"""Time to first token from packets on disk, beside a full prefill of the same prompt."""

import argparse
import json
import sys

from _report import report

from kvpacket_store.benchmarks.ttft import CONTEXT_TOKENS, measure_ttft

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--contexts", type=int, nargs="*", default=CONTEXT_TOKENS)
    arguments = parser.parse_args()
    report(
        "ttft",
        measure_ttft(
            arguments.model,
            runs=arguments.runs,
            contexts=arguments.contexts,
            on_row=lambda row: print(json.dumps(row), file=sys.stderr, flush=True),
        ),
    )
