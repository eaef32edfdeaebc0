"""Long answers where one wrong token spoils all: copied JSON, tool calls, code.

Beside one-token decoding on the exact K and V: decoding on a draft alone, never verified, and
verified decoding with the same draft. Where does the answer leave the exact one, does its JSON
still parse, and how far is each step's distribution (KL, over the exact answer's tokens).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from _report import report

from kvpacket_store.api import Engine, Store
from kvpacket_store.api.answer import Timings
from kvpacket_store.api.begun import Begun
from kvpacket_store.api.request import checked_options
from kvpacket_store.api.selection import Query
from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.generate import Final, decode_alone, plain_decoding
from kvpacket_store.models import RowWork, SlotCache
from kvpacket_store.types import Document

COMPRESSORS = ("base", "base*int8", "base*int4", "base*snapkv:0.5", "base*snapkv:0.25")
NAMES = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty")


def documents(pairs: int) -> Iterator[tuple[Document, str]]:
    """Yield documents of about 600 tokens, JSON and code in turn, and what to do with each."""
    for seed in range(pairs):
        calls = [
            {
                "tool": f"set_{NAMES[(3 * i + seed) % 10]}",
                "arguments": {"id": 1000 * seed + 37 * i, "unit": NAMES[(7 * i + seed) % 10]},
            }
            for i in range(14)
        ]
        text = json.dumps(calls, indent=1)
        yield Document(f"calls-{seed}", text, {}), "Repeat the JSON document exactly. Only JSON."
        functions = "\n\n".join(
            f"def {NAMES[(i + seed) % 10]}_{i}(value, factor={i + seed}):\n"
            f'    """Return {NAMES[(5 * i + seed) % 10]} of a value."""\n'
            f"    return value * factor + {13 * i + seed}"
            for i in range(12)
        )
        yield Document(f"code-{seed}", functions, {}), "Repeat the Python file exactly. Only code."


def begin(engine: Engine, document: Document, question: str, **options: Any) -> Begun:
    """Begin a request by hand: what follows looks into it."""
    chosen = checked_options({"ignore_eos": False, **options})
    query = Query(question, [document.id], None, None, "default")
    return engine.begin(query, chosen, Timings(), policy=SwapPolicy())


def cache_of(begun: Begun) -> SlotCache:
    """Return the slots that a request drafts on."""
    if begun.drafting is None:
        raise ValueError("this request does not draft on K and V")
    return begun.drafting.caches[0]


def draft_alone(engine: Engine, begun: Begun) -> tuple[list[int], torch.Tensor]:
    """Decode on the draft's K and V and verify nothing; return tokens and the prompt's logits."""
    cache, model = cache_of(begun), engine.store.model
    question = begun.assembled.question_ids
    # the view keeps the question's rows; its last one is run again for its logits
    cache.set_length(cache.length - 1)
    logits = model.row_forward()((RowWork(cache, question[-1:]),))[0][-1]
    decoding = plain_decoding(begun.answering, cache, logits)
    events = decode_alone(decoding, model.row_forward())
    return [event.token_id for event in events if isinstance(event, Final)], logits


def kl_nats(engine: Engine, exact: Begun, draft: Begun, answer: list[int]) -> float:
    """Return the mean over an answer's tokens of KL(exact ‖ draft)."""
    logits = []
    for cache, ids in ((exact.exact, exact), (cache_of(draft), draft)):
        prompt_end = ids.assembled.plan.prompt_positions - cache.position_offset
        cache.set_length(prompt_end - 1)
        rows = (ids.assembled.question_ids[-1], *answer[:-1])
        logits.append(engine.store.model.forward(rows, cache, keep_logits=len(answer)))
    p, q = (torch.log_softmax(part.double(), dim=-1) for part in logits)
    return float((p.exp() * (p - q)).sum(-1).mean())


def parses(text: str) -> bool:
    """Whether a text is JSON, a code fence around it aside."""
    try:
        json.loads(text.strip().removeprefix("```json").removesuffix("```").strip())
    except ValueError:
        return False
    return True


def one(
    engine: Engine, document: Document, question: str, name: str, tokens: int
) -> dict[str, Any]:
    """Compare the three on one document."""
    asked = {"max_new_tokens": tokens, "documents": [document.id]}
    plain = engine.generate(question, **asked, decode="full")
    verified = engine.generate(
        question, **asked, decode="verified", compressor=name, draft_tokens=24
    )
    options = {"decode": "verified", "compressor": name, "max_new_tokens": tokens}
    drafted, _ = draft_alone(engine, begin(engine, document, question, **options))
    exact = begin(engine, document, question, decode="full", max_new_tokens=tokens)
    draft = begin(engine, document, question, **options)
    pairs = zip(plain.token_ids, drafted, strict=False)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if first is None and len(drafted) != len(plain.token_ids):
        first = min(len(drafted), len(plain.token_ids))
    decode = engine.store.model.tokenizer.detokenize
    return {
        "kind": document.id.split("-")[0],
        "tokens": len(plain.token_ids),
        "verified_identical": verified.token_ids == plain.token_ids,
        "first_divergence": first,
        "kl_nats": kl_nats(engine, exact, draft, plain.token_ids),
        "json": [parses(t) for t in (plain.text, verified.text, decode(drafted))],
        "mean_accepted": verified.decode.mean_accepted,
        "bits": verified.decode.draft_bits_per_scalar,
    }


def summary(name: str, kind: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Put the documents of one kind together."""
    diverged = [row["first_divergence"] for row in found if row["first_divergence"] is not None]
    return {
        "compressor": name,
        "kind": kind,
        "draft_bits_per_scalar": sum(row["bits"] for row in found) / len(found),
        "documents": len(found),
        "tokens": sum(row["tokens"] for row in found),
        "verified_identical": sum(row["verified_identical"] for row in found),
        "draft_alone_identical": len(found) - len(diverged),
        "median_first_divergence": sorted(diverged)[len(diverged) // 2] if diverged else None,
        "draft_alone_kl_nats": sum(row["kl_nats"] for row in found) / len(found),
        "json_exact": sum(row["json"][0] for row in found) if kind == "calls" else None,
        "json_verified": sum(row["json"][1] for row in found) if kind == "calls" else None,
        "json_draft_alone": sum(row["json"][2] for row in found) if kind == "calls" else None,
        "mean_accepted": sum(row["mean_accepted"] for row in found) / len(found),
    }


def measure(tokens: int, pairs: int, compressors: Sequence[str]) -> None:
    """Report two rows a compressor, calls and code, as soon as they are there."""
    rows = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        Store.create(Path(scratch) / "bench.kvps", model="smollm2", codec="linear") as store,
    ):
        tasks = list(documents(pairs))
        store.ingest([document for document, _ in tasks])
        engine = Engine(store)
        for name in compressors:
            found = [one(engine, document, question, name, tokens) for document, question in tasks]
            rows += [
                summary(name, kind, [row for row in found if row["kind"] == kind])
                for kind in ("calls", "code")
            ]
            report("divergence", {"machine": machine(), "rows": rows})


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=640)
    parser.add_argument("--pairs", type=int, default=4, help="documents of JSON and of code")
    parser.add_argument("--compressors", nargs="*", default=COMPRESSORS)
    args = parser.parse_args()
    measure(args.tokens, args.pairs, args.compressors)


if __name__ == "__main__":
    main()
