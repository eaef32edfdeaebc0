"""Which tokens a draft keeps: by importance judged at prefill, by the question, by a window.

At one share of slots, what is accepted of drafts of 32 tokens. `importance` is judged once, when a
packet is prefilled, and `window` too: SnapKV by the packet's last 32 rows, the way in which it is
made part of a packet that no question has been asked about. `snapkv` has the question at hand, on
exact keys, or on those of the base. Bases drop tokens of what the base gives.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from _accepted import INSTRUCTION, Sums, prompts_of
from _report import report
from rich.progress import track

from kvpacket_store.api import Answer, Engine, Store
from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.api.records import make_record
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import QuestionItem
from kvpacket_store.compress import PromptKV, importance_bytes
from kvpacket_store.compress.scorers import snapkv_scores
from kvpacket_store.models import observing_queries

ARMS = ("importance", "window", "snapkv", "random")
WINDOW_ROWS = 32


def window_importance(store: Store, token_ids: tuple[int, ...]) -> bytes:
    """Return SnapKV's scores of a packet without soft tokens, by its own last rows."""
    cache = store.model.new_cache(len(token_ids))
    with observing_queries(WINDOW_ROWS) as queries:
        store.model.forward(token_ids, cache)
    scaling = float(store.model.attentions[0].scaling)
    kv = PromptKV(*cache.rows(0, cache.length), scaling=scaling, queries=torch.stack(queries))
    return importance_bytes(snapkv_scores(kv).clamp(max=1.0))


def file_windows(store: Store) -> None:
    """Put windows' scores in the place of the importance of every packet."""
    loader = PacketLoader(store)
    for key in store.packets.iter_packet_keys("default"):
        body = loader.body("default", key, "")
        scores = window_importance(store, body.token_ids)
        record = make_record(store, key, body.token_ids, body.body, importance=scores)
        store.packets.replace_record("default", record)


def compressors(share: float) -> list[tuple[str, str]]:
    """Return arms and the names of what they draft on."""
    found = []
    for arm in ARMS:
        name = f"{'importance' if arm == 'window' else arm}:{share}"
        found += [(arm, name), (f"base*{arm}", f"base*{name}")]
    return found


def request(item: QuestionItem, new_tokens: int) -> dict[str, Any]:
    """Return what is asked about an item."""
    return {
        "question": f"{INSTRUCTION} {item.question}",
        "documents": [document.id for document in item.documents],
        "max_new_tokens": new_tokens,
        "ignore_eos": True,
    }


def accepted(
    engine: Engine, asked: list[dict[str, Any]], full: list[Answer], compressor: str
) -> dict[str, Any]:
    """Draft all answers on one compressor; return what was accepted."""
    drafts = {"decode": "verified", "compressor": compressor, "draft_tokens": 32}
    sums = Sums()
    for index, one in enumerate(asked):
        sums.take(engine.generate(**one, **drafts), full[index])
    return sums.row()


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--shares", type=float, nargs="*", default=[0.125, 0.25, 0.5])
    a = parser.parse_args()
    prompts, rows = prompts_of(a.prompts), []
    documents = {d.id: d for item in prompts for d in item.documents}.values()
    asked = [request(item, a.new_tokens) for item in prompts]
    with (
        tempfile.TemporaryDirectory() as scratch,
        Store.create(
            Path(scratch) / "bench.kvps",
            model=a.model,
            adapter="none",
            codec="linear",
            importance=True,
        ) as store,
    ):
        store.ingest(documents)
        engine = Engine(store)
        full = [engine.generate(**one, decode="full") for one in asked]
        jobs = [(share, *one) for share in a.shares for one in compressors(share)]
        jobs.sort(key=lambda job: "window" in job[1])  # these last: they take the others' place
        for share, arm, name in track(jobs, "drafts"):
            if arm == "window" and not any("window" in row["arm"] for row in rows):
                file_windows(store)
            rows.append({"share": share, "arm": arm, **accepted(engine, asked, full, name)})
    rows.sort(key=lambda row: (row["share"], row["arm"]))
    plan = {"prompts": a.prompts, "new_tokens": a.new_tokens}
    report("importance", {"machine": machine(), "model": a.model, "plan": plan, "rows": rows})


if __name__ == "__main__":
    main()
