"""The kernels of `RowForward`: what a row gets does not depend on the rows beside it.

Each output is summed by one thread in an order that is fixed (`micro`), over spans that depend on
slot numbers alone; how many rows, requests or threads there are changes no bit
(tests/unit/models/test_models_rows.py). Libraries choose their kernel by the number of rows: one
row and two differ there (measured, fp32: no row of 64 equal). Readable reference: `reference.py`.

Functions with a ``prange`` do nothing but call one without: numba takes a second to compile even an
empty one, and its passes over the body are the slower part.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from kvpacket_store.codec.compiled import compiled, inlined, spread
from kvpacket_store.models.rows import micro

Array: TypeAlias = npt.NDArray[Any]
_Arrays: TypeAlias = tuple[Array, ...]

__all__ = [
    "BLOCK_SLOTS",
    "SPAN_SLOTS",
    "attend",
    "attend_spans",
    "dots",
    "gate_up",
    "linear",
    "merge",
    "mix",
    "norm",
    "place",
    "qkv",
    "queries_of",
]

SPAN_SLOTS = 512
"""Slots that one task attends to: 128 KiB of K, a quarter of a core's second-level cache."""

_TILE = 16  # outputs a task: 18 kB of 16-bit weights at 576 inputs
BLOCK_SLOTS = 32  # slots that all rows go through at a time: 8 kB of K, in the first-level cache

_WRITTEN, _ADDED, _GATED = 0, 1, 2  # what becomes of the maps in `_maps`
_NO_BIAS = np.empty(0, np.float32)

# As many chains as lanes: then no lane is summed twice, and they fit in the registers.
_dots_4, _dots_2, _dots_1 = (micro.dots(rows, micro.LANES // rows) for rows in (4, 2, 1))
_accumulate_3_4, _accumulate_1_4 = micro.accumulate(3, 4), micro.accumulate(1, 4)
_accumulate_1_1 = micro.accumulate(1, 1)


@inlined
def dots(x: Any, w: Any, first: int, end: int, out: Any, column: int) -> None:
    """Write ``x [M, K] @ w[first:end].T`` to ``out[:, column:]``."""
    rows, m, ahead = x.shape[0], 0, end - first
    while m + 4 <= rows:
        _dots_4(x, m, w, (first, end, ahead), out, column)
        m, ahead = m + 4, 0
    if m + 2 <= rows:
        _dots_2(x, m, w, (first, end, ahead), out, column)
        m, ahead = m + 2, 0
    if m < rows:
        _dots_1(x, m, w, (first, end, ahead), out, column)


@inlined
def _map_tile(tile: Any, x: Any, weights: Any, biases: Any, outs: Any, mode: int) -> None:
    part, tiles = 0, (weights[0].shape[0] + _TILE - 1) // _TILE
    while tile >= tiles:
        tile -= tiles
        part += 1
        tiles = (weights[part].shape[0] + _TILE - 1) // _TILE
    weight, bias, out = weights[part], biases[part], outs[part]
    first, end = tile * _TILE, min(weight.shape[0], tile * _TILE + _TILE)
    sums = np.empty((x.shape[0], _TILE), np.float32)
    dots(x, weight, first, end, sums, 0)
    if mode == _GATED:
        values = np.empty((x.shape[0], _TILE), np.float32)
        dots(x, weights[1], first, end, values, 0)
        for m in range(x.shape[0]):
            for column in range(0, end - first, micro.LANES):
                micro.gated(sums, values, m, column)
    for m in range(x.shape[0]):
        for n in range(first, end):
            total = sums[m, n - first]
            if bias.shape[0]:
                total += bias[n]
            out[m, n] = out[m, n] + total if mode == _ADDED else total


@spread
def _maps(tiles: int, x: Any, weights: Any, biases: Any, outs: Any, mode: int) -> None:
    for tile in numba.prange(tiles):
        _map_tile(np.int64(tile), x, weights, biases, outs, mode)


def _tiles(weight: Array) -> int:
    return -(-len(weight) // _TILE)


def linear(x: Array, weight: Array, bias: Array, out: Array) -> None:
    """Add ``x [M, K] @ weight [N, K].T + bias [N]`` to ``out [M, N]``; an empty bias is none."""
    weights, biases, outs = ((some, some[:0], some[:0]) for some in (weight, bias, out))
    _maps(_tiles(weight), x, weights, biases, outs, _ADDED)


def qkv(x: Array, weights: _Arrays, biases: _Arrays, outs: _Arrays) -> None:
    """Write three maps of ``x``, as `linear`, to ``outs``: one start of the threads, not three."""
    _maps(sum(map(_tiles, weights)), x, weights, biases, outs, _WRITTEN)


def gate_up(x: Array, gate: Array, up: Array, out: Array) -> None:
    """Write ``silu(x @ gate.T) * (x @ up.T)`` to ``out [M, N]``."""
    _maps(_tiles(gate), x, (gate, up, up), (_NO_BIAS,) * 3, (out,) * 3, _GATED)


@compiled
def norm(x: Any, weight: Any, eps: float, out: Any) -> None:
    """Write the RMS norm of each row of ``x [M, K]`` to ``out``."""
    squares = np.empty((x.shape[0], 1), np.float32)
    for m in range(x.shape[0]):
        _dots_1(x, m, x, (m, m + 1, 0), squares, 0)
        scale = np.float32(1 / math.sqrt(squares[m, 0] / np.float32(x.shape[1]) + eps))
        for k in range(x.shape[1]):
            out[m, k] = weight[k] * (x[m, k] * scale)


@compiled
def place(
    q: Any, k: Any, v: Any, cos_sin: Any, k_slots: Any, v_slots: Any, first_slot: int
) -> None:
    """Rotate ``q [Q, Hq, D]`` in place; write rotated ``k [Q, H, D]`` and ``v`` to their slots."""
    half = q.shape[2] // 2
    for m in range(q.shape[0]):
        cos, sin = cos_sin[0, m], cos_sin[1, m]
        for h in range(q.shape[1]):
            for d in range(half):
                a, b = q[m, h, d], q[m, h, d + half]
                q[m, h, d] = a * cos[d] - b * sin[d]
                q[m, h, d + half] = b * cos[d + half] + a * sin[d + half]
        for h in range(k.shape[1]):
            for d in range(half):
                a, b = k[m, h, d], k[m, h, d + half]
                k_slots[h, first_slot + m, d] = a * cos[d] - b * sin[d]
                k_slots[h, first_slot + m, d + half] = b * cos[d + half] + a * sin[d + half]
            for d in range(q.shape[2]):
                v_slots[h, first_slot + m, d] = v[m, h, d]


@inlined
def merge(parts: Any, out: Any) -> None:
    """Put the spans ``[n, D + 2]`` of one row and head together."""
    dim = out.shape[0]
    largest, total = np.float32(-np.inf), np.float32(0)
    for s in range(parts.shape[0]):
        largest = max(largest, parts[s, dim])
    for d in range(dim):
        out[d] = np.float32(0)
    for s in range(parts.shape[0]):
        weight = np.exp(parts[s, dim] - largest)
        total += weight * parts[s, dim + 1]
        for d in range(dim):
            out[d] += weight * parts[s, d]
    for d in range(dim):
        out[d] /= total


@inlined
def _accumulate_1(weights: Any, m: int, v: Any, span: Any, sums: Any) -> None:
    """Add some of a span's slots, ``start, first, end``, to one row by weight."""
    dim, d = v.shape[1], 0
    while d + 4 * micro.LANES <= dim:
        _accumulate_1_4(weights, m, v, span, sums, d)
        d += 4 * micro.LANES
    while d < dim:
        _accumulate_1_1(weights, m, v, span, sums, d)
        d += micro.LANES


@inlined
def _accumulate_3(weights: Any, m: int, v: Any, span: Any, sums: Any) -> None:
    """Do as `_accumulate_1`, three rows at once."""
    dim, d = v.shape[1], 0
    while d + 4 * micro.LANES <= dim:
        _accumulate_3_4(weights, m, v, span, sums, d)
        d += 4 * micro.LANES
    while d < dim:
        for i in range(m, m + 3):
            _accumulate_1_1(weights, i, v, span, sums, d)
        d += micro.LANES


@inlined
def mix(weights: Any, group: int, alone: int, v: Any, start: int, sums: Any) -> None:
    """Write sums of slots from ``start`` by weight: ``alone + m // group`` slots in row m."""
    rows = weights.shape[0]
    for m in range(rows):
        for d in range(v.shape[1]):
            sums[m, d] = np.float32(0)
    for block in range(0, min(SPAN_SLOTS, alone + (rows - 1) // group), BLOCK_SLOTS):
        limit = min(SPAN_SLOTS, block + BLOCK_SLOTS)
        for m in range(0, rows, 3):
            shared = block
            if m + 3 <= rows:
                shared = max(block, min(limit, alone + m // group))
                _accumulate_3(weights, m, v, (start, block, shared), sums)
            for i in range(m, min(m + 3, rows)):
                end = min(limit, alone + i // group)
                if end > shared:
                    _accumulate_1(weights, i, v, (start, shared, end), sums)


@inlined
def queries_of(q: Any, head: int, group: int) -> Any:
    """Return the queries of one kv head as rows, ``[Q * group, D]``."""
    rows, dim = q.shape[0], q.shape[2]
    queries = np.empty((rows * group, dim), np.float32)
    for m in range(rows):
        for g in range(group):
            for d in range(dim):
                queries[m * group + g, d] = q[m, head * group + g, d]
    return queries


@inlined
def _attend_span(
    task: Any, q: Any, k_slots: Any, v_slots: Any, first_slot: int, scaling: float, parts: Any
) -> None:
    head, span = task // parts.shape[1], task % parts.shape[1]
    k, v, part = k_slots[head], v_slots[head], parts[head, span]
    (rows, _, dim), start = q.shape, span * SPAN_SLOTS
    group = part.shape[0] // rows
    alone = first_slot + 1 - start  # slots of the span that the first row sees, if above 0
    queries = queries_of(q, head, group)
    scores = np.empty((rows * group, SPAN_SLOTS), np.float32)
    seen = min(SPAN_SLOTS, alone + rows - 1)
    for block in range(0, seen, BLOCK_SLOTS):
        dots(queries, k, start + block, start + min(seen, block + BLOCK_SLOTS), scores, block)
    for m in range(rows * group):
        count = max(0, min(SPAN_SLOTS, alone + m // group))
        part[m, dim], part[m, dim + 1] = micro.soften(scores, m, count, np.float32(scaling))
    mix(scores, group, alone, v, start, part)


@spread
def attend_spans(
    tasks: int, q: Any, k_slots: Any, v_slots: Any, first_slot: int, scaling: float, parts: Any
) -> None:
    """Attend to each span of each head apart: see `attend`."""
    for task in numba.prange(tasks):
        _attend_span(np.int64(task), q, k_slots, v_slots, first_slot, scaling, parts)


@compiled
def attend(
    q: Any, k_slots: Any, v_slots: Any, first_slot: int, scaling: float, parts: Any, out: Any
) -> None:
    """Attend with ``q [Q, Hq, D]`` to slots ``[H, N, D]``; row *i* sees up to ``first_slot + i``.

    Spans of slots are attended to apart (``parts [H, spans, Q * Hq / H, D + 2]``: weighted sum,
    largest score, sum of weights) and put together in order: Dao et al. 2023, flash decoding, with
    spans of fixed length instead of a fixed number.
    """
    group = q.shape[1] // k_slots.shape[0]
    tasks = parts.shape[0] * parts.shape[1]
    attend_spans(tasks, q, k_slots, v_slots, first_slot, scaling, parts)
    for q_head in range(q.shape[1]):
        head, g = q_head // group, q_head % group
        for m in range(q.shape[0]):
            seen = (first_slot + m) // SPAN_SLOTS + 1
            merge(parts[head, :seen, m * group + g], out[m, q_head])
