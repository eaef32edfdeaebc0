"""``kvps bench codec`` as a page: what it was measured on, bars, and every row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from kvpacket_store.cli.page import cell, html_table, page

__all__ = ["codec_page", "row_name"]

_COLUMNS = (
    "bits_per_scalar",
    "ratio",
    "encode_mb_s",
    "encode_mb_s_cpu",
    "decode_mb_s",
    "decode_mb_s_cpu",
    "snr_db",
    "lossless",
)
_HEADS = (
    "codec",
    "bits a scalar",
    "raw : stored",
    "encode, MB/s",
    "by CPU time",
    "decode, MB/s",
    "by CPU time",
    "base: SNR, dB",
    "lossless",
)
_BAR, _ROW = 300, 24


def codec_page(result: dict[str, Any]) -> str:
    """Return the page of what ``measure_codec`` found."""
    return page("How small and how fast: codecs on K and V", _parts(result))


def row_name(row: dict[str, Any]) -> str:
    """Return a row's codec, with the base's step where there is one.

    Examples
    --------
    >>> row_name({"codec": "base", "base_step": "sigma/4"})
    'base sigma/4'
    """
    return f"{row['codec']} {row['base_step']}" if row["base_step"] else str(row["codec"])


def _parts(result: dict[str, Any]) -> Iterator[str]:
    data, machine, rows = result["data"], result["machine"], result["rows"]
    yield (
        f"<p>{escape(str(data['model']))}, {data['kv_dtype']}, {data['layers']} layers of "
        f"{data['kv_heads']} × {data['head_dim']}. {escape(str(machine['cpu']))}, "
        f"{machine['cores']} cores, {machine['memory_gib']} GiB. {_pack(data['codec_pack'])} "
        f"All codecs took the same packets in turn, {result['runs']} times; medians. "
        "MB are of raw K and V. Encoding with ours includes decoding and comparing.</p>"
    )
    sections = list(dict.fromkeys((row["text"], row["tokens"]) for row in rows))
    for text, tokens in sections:
        here = [row for row in rows if (row["text"], row["tokens"]) == (text, tokens)]
        packets = next(
            t["packets"] for t in data["texts"] if (t["text"], t["tokens"]) == (text, tokens)
        )
        yield f"<h2>{escape(text)}: {packets} packets of {tokens} tokens</h2>"
        by_cores = {count: [r for r in here if r["cores"] == count] for count in _cores(here)}
        yield _bars(by_cores)
        for count, found in by_cores.items():
            yield f"<h3>{count} core{'s' if count > 1 else ''}</h3>"
            yield html_table(_HEADS, ([row_name(r), *(r[c] for c in _COLUMNS)] for r in found))


def _pack(pack: dict[str, Any] | None) -> str:
    if pack is None:
        return "No codec pack of this model is here, so level linear is left out."
    return f"Codec pack {pack['digest'][:12]}."


def _cores(rows: Sequence[dict[str, Any]]) -> list[int]:
    return list(dict.fromkeys(row["cores"] for row in rows))


def _bars(by_cores: dict[int, list[dict[str, Any]]]) -> str:
    """Draw bits a scalar, and how fast they decode on the most cores, side by side."""
    count, rows = max(by_cores.items())
    most_bits = max(row["bits_per_scalar"] for row in rows)
    most_speed = max(row["decode_mb_s"] for row in rows if row["codec"] != "raw")
    marks = []
    for i, row in enumerate(rows):
        y, fill = 34 + _ROW * i, "var(--theirs)" if row["layers"] is None else "var(--ours)"
        marks.append(f'<text x="150" y="{y + 12}" text-anchor="end">{escape(row_name(row))}</text>')
        for x, value, most in (
            (158, row["bits_per_scalar"], most_bits),
            (560, row["decode_mb_s"], most_speed),
        ):
            share = min(value / most, 1.0)  # copying raw bytes goes off the scale
            marks.append(
                f'<rect x="{x}" y="{y}" width="{max(2.0, _BAR * share):.1f}" height="16" '
                f'fill="{fill}"/><text x="{x + 6 + _BAR * share:.1f}" y="{y + 12}">'
                f"{cell(float(value))}</text>"
            )
    height = 44 + _ROW * len(rows)
    return (
        f'<svg viewBox="0 0 920 {height}" role="img" aria-label="bits a scalar and decoding speed">'
        '<text x="158" y="20">bits a scalar (smaller is better)</text>'
        f'<text x="560" y="20">decode, MB/s on {count} core{"s" if count > 1 else ""}</text>'
        f"{''.join(marks)}</svg>"
    )
