"""``kvps adapter``: train header and trailer on text of one's own; list the adapters at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvpacket_store.cli import adapter_correct, adapter_eval
from kvpacket_store.cli.adapter_list import list_adapters
from kvpacket_store.cli.adapter_model import load_for
from kvpacket_store.cli.output import JSON_OPTION, err, out, plain, print_json, table
from kvpacket_store.cli.page import write_text
from kvpacket_store.errors import UsageError

if TYPE_CHECKING:
    from kvpacket_store.training import TrainingReport

__all__ = ["adapter_app"]

adapter_app = typer.Typer(
    help="Soft tokens around every packet: train them, list them, see what they are worth."
)
adapter_app.command("list")(list_adapters)
adapter_app.command("eval")(adapter_eval.eval)
adapter_app.command("correct")(adapter_correct.correct)

_DTYPES = ("auto", "bf16", "fp32")


@adapter_app.command("train")
def train(
    folder: Annotated[str, typer.Argument(help="Gets adapter, checkpoint, report and plot.")],
    paths: Annotated[
        list[str] | None, typer.Argument(help="Documents: files, folders, JSONL.", show_default="")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Whose adapter.", show_default="the store's, or smollm2")
    ] = None,
    store: Annotated[str | None, typer.Option(help="Train on a store's documents too.")] = None,
    namespace: Annotated[
        str | None, typer.Option(help="One namespace's documents; all without.")
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="JSONL of {question, answers, documents}; again for more."),
    ] = None,
    adapter: Annotated[
        Path | None, typer.Option(help="Go on from this one.", show_default="a new one")
    ] = None,
    header: Annotated[
        str,
        typer.Option(help="preamble: begins as the preamble, left behind; soft: random, stays."),
    ] = "preamble",
    tokens: Annotated[int, typer.Option(help="Of a soft header, and of its trailer.")] = 8,
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 100,
    batch: Annotated[int, typer.Option(help="Samples a step.")] = 8,
    samples: Annotated[int, typer.Option(help="Different samples.")] = 256,
    validation_samples: Annotated[int, typer.Option(help="Held out, of other documents.")] = 16,
    questions: Annotated[int, typer.Option(help="On each sample's packets.")] = 4,
    max_packets: Annotated[int, typer.Option(help="A sample has 1 to so many.")] = 8,
    sample_tokens: Annotated[int, typer.Option(help="The most tokens of a sample.")] = 2000,
    answer_tokens: Annotated[int, typer.Option(help="The most tokens of an answer.")] = 32,
    kl_weight: Annotated[float, typer.Option(help="Of the KL to the teacher.")] = 1.0,
    ce_weight: Annotated[float, typer.Option(help="Of the teacher's tokens.")] = 0.0,
    learning_rate: Annotated[float, typer.Option(help="At first; falls to 0.")] = 3e-3,
    validate_every: Annotated[int, typer.Option(help="Steps between held-out KLs.")] = 10,
    patience: Annotated[int, typer.Option(help="Held-out KLs without gain that end it.")] = 5,
    minutes: Annotated[float | None, typer.Option(help="Ends training by the clock.")] = None,
    dtype: Annotated[str, typer.Option(help="Compute in bf16, fp32 or what suits.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of samples, order and first soft tokens.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Train an adapter: the model learns to answer from packets as it does from the whole text.

    No labels are needed. --minutes 60 on two cores is for SmolLM2; Ctrl-C loses no step.
    """
    if dtype not in _DTYPES:
        raise UsageError(f"dtype {dtype!r} is none of {', '.join(_DTYPES)}")
    if not (paths or store or data):
        raise UsageError("nothing to train on; name files, --store or --data")
    from kvpacket_store.adapters import load_adapter
    from kvpacket_store.training import TrainOptions, gather, train_adapter

    options = TrainOptions(
        header=header,
        num_tokens=tokens,
        steps=steps,
        batch=batch,
        samples=samples,
        validation_samples=validation_samples,
        questions=questions,
        max_packets=max_packets,
        sample_tokens=sample_tokens,
        answer_tokens=answer_tokens,
        kl_weight=kl_weight,
        ce_weight=ce_weight,
        learning_rate=learning_rate,
        validate_every=validate_every,
        patience=patience,
        minutes=minutes,
        seed=seed,
    )
    corpus = gather(store=store, namespace=namespace, paths=paths or [], question_sets=data or [])
    for failure in corpus.failures:
        err.print(plain(failure))
    from kvpacket_store.cli.adapter_progress import training_bar

    start = None if adapter is None else load_adapter(adapter)
    loaded = load_for(model, store, dtype)
    try:
        with training_bar() as watch:
            report = train_adapter(
                loaded, corpus, folder, options, start=start, resume=resume, watch=watch
            )
    except KeyboardInterrupt:
        err.print(plain("stopped; the last step is kept. To go on: the same with --resume"))
        raise
    _tell(report, Path(folder), as_json)


def _tell(report: TrainingReport, folder: Path, as_json: bool) -> None:
    from kvpacket_store.cli.adapter_page import adapter_page

    told: dict[str, Any] = report.to_dict()
    page = folder / "training.html"
    write_text(page, adapter_page(told))
    if as_json:
        print_json({**told, "page": str(page)})
        return
    rows: list[list[object]] = [
        ["no soft tokens", f"{report.kl_naive:.4f}", ""],
        ["untrained", f"{report.kl_before:.4f}", ""],
        [f"best, step {report.best_step}", f"{report.kl_after:.4f}", f"{report.gap_closed:.0%}"],
    ]
    out.print(table("", ["held out", "KL, nats a token", "gap closed"], rows))
    out.print(
        plain(
            f"adapter {report.digest[:12]}: {report.adapter}\ncurve: {page}\n"
            f"To use it: kvps init STORE --model {report.model} --adapter {report.adapter}"
        )
    )
