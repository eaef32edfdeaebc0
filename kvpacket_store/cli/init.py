"""``kvps init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvpacket_store.cli.base_step import BASE_STEP_HELP, split_steps
from kvpacket_store.cli.output import JSON_OPTION, out, print_json

__all__ = ["init"]


def init(
    store: Annotated[str, typer.Argument(help="A folder that is not there yet.")],
    model: Annotated[str, typer.Option(help="Preset, model folder or hub name.")] = "smollm2",
    adapter: Annotated[
        str | None,
        typer.Option(
            help="A safetensors file, 'preamble' (needs no training) or 'none'.",
            show_default="the one that ships for the model, or none",
        ),
    ] = None,
    codec: Annotated[str, typer.Option(help="raw, fast, linear or spec.")] = "fast",
    layers: Annotated[
        int | None, typer.Option(help="1 or 2.", show_default="2 for linear, else 1")
    ] = None,
    codec_pack: Annotated[
        Path | None,
        typer.Option(help="A codec pack for linear.", show_default="shipped with the model"),
    ] = None,
    base_step: Annotated[
        str | None, typer.Option(help=BASE_STEP_HELP, show_default="2.4 for smollm2, else sigma/4")
    ] = None,
    kv_dtype: Annotated[
        str | None,
        typer.Option(help="bf16, fp16, fp32, fp8_e4m3 or fp8_e5m2.", show_default="the model's"),
    ] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Most that it may take on disk.")] = None,
    packet_ttl: Annotated[
        int | None, typer.Option(help="Seconds after which unused packets may go.")
    ] = None,
    segment_tokens: Annotated[int, typer.Option(help="Longest segment.")] = 512,
    importance: Annotated[
        bool,
        typer.Option(
            "--importance",
            help="Store how much each token is needed: prefill takes twice as long, and drafts by "
            "`--compressor importance:0.25` cost nothing online.",
        ),
    ] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Create a store for one model and adapter."""
    from kvpacket_store.api import Store

    with Store.create(
        store,
        model=model,
        adapter=adapter,
        codec=codec,
        layers=layers,
        codec_pack=codec_pack,
        base_step=split_steps(base_step),
        kv_dtype=kv_dtype,
        max_bytes=max_bytes,
        packet_ttl_s=packet_ttl,
        segment_tokens=segment_tokens,
        importance=importance,
    ) as made:
        meta = made.meta
        report = {
            "store": str(made.path),
            "model": meta.model,
            "model_fingerprint": dict(meta.fingerprint),
            "adapter": meta.adapter,
            "codec": meta.codec,
            "layers": meta.layers,
            "codec_pack": meta.codec_pack,
            "base_step": meta.base_step,
            "kv_dtype": meta.kv_dtype,
            "max_bytes": meta.max_bytes,
            "packet_ttl_s": meta.packet_ttl_s,
            "segment_tokens": meta.segment_tokens,
            "importance": meta.importance,
        }
    if as_json:
        print_json(report)
    else:
        out.print(
            f"{report['store']}: model {meta.model}, adapter {meta.adapter or 'none'}, "
            f"codec {meta.codec}{_layers(meta.layers)}, {meta.kv_dtype}. "
            f"Next: kvps ingest {store} PATH"
        )


def _layers(count: int) -> str:
    return f" in {count} layers" if count > 1 else ""
