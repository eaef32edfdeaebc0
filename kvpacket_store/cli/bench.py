"""``kvps bench``: the figures, with peers in the same run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kvpacket_store.cli.output import JSON_OPTION, out, print_json, table

__all__ = ["app"]

app = typer.Typer(help="Measure on this machine, with peers in the same run.")

ModelOption = Annotated[str, typer.Option(help="Preset, model folder or hub name.")]
OutOption = Annotated[Path | None, typer.Option(help="Write the JSON here too.")]


@app.command("ttft")
def ttft(
    model: ModelOption = "smollm2",
    out_file: Annotated[Path | None, typer.Option("--out", help="Write the JSON here too.")] = None,
    runs: Annotated[int, typer.Option(help="Runs; medians are reported.")] = 5,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Time to first token from packets on disk, beside a full prefill of the same prompt."""
    from kvpacket_store.benchmarks.ttft import measure_ttft

    _report(measure_ttft(model, runs=runs), out_file, as_json)


@app.command("quality")
def quality(
    model: ModelOption = "smollm2",
    data: Annotated[Path | None, typer.Option(help="JSONL: question, answers, documents.")] = None,
    limit: Annotated[int, typer.Option(help="Questions.")] = 24,
    adapter: Annotated[str | None, typer.Option(help="A safetensors file, or 'none'.")] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="Write the JSON here too.")] = None,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Answers from packets beside full recompute, naive reuse and no documents."""
    from kvpacket_store.benchmarks.quality import measure_quality

    _report(measure_quality(model, data=data, limit=limit, adapter=adapter), out_file, as_json)


def _report(result: dict[str, Any], out_file: Path | None, as_json: bool) -> None:
    if out_file is not None:
        out_file.parent.mkdir(parents=True, exist_ok=True)
        out_file.write_text(json.dumps(result, indent=1) + "\n")
    if as_json:
        print_json(result)
        return
    rows = result["rows"]
    plain = [key for key, value in rows[0].items() if not isinstance(value, dict)]
    out.print(table("", plain, [[row[key] for key in plain] for row in rows]))
