"""``kvps adapter correct``: what packets lack of those before them, fitted in minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvpacket_store.cli.adapter_model import load_for
from kvpacket_store.cli.output import JSON_OPTION, err, out, plain, print_json, table
from kvpacket_store.cli.progress import progress_bar
from kvpacket_store.errors import UsageError

__all__ = ["correct"]


def correct(
    file: Annotated[Path, typer.Argument(help="The adapter that is written, .safetensors.")],
    paths: Annotated[
        list[str] | None, typer.Argument(help="Documents: files, folders, JSONL.", show_default="")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Whose adapter.", show_default="the store's, or smollm2")
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(help="A safetensors file, 'preamble' or 'none'.", show_default="shipped"),
    ] = None,
    store: Annotated[str | None, typer.Option(help="Fit to a store's documents too.")] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="JSONL of {question, answers, documents}; again for more."),
    ] = None,
    samples: Annotated[int, typer.Option(help="Prompts to fit to.")] = 30,
    validation_samples: Annotated[
        int, typer.Option(help="Prompts that decide the strength, of other documents.")
    ] = 12,
    max_packets: Annotated[int, typer.Option(help="A prompt has 2 to so many.")] = 8,
    seed: Annotated[int, typer.Option(help="Of the prompts.")] = 0,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Fit what K and V of packets lack behind other documents; no gradient, no labels.

    It is added where packets are placed, so packets do not depend on it: those of a store with the
    adapter can be brought into one with the corrected adapter (kvps export, kvps import).
    """
    if not (paths or store or data):
        raise UsageError("nothing to fit to; name files, --store or --data")
    if file.suffix != ".safetensors":
        raise UsageError(f"{file} is where the adapter is written; name a .safetensors file")
    from kvpacket_store.adapters import adapter_metadata
    from kvpacket_store.api.adapter_choice import choose_adapter
    from kvpacket_store.training import TrainOptions, correct_adapter, gather

    options = TrainOptions(
        samples=samples, validation_samples=validation_samples, max_packets=max_packets, seed=seed
    )
    corpus = gather(store=store, namespace=None, paths=paths or [], question_sets=data or [])
    for failure in corpus.failures:
        err.print(plain(failure))
    loaded = load_for(model, store)
    start = choose_adapter(adapter, loaded)
    about = adapter_metadata(adapter) if adapter and Path(adapter).is_file() else {}
    with progress_bar("correction:") as told:
        report = correct_adapter(loaded, corpus, file, start, options, about=about, watch=told)
    if as_json:
        print_json(report.to_dict())
        return
    rows: list[list[object]] = [[strength, f"{kl:.4f}"] for strength, kl in report.kl.items()]
    out.print(table("", ["strength", "KL, nats a token"], rows))
    if not report.strength:
        err.print(plain("no strength did better than none: the file has no correction"))
    name = Path(loaded.name).name
    out.print(
        plain(
            f"adapter {report.digest[:12]} of strength {report.strength}: {report.adapter}\n"
            f"To use it: kvps init STORE --model {name} --adapter {report.adapter}"
        )
    )
