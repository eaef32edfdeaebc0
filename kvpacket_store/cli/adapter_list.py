"""``kvps adapter list``: the adapters that ship, and those in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from kvpacket_store.cli.output import JSON_OPTION, err, out, plain, print_json, table
from kvpacket_store.errors import AdapterError, UsageError

__all__ = ["list_adapters"]

_OF_THE_ADAPTER = ("digest", "header_tokens", "header_stays", "trailer_tokens", "hidden_size")


def list_adapters(
    folder: Annotated[
        Path | None, typer.Argument(help="Look here too, and in its subfolders.")
    ] = None,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """List the adapters that ship and those in a folder, with their held-out KL."""
    if folder is not None and not folder.is_dir():
        raise UsageError(f"{folder} is no folder")
    with resources.as_file(resources.files("kvpacket_store.adapters")) as shipped:
        found = list(_adapters_in("shipped", shipped))
    if folder is not None:
        found += _adapters_in("folder", folder)
    if as_json:
        print_json({"adapters": found})
        return
    for one in found:
        if one["damage"]:
            err.print(plain(f"{one['file']}: {one['damage']}"))
    rows = [_row(one) for one in found if not one["damage"]]
    if not rows:
        out.print("no adapters; make one: kvps adapter train")
        return
    columns = ["name", "digest", "tokens", "model", "KL naive", "KL", "gap closed", "where"]
    out.print(table("", columns, rows))


def _adapters_in(where: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what is known of each adapter; files that hold something else are left out."""
    from kvpacket_store.adapters import adapter_metadata, load_adapter

    for path in sorted(folder.rglob("*.safetensors")):
        one: dict[str, Any] = {"where": where, "file": str(path), "name": path.stem}
        one |= dict.fromkeys(_OF_THE_ADAPTER)
        one |= dict.fromkeys(("model", "kl_naive", "kl_after", "gap_closed", "damage"))
        try:
            about = adapter_metadata(path)
            if "digest" not in about:
                continue  # a checkpoint, a model's weights, a teacher's answers
            adapter = load_adapter(path)
        except AdapterError as error:
            yield {**one, "damage": str(error)}
            continue
        one |= {
            "digest": adapter.digest,
            "header_tokens": adapter.header_tokens,
            "header_stays": adapter.header_stays,
            "trailer_tokens": adapter.trailer_tokens,
            "hidden_size": adapter.hidden_size,
            "model": about.get("model"),
        }
        if adapter.digest != about["digest"]:
            one["damage"] = "its contents are not those that were saved; train or copy it again"
        yield one | {key: _number(about.get(key)) for key in ("kl_naive", "kl_after", "gap_closed")}


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _row(one: dict[str, Any]) -> list[object]:
    figures = ["" if one[key] is None else f"{one[key]:.3f}" for key in ("kl_naive", "kl_after")]
    closed = "" if one["gap_closed"] is None else f"{one['gap_closed']:.0%}"
    header = f"{one['header_tokens']}" if one["header_stays"] else f"({one['header_tokens']})"
    tokens = f"{header}+{one['trailer_tokens']}"
    return [
        one["name"], one["digest"][:12], tokens, one["model"] or "", *figures, closed, one["where"]
    ]  # fmt: skip
