"""How small and how fast the codec is, beside its peers.

All take the same packets in turn, so that what else the machine does meets all of them; times are
medians. ``encode_mb_s`` and ``decode_mb_s`` are raw bytes by the clock, ``..._cpu`` by processor
time, which says what one undisturbed core would do.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kvpacket_store.benchmarks.codec_data import CodecData, Passages
from kvpacket_store.benchmarks.codec_peers import Contender, Pair, contenders
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.codec.linear.values import values_of
from kvpacket_store.codec.workers import limited_to
from kvpacket_store.types import KVDtype

__all__ = ["measure_codec"]

_SPEEDS = ("encode_mb_s", "encode_mb_s_cpu", "decode_mb_s", "decode_mb_s_cpu")


def measure_codec(
    data: CodecData,
    *,
    runs: int = 3,
    cores: Sequence[int] = (1, 2),
    progress: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """Return a row for each text, length, number of cores and codec."""
    rows: list[dict[str, Any]] = []
    total = len(cores) * runs * sum(len(passages.packets) for passages in data.passages)
    done = itertools.count(1)
    for passages, count in itertools.product(data.passages, cores):
        which = list(contenders(data.kv_dtype, data.pack, count))
        results = [_Result(data.kv_dtype) for _ in which]
        with limited_to(count):
            # compilation, threads and files are nobody's time
            _take_turns(which, [_Result(data.kv_dtype) for _ in which], _short(passages.packets[0]))
            for _, pair in itertools.product(range(runs), passages.packets):
                _take_turns(which, results, pair)
                progress(next(done) / total)
        place = {"cores": count, "text": passages.text, "tokens": passages.tokens}
        rows += [{**_row(*one), **place} for one in zip(which, results, strict=True)]
    return {"data": _describe(data), "machine": machine(), "runs": runs, "rows": rows}


def _describe(data: CodecData) -> dict[str, Any]:
    first = data.passages[0].packets[0][0]
    pack = data.pack
    return {
        "model": data.model,
        "kv_dtype": data.kv_dtype.value,
        "layers": first.shape[0],
        "kv_heads": first.shape[1],
        "head_dim": first.shape[3],
        "texts": [_text(passages) for passages in data.passages],
        "codec_pack": None if pack is None else {"digest": pack.digest, "about": dict(pack.about)},
    }


def _text(passages: Passages) -> dict[str, Any]:
    lengths = [k.shape[2] for k, _ in passages.packets]
    return {
        "text": passages.text,
        "tokens": passages.tokens,
        "tokens_range": [min(lengths), max(lengths)],
        "packets": len(lengths),
    }


@dataclass
class _Result:
    """What turns on packets have given; sizes and bits are the same in every run.

    ``bits`` are a packet's each, ``stored_bytes`` and ``scalars`` those of all together.
    """

    kv_dtype: KVDtype
    times: list[npt.NDArray[np.float64]] = field(default_factory=list)
    stored_bytes: int = 0
    scalars: int = 0
    bits: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    lossless: bool = True


def _take_turns(which: list[Contender], results: list[_Result], pair: Pair) -> None:
    stored: Any = None
    for one, result in zip(which, results, strict=True):
        marks = [_now()]
        if one.encode is not None:
            stored = one.encode(pair)
        marks.append(_now())
        back = one.decode(stored, pair)
        marks.append(_now())
        result.times.append((np.diff(marks, axis=0) / (2 * pair[0].nbytes)).ravel())
        stored_bytes, scalars = one.size(stored), 2 * pair[0].size
        result.stored_bytes += stored_bytes
        result.scalars += scalars
        result.bits.append(8 * stored_bytes / scalars)
        exact = all(map(np.array_equal, back, pair))
        result.lossless &= exact
        if not exact:
            result.noise.append(_noise(pair, back, result.kv_dtype))


def _short(pair: Pair) -> Pair:
    return np.ascontiguousarray(pair[0][:, :, :64]), np.ascontiguousarray(pair[1][:, :, :64])


def _row(one: Contender, result: _Result) -> dict[str, Any]:
    bits = 8 * result.stored_bytes / result.scalars
    return {
        "codec": one.codec,
        "layers": one.layers,
        "base_step": one.base_step,
        "bits_per_scalar": bits,
        "bits_range": [min(result.bits), max(result.bits)],
        "ratio": 8 * result.kv_dtype.itemsize_bytes / bits,
        **_speeds(one, result.times),
        "lossless": result.lossless,
        "snr_db": -10 * float(np.log10(np.mean(result.noise))) if result.noise else None,
    }


def _speeds(one: Contender, times: list[npt.NDArray[np.float64]]) -> dict[str, float | None]:
    medians: list[float] = (1e-6 / np.median(times, axis=0)).tolist()
    if one.encode is None:
        return dict(zip(_SPEEDS, (None, None, *medians[2:]), strict=True))
    return dict(zip(_SPEEDS, medians, strict=True))


def _noise(pair: Pair, back: Pair, kv_dtype: KVDtype) -> float:
    """Return the error's share of the variance, the mean over channels of K and V."""
    shares = []
    for exact, rebuilt in zip(pair, back, strict=True):
        values = values_of(exact, kv_dtype).astype(np.float64)
        error = values_of(rebuilt, kv_dtype) - values
        shares.append((error**2).mean(axis=2) / (values.var(axis=2) + 1e-30))
    return float(np.mean(shares))


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
