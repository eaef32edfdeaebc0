"""``kvps adapter eval``, which is also ``kvps bench quality``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvpacket_store.cli.bench_report import keep
from kvpacket_store.cli.output import JSON_OPTION, err, plain
from kvpacket_store.cli.page import write_text
from kvpacket_store.cli.progress import progress_bar
from kvpacket_store.cli.quality_page import quality_page, tell_quality
from kvpacket_store.errors import UsageError

if TYPE_CHECKING:
    from kvpacket_store.adapters import Adapter
    from kvpacket_store.api import Store
    from kvpacket_store.models import Model
    from kvpacket_store.quality.datasets import DataOptions, DataSet, Skipped
    from kvpacket_store.quality.measure import QualityPlan

__all__ = ["eval"]

_ARMS_HELP = "Comma-separated; full, naive and none are always there."


def eval(  # the command's name
    store: Annotated[
        Path | None, typer.Option(help="Measure a store's model and adapter; record the report.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Preset, folder or hub name.", show_default="smollm2")
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(help="A safetensors file, 'preamble' or 'none'.", show_default="shipped"),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="JSONL: question, answers, documents.")] = None,
    data_folder: Annotated[
        Path | None, typer.Option(help="Where data sets that need a file find it.")
    ] = None,
    data_set: Annotated[
        list[str] | None,
        typer.Option("--set", help="A data set; repeatable.", show_default="all, or --data alone"),
    ] = None,
    arms: Annotated[str | None, typer.Option(help=_ARMS_HELP, show_default="all seven")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Questions of each data set.")] = 12,
    packets: Annotated[
        int | None, typer.Option(min=1, help="Documents of a question.", show_default="5")
    ] = None,
    document_tokens: Annotated[
        int | None, typer.Option(min=32, help="About how long documents are that are made here.")
    ] = None,
    segment_tokens: Annotated[
        int | None,
        typer.Option(min=16, help="Longest packet.", show_default="the store's, else 512"),
    ] = None,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 48,
    epic_tokens: Annotated[
        int, typer.Option(min=0, help="EPIC: recomputed tokens of each packet.")
    ] = 16,
    cacheblend_share: Annotated[
        float, typer.Option(min=0, max=1, help="CacheBlend: recomputed share of document tokens.")
    ] = 0.15,
    ape_temperature: Annotated[float, typer.Option(help="APE: of attention to packets.")] = 0.9,
    ape_scale: Annotated[float, typer.Option(help="APE: of the packets' weight.")] = 0.9,
    seed: Annotated[int, typer.Option(help="Of generated questions and choices.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Report even if full recompute does badly.")
    ] = False,
    out_file: Annotated[Path | None, typer.Option("--out", help="Write the JSON here too.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page.")] = None,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Compare answers from packets with full recompute, and with methods that mend reused K and V.

    An interrupted run goes on where it was when it is started again.
    """
    from kvpacket_store.quality.arm import ARMS, ArmSettings
    from kvpacket_store.quality.datasets import DataOptions
    from kvpacket_store.quality.measure import QualityPlan

    options = DataOptions(limit, packets, document_tokens, seed, data_folder)
    datasets, skipped = _data(data, data_set, options)
    settings = ArmSettings(
        epic_tokens=epic_tokens,
        cacheblend_share=cacheblend_share,
        ape_temperature=ape_temperature,
        ape_scale=ape_scale,
    )
    names = ARMS if arms is None else [name.strip() for name in arms.split(",")]
    with ExitStack() as stack:
        opened, loaded, soft = _pair(stack, store, model, adapter)
        plan = QualityPlan(
            names,
            settings,
            answer_tokens,
            segment_tokens or (512 if opened is None else opened.meta.segment_tokens),
            None if opened is None else opened.kv_dtype,
            force,
        )
        report = _measured(loaded, soft, datasets, skipped, plan, out_file)
        is_kept = keep(report, out_file, as_json)  # first: what is measured is not lost
        if opened is not None:
            _record(opened, report)
    for one in skipped:
        err.print(plain(f"{one.name} is left out: {one.reason}"))
    if html is not None:
        write_text(html, quality_page(report))
    if not is_kept:
        tell_quality(report)


def _measured(
    model: Model,
    adapter: Adapter,
    datasets: list[DataSet],
    skipped: list[Skipped],
    plan: QualityPlan,
    out_file: Path | None,
) -> dict[str, Any]:
    """Measure under a bar; say what becomes of what is done if that is broken off."""
    from kvpacket_store.quality.measure import journal_path, measure_quality

    journal = journal_path(model, adapter, plan, out_file)
    try:
        with progress_bar("measure") as update:
            return measure_quality(
                model,
                adapter,
                datasets,
                skipped=skipped,
                plan=plan,
                journal=journal,
                progress=update,
            )
    except KeyboardInterrupt:
        err.print("interrupted; the same command goes on with what is left")
        raise


def _data(
    data: Path | None, names: list[str] | None, options: DataOptions
) -> tuple[list[DataSet], list[Skipped]]:
    """Return the user's own questions, and the data sets that were asked for."""
    from kvpacket_store.quality.datasets import DATASETS, load_datasets, questions_of_file

    own = [] if data is None else [questions_of_file(data, options)]
    wanted = names if names is not None else (() if own else DATASETS)
    found, skipped = load_datasets(wanted, options)
    if not own and not found:
        raise UsageError(f"no data set is here: {skipped[0].reason}")
    return [*own, *found], skipped


def _pair(
    stack: ExitStack, store: Path | None, model: str | None, adapter: str | None
) -> tuple[Store | None, Model, Adapter]:
    """Return what to measure: a store's model and adapter, or those that were named."""
    if store is not None:
        if model is not None or adapter is not None:
            raise UsageError("a store has its own model and adapter; leave --model, --adapter out")
        from kvpacket_store.api import Store

        opened = stack.enter_context(Store.open(store))
        return opened, opened.model, opened.adapter
    from kvpacket_store.api.adapter_choice import choose_adapter
    from kvpacket_store.models import load_model

    loaded = load_model(model or "smollm2")
    return None, loaded, choose_adapter(adapter, loaded)


def _record(store: Store, report: dict[str, Any]) -> None:
    from kvpacket_store.api.quality_gate import record_quality, why_unverified

    record_quality(store, report)
    reason = why_unverified(store)
    said = "verified" if reason is None else f"unverified: {reason}"
    err.print(plain(f"store {store.path}: report recorded; {said}"))
