"""Time to first token: packets from disk beside a full prefill of the same prompt."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kvpacket_store.api import Engine, Store
from kvpacket_store.benchmarks.baseline import Baseline, fastest_baseline
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.types import Document, TokenIds

__all__ = ["CONTEXT_TOKENS", "documents_of", "joint_ids", "measure_ttft"]

CONTEXT_TOKENS = (500, 1000, 2000, 4000, 7500)
_QUESTION = "What are the documents about?"


def measure_ttft(
    model: str = "smollm2",
    *,
    runs: int = 5,
    contexts: Sequence[int] = CONTEXT_TOKENS,
    data: Path | None = None,
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Measure pairs, one after the other, and report medians.

    The packet time runs from the request to the first token with none of the packets in memory: a
    new engine each time, records read from LMDB and decoded. The file cache is warm. The full
    prefill is Hugging Face's forward over the same token ids, soft tokens left out.
    """
    with (
        tempfile.TemporaryDirectory() as scratch,
        Store.create(Path(scratch) / "bench.kvps", model=model) as store,
    ):
        documents = example_documents(data)
        store.ingest(documents)
        prompts = [documents_of(store, documents, tokens) for tokens in contexts]
        rows = []
        for chosen in prompts:
            baseline = fastest_baseline(model, joint_ids(store, chosen))
            rows.append(_row(store, chosen, baseline, runs))
            on_row(rows[-1])  # a long context takes minutes: show what is there
        setting = {"codec": store.meta.codec, "kv_dtype": store.meta.kv_dtype}
    return {"machine": machine(), "file_cache": "warm", "runs": runs, **setting, "rows": rows}


def documents_of(store: Store, documents: Sequence[Document], tokens: int) -> list[str]:
    """Choose documents, in order, of about ``tokens`` together."""
    chosen, total = [], 0
    for document in documents:
        count = store.packets.get_document("default", document.id).tokens
        if total + count > tokens + count // 2:
            break
        chosen.append(document.id)
        total += count
    return chosen


def joint_ids(store: Store, chosen: list[str]) -> TokenIds:
    """Return the whole prompt's token ids."""
    engine = Engine(store)
    _, ids = engine.assemble(_QUESTION, documents=chosen, max_new_tokens=1)
    return tuple(ids[0].tolist())


def _row(store: Store, chosen: list[str], baseline: Baseline, runs: int) -> dict[str, Any]:
    ids = joint_ids(store, chosen)
    baseline.prefill_ms(ids)
    _packet_run(store, chosen)  # one of each is not counted
    pairs = [(_packet_run(store, chosen), baseline.prefill_ms(ids)) for _ in range(runs)]
    packet = [timings["first_token"] for timings, _ in pairs]
    full = [full for _, full in pairs]
    ratios = [f / p for f, p in zip(full, packet, strict=True)]
    stages = ("retrieve", "load", "decode", "assemble", "prefill")
    return {
        "documents": len(chosen),
        "context_tokens": len(ids),
        "full_prefill_ms": statistics.median(full),
        "full_prefill_dtype": baseline.dtype,
        "full_prefill_attention": baseline.attention,
        "packet_ms": statistics.median(packet),
        "packet_breakdown_ms": {
            stage: statistics.median(timings[stage] for timings, _ in pairs) for stage in stages
        },
        "ratio": statistics.median(ratios),
        "spread": [min(ratios), max(ratios)],
    }


def _packet_run(store: Store, chosen: list[str]) -> dict[str, float]:
    answer = Engine(store).generate(_QUESTION, documents=chosen, max_new_tokens=1, ignore_eos=True)
    return answer.timings_ms.to_dict()
