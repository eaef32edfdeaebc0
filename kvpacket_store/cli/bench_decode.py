"""``kvps bench decode`` and ``kvps bench calibrate``."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvpacket_store.cli.bench_report import keep
from kvpacket_store.cli.decode_page import decode_page, place_of
from kvpacket_store.cli.output import JSON_OPTION, err, out, plain, table
from kvpacket_store.cli.page import cell, write_text
from kvpacket_store.cli.progress import progress_bar
from kvpacket_store.errors import UsageError

if TYPE_CHECKING:
    from kvpacket_store.models import Model

__all__ = ["calibrate", "decode"]

_COLUMNS = {
    "compressor": "compressor",
    "mean_accepted": "accepted a round",
    "draft_bits_per_scalar": "bits",
    "draft_tokens_kept_share": "kept",
    "tokens_per_s": "tokens/s",
    "full_tokens_per_s": "one by one",
    "hf_tokens_per_s": "Hugging Face",
    "ratio": "ratio",
    "identical": "identical",
    "tokens_compared": "of tokens",
}


def decode(
    model: Annotated[str, typer.Option(help="Preset, model folder or hub name.")] = "smollm2",
    context_tokens: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Repeatable.", show_default="1000, 2000, 4000 and 7500"),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Requests together; repeatable.", show_default="1 and 8"),
    ] = None,
    compressor: Annotated[
        list[str] | None,
        typer.Option(help="What drafts are made on; repeatable. 'auto' is always there."),
    ] = None,
    exactness: Annotated[str, typer.Option(help="bit or guarded.")] = "guarded",
    temperature: Annotated[
        list[float] | None, typer.Option(help="Repeatable.", show_default="0 and 0.8")
    ] = None,
    new_tokens: Annotated[int, typer.Option(min=2, help="Of an answer.")] = 64,
    runs: Annotated[int, typer.Option(min=1, help="Runs; medians are reported.")] = 3,
    out_file: Annotated[Path | None, typer.Option("--out", help="Write the JSON here too.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with a plot.")] = None,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Drafts and verification beside one token a step, and beside Hugging Face ``generate``."""
    from kvpacket_store.benchmarks.baseline import load_baseline
    from kvpacket_store.benchmarks.decode import DecodePlan, measure_decode, store_of_examples
    from kvpacket_store.benchmarks.paragraphs import example_documents

    asked = {
        "contexts": context_tokens,
        "batches": batch,
        "compressors": compressor,
        "temperatures": temperature,
    }
    lists = {name: tuple(found) for name, found in asked.items() if found}
    plan = DecodePlan(exactness=exactness, new_tokens=new_tokens, runs=runs, **lists)  # type: ignore[arg-type]
    with progress_bar("measure") as update, store_of_examples(model) as store:
        result = measure_decode(
            store,
            example_documents(),
            plan,
            peers=[load_baseline(model, dtype, "sdpa") for dtype in ("bf16", "fp32")],
            progress=lambda share: update("", share),
        )
    if html is not None:
        write_text(html, decode_page(result))
    if not keep(result, out_file, as_json):
        _tell(result["rows"])


def calibrate(
    store: Annotated[
        str | None, typer.Argument(help="A store's folder, for its model.", show_default=False)
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Preset, model folder or hub name.", show_default="smollm2")
    ] = None,
    context_tokens: Annotated[
        list[int] | None, typer.Option(min=1, help="Repeatable.", show_default="1000 and 4000")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs; medians are taken.")] = 7,
    out_file: Annotated[Path | None, typer.Option("--out", help="Write the JSON here too.")] = None,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure what steps and verifications cost here; ``--decode auto`` goes by it from then on."""
    from kvpacket_store.api.measured_costs import write_costs
    from kvpacket_store.benchmarks import calibration

    if store is not None and model is not None:
        raise UsageError("a store has its model; name one of STORE and --model")
    loaded = _model_of(store, model)
    with progress_bar("measure") as update:
        costs, result = calibration.calibrate(
            loaded,
            contexts=context_tokens or calibration.CONTEXTS,
            runs=runs,
            progress=lambda share: update("", share),
        )
    try:
        result["file"] = str(write_costs(loaded, costs))
    except OSError as error:
        raise UsageError(
            f"costs cannot be kept ({error}); set KVPACKET_CACHE to a folder that can be written to"
        ) from error
    if not keep(result, out_file, as_json):
        _tell_costs(result)


def _model_of(store: str | None, model: str | None) -> Model:
    if store is None:
        from kvpacket_store.models import load_model

        return load_model(model or "smollm2")
    from kvpacket_store.api import Store

    with Store.open(store) as opened:
        return opened.model


def _tell(rows: list[dict[str, Any]]) -> None:
    for place, found in itertools.groupby(rows, place_of):
        cells: list[list[object]] = [[cell(row[key]) for key in _COLUMNS] for row in found]
        out.print(table(place, list(_COLUMNS.values()), cells))
    for reason in dict.fromkeys(row["hf_left_out"] for row in rows if row["hf_left_out"]):
        err.print(plain(f"Hugging Face left out: {reason}"))


def _tell_costs(result: dict[str, Any]) -> None:
    heads = ["forward", "slots", "rows", "ms", "fitted, ms"]
    keys = ("forward", "slots", "rows", "ms", "fitted_ms")
    out.print(table("", heads, [[row[key] for key in keys] for row in result["rows"]]))
    costs = result["costs"]
    out.print(
        f"weights {costs['weights_ms']:.2f} ms, 1,000 slots {1e3 * costs['slot_ms']:.2f} ms; "
        f"a further row {costs['row_ms']:.2f} ms, and {1e3 * costs['row_slot_ms']:.2f} ms for "
        f"1,000 slots. Kept in {result['file']}"
    )
