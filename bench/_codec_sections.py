"""Sections of the README's table on the codec."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from _decode_sections import spread

__all__ = ["codec", "elsewhere", "first_use"]


def _codec_name(row: dict[str, Any]) -> str:
    if row["codec"] == "base":
        return f"base alone, {row['base_step'].replace('sigma', 'σ')}"
    if row["layers"] == 2:
        return f"linear, two layers, {row['base_step'].replace('sigma', 'σ')}"
    return str(row["codec"])


def codec(data: dict[str, Any]) -> str:
    """Return bits and speeds on the longest packets."""
    tokens = max(row["tokens"] for row in data["rows"])
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in data["rows"]:
        if row["tokens"] == tokens:
            rows.setdefault(_codec_name(row), []).append(row)
    lines = []
    for name, found in rows.items():
        bits = statistics.mean(row["bits_per_scalar"] for row in found)
        encode, decode = (_by_cores(found, key) for key in ("encode_mb_s", "decode_mb_s"))
        lossless = "yes" if found[0]["lossless"] else f"no ({found[0]['snr_db']:.0f} dB)"
        lines.append(f"| {name} | {bits:.2f} | {encode} | {decode} | {lossless} |")
    return (
        f"\nCodecs on held-out packets of {tokens} tokens, {data['machine']['cpu_capability']} "
        "(`bench/codec.py`), raw MB/s with one\nthread / two; ours check what they encode:\n\n"
        "| codec | bits a scalar | encode | decode | lossless |\n|---|---|---|---|---|\n"
        + "\n".join(lines)
        + "\n"
    )


def _by_cores(rows: list[dict[str, Any]], key: str) -> str:
    speeds = [
        [row[key] for row in rows if row["cores"] == cores and row[key] is not None]
        for cores in (1, 2)
    ]
    return " / ".join(f"{statistics.median(found):.0f}" for found in speeds if found)


def elsewhere(results: list[dict[str, Any]]) -> str:
    """Return bits alone, of other packets and models than those of the first table."""
    lines = [line for data in results for line in _bits(data)]
    if not lines:
        return ""
    return (
        "\nBits a scalar of other packets (`bench/codec.py`, commands in bench/README.md); in "
        "brackets the range over\npackets, for two layers the base's bits:\n\n"
        "| packets | fast | linear | linear, two layers, σ/4 | zstd planes | pcodec |\n"
        "|---|---|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )


def _bits(data: dict[str, Any]) -> Iterator[str]:
    longest = {text["text"]: text for text in data["data"]["texts"]}
    for name, text in longest.items():
        rows = {
            _codec_name(row): row
            for row in data["rows"]
            if (row["text"], row["tokens"]) == (name, text["tokens"])
        }
        cells = [_of(rows, codec) for codec in ("fast", "linear")]
        base = rows["base alone, σ/4"]["bits_per_scalar"]
        cells.append(f"{rows['linear, two layers, σ/4']['bits_per_scalar']:.2f} ({base:.2f})")
        cells += [_of(rows, codec) for codec in ("zstd planes", "pcodec")]
        what = f"{data['data']['model']}, `{name}`: {text['packets']} of {_tokens(text)} tokens"
        yield f"| {what} | {' | '.join(cells)} |"


def _tokens(text: dict[str, Any]) -> str:
    least, most = text["tokens_range"]
    return f"{least}" if least == most else f"{least}–{most} (mean {text['tokens']})"


def _of(rows: dict[str, dict[str, Any]], codec: str) -> str:
    if codec not in rows:
        return ""
    return f"{rows[codec]['bits_per_scalar']:.2f} ({spread(rows[codec]['bits_range'], 2)})"


def first_use(data: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield what, the first use and the later starts of each level that compiles."""
    rows = {(row["level"], row["start"]): row for row in data["rows"]}
    for level in ("fast", "linear"):
        first, later = rows[level, "first"], rows[level, "later"]
        what = f"first use of codec `{level}`, compiling: process start to end, one packet"
        yield what, _seconds(first), f"later starts: {_seconds(later)}"


def _seconds(row: dict[str, Any]) -> str:
    return f"{row['process_s']:.2f} s ({spread([row['min_s'], row['max_s']], 2)})"
