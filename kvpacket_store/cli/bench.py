"""``kvps bench``: the figures, with peers in the same run."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any

import typer

from kvpacket_store.cli import adapter_eval
from kvpacket_store.cli.bench_decode import calibrate, decode
from kvpacket_store.cli.bench_report import keep, report
from kvpacket_store.cli.codec_page import codec_page, row_name
from kvpacket_store.cli.output import JSON_OPTION, err, out, table
from kvpacket_store.cli.page import cell, write_text
from kvpacket_store.cli.progress import progress_bar
from kvpacket_store.errors import UsageError

__all__ = ["app"]

app = typer.Typer(help="Measure on this machine, with peers in the same run.")
app.command("decode")(decode)
app.command("calibrate")(calibrate)
app.command("quality")(adapter_eval.eval)

ModelOption = Annotated[str, typer.Option(help="Preset, model folder or hub name.")]
_CODEC_COLUMNS = ("bits_per_scalar", "encode_mb_s", "decode_mb_s")


@app.command("ttft")
def ttft(
    model: ModelOption = "smollm2",
    out_file: Annotated[Path | None, typer.Option("--out", help="Write the JSON here too.")] = None,
    runs: Annotated[int, typer.Option(help="Runs; medians are reported.")] = 5,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Time to first token from packets on disk, beside a full prefill of the same prompt."""
    from kvpacket_store.benchmarks.ttft import measure_ttft

    report(measure_ttft(model, runs=runs), out_file, as_json)


@app.command("codec")
def codec(
    model: ModelOption = "smollm2",
    data: Annotated[
        Path | None, typer.Option(help="Folder of .npz files (k, v) instead of a prefill.")
    ] = None,
    text: Annotated[
        list[Path] | None, typer.Option(help="Another text beside the examples; repeatable.")
    ] = None,
    pack: Annotated[
        Path | None, typer.Option(help="Codec pack for level linear.", show_default="shipped")
    ] = None,
    tokens: Annotated[
        list[int] | None, typer.Option(min=1, help="Of a packet; repeatable.", show_default="512")
    ] = None,
    packets: Annotated[int, typer.Option(min=1, help="Packets of each text and length.")] = 4,
    runs: Annotated[int, typer.Option(min=1, help="Runs; medians are reported.")] = 3,
    cores: Annotated[
        list[int] | None, typer.Option(min=1, help="Threads; repeatable.", show_default="1 and 2")
    ] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="Write the JSON here too.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with a plot.")] = None,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Bits a scalar and speed of the codec, beside zstd, pcodec, OpenZL and blosc2."""
    from kvpacket_store.api.codec_packs import load_pack
    from kvpacket_store.benchmarks.codec import measure_codec
    from kvpacket_store.benchmarks.codec_data import arrays_of, prefilled

    if data is not None and text:
        raise UsageError("--text is prefilled, --data is not; pass one of them")
    chosen = load_pack(pack) if pack is not None else None
    lengths = tokens or [512]
    with progress_bar("measure") as update:
        measured = (
            prefilled(model, text or [], lengths, packets, chosen)
            if data is None
            else arrays_of(data, model, lengths, packets, chosen)
        )
        if measured.pack is None:
            err.print(f"no codec pack of {model} is here: level linear is left out; pass --pack")
        result = measure_codec(
            measured, runs=runs, cores=cores or (1, 2), progress=lambda share: update("", share)
        )
    if html is not None:
        write_text(html, codec_page(result))
    if not keep(result, out_file, as_json):
        _tell_codec(result["rows"])


def _tell_codec(rows: list[dict[str, Any]]) -> None:
    def place(row: dict[str, Any]) -> str:
        cores = f"{row['cores']} core{'s' if row['cores'] > 1 else ''}"
        return f"{row['text']}, {row['tokens']} tokens, {cores}"

    heads = ["codec", "bits a scalar", "encode, MB/s", "decode, MB/s"]
    for where, found in itertools.groupby(rows, place):
        cells: list[list[object]] = [
            [row_name(row), *(cell(row[key]) for key in _CODEC_COLUMNS)] for row in found
        ]
        out.print(table(where, heads, cells))
