"""The main job in one go: ingest, ask, and compare with a full prefill of the same prompt."""

from __future__ import annotations

import logging
import os
import statistics
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import kvpacket_store as kv
from kvpacket_store.benchmarks.baseline import fastest_baseline
from kvpacket_store.benchmarks.paragraphs import example_documents

HERE = Path(__file__).parent
STORE = HERE.parent / "demo.kvps"
QUESTION = "Who founded the Yuan dynasty?"
RUNS = 3
console = Console(highlight=False)


def open_store() -> kv.Store:
    """Open the demo's store, or make it with SmolLM2-135M-Instruct."""
    if STORE.exists():
        return kv.Store.open(STORE)
    console.print("[bold]1. Creating demo.kvps[/] for SmolLM2-135M-Instruct (first time: ~1 min)")
    return kv.Store.create(STORE, model="smollm2")


def ingest(store: kv.Store) -> None:
    """Prefill the example corpus; a second run finds every packet there."""
    documents = example_documents()
    console.print(f"[bold]2. Ingesting[/] {len(documents)} paragraphs of {HERE.name}/corpus")
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("prefill", total=len(documents))
        report = store.ingest(
            documents, progress=lambda now: bar.update(task, completed=now.documents)
        )
    ratio = "" if report.ratio is None else f", ratio {report.ratio:.2f}"
    console.print(
        f"   {report.packets.added} packets prefilled, {report.packets.reused} found{ratio}, "
        f"{report.elapsed_ms / 1e3:.1f} s"
    )


def main() -> int:
    """Run the demo."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    with open_store() as store:
        ingest(store)
        engine = kv.Engine(store)
        engine.generate(QUESTION, max_new_tokens=1)  # load the embedder
        console.print(f"[bold]3. Asking[/] {QUESTION}")
        answer = engine.generate(QUESTION, max_new_tokens=32)
        console.print(f"   [green]{answer.text.strip()}[/]")
        show_documents(answer)
        compare(store, answer)
    return 0


def show_documents(answer: kv.Answer) -> None:
    """Show what the answer was made from."""
    table = Table(box=None, pad_edge=False)
    for column in ("   document", "score", "tokens", "from"):
        table.add_column(column, justify="left" if column.endswith("document") else "right")
    for document in answer.documents:
        for packet in document.packets:
            score = "" if document.score is None else f"{document.score:.3f}"
            table.add_row(f"   {document.id}", score, str(packet.tokens), packet.tier)
    console.print(table)


def compare(store: kv.Store, answer: kv.Answer) -> None:
    """Time to first token from packets, beside Hugging Face's own forward on the same ids."""
    console.print("[bold]4. Time to first token[/], same prompt")
    ids = [document.id for document in answer.documents]
    _, input_ids = kv.Engine(store).assemble(QUESTION, documents=ids, max_new_tokens=1)
    prompt = tuple(input_ids[0].tolist())
    baseline = fastest_baseline(store.meta.model, prompt)
    packet, full = [], []
    for _ in range(RUNS):
        run = kv.Engine(store).generate(QUESTION, documents=ids, max_new_tokens=1, ignore_eos=True)
        packet.append(run.timings_ms.first_token or 0.0)
        full.append(baseline.prefill_ms(prompt))
    ours, theirs = statistics.median(packet), statistics.median(full)
    console.print(
        f"   packets from disk {ours:7.0f} ms   ({run.usage.cached_tokens} of "
        f"{run.usage.prompt_tokens} prompt tokens cached)\n"
        f"   full prefill      {theirs:7.0f} ms   (Hugging Face, {baseline.dtype}, "
        f"{baseline.attention}: its fastest here)\n"
        f"   [bold]{theirs / ours:.1f} x sooner[/]"
    )


if __name__ == "__main__":
    sys.exit(main())
