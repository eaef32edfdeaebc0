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
from typing import Any

import numba
import numpy as np

from kvpacket_store.codec.compiled import compiled, inlined, spread
from kvpacket_store.models.rows import micro

__all__ = ["SPAN_SLOTS", "attend", "gate_up", "linear", "norm", "place", "qkv"]

SPAN_SLOTS = 512
"""Slots that one task attends to: 128 KiB of K, a quarter of a core's second-level cache."""

_TILE = 16  # outputs a task: 18 kB of 16-bit weights at 576 inputs
_BLOCK = 32  # slots that all rows go through at a time: 8 kB of K, in the first-level cache

_dots_4, _dots_2, _dots_1 = micro.dots(4, 2), micro.dots(2, 4), micro.dots(1, 8)
_accumulate_3_4, _accumulate_1_4 = micro.accumulate(3, 4), micro.accumulate(1, 4)
_accumulate_1_1 = micro.accumulate(1, 1)


@inlined
def _dots(x: Any, w: Any, first: int, end: int, out: Any, column: int) -> None:
    """Write ``x [M, K] @ w[first:end].T`` to ``out[:, column:]``."""
    rows, m, ahead = x.shape[0], 0, end - first
    while m + 4 <= rows:
        _dots_4(x, m, w, first, end, out, column, ahead)
        m, ahead = m + 4, 0
    if m + 2 <= rows:
        _dots_2(x, m, w, first, end, out, column, ahead)
        m, ahead = m + 2, 0
    if m < rows:
        _dots_1(x, m, w, first, end, out, column, ahead)


@inlined
def _linear_tile(tile: int, x: Any, weight: Any, bias: Any, out: Any) -> None:
    first, end = tile * _TILE, min(weight.shape[0], tile * _TILE + _TILE)
    sums = np.empty((x.shape[0], _TILE), np.float32)
    _dots(x, weight, first, end, sums, 0)
    for m in range(x.shape[0]):
        for n in range(first, end):
            total = sums[m, n - first]
            if bias.shape[0]:
                total += bias[n]
            out[m, n] += total


@spread
def linear(x: Any, weight: Any, bias: Any, out: Any) -> None:
    """Add ``x [M, K] @ weight [N, K].T + bias [N]`` to ``out [M, N]``; an empty bias is none."""
    for tile in numba.prange((weight.shape[0] + _TILE - 1) // _TILE):
        _linear_tile(tile, x, weight, bias, out)


@inlined
def _qkv_tile(tile: int, x: Any, weights: Any, biases: Any, outs: Any) -> None:
    q_tiles, kv_tiles = _tiles(weights[0]), _tiles(weights[1])
    if tile < q_tiles:
        weight, bias, out = weights[0], biases[0], outs[0]
    elif tile < q_tiles + kv_tiles:
        weight, bias, out, tile = weights[1], biases[1], outs[1], tile - q_tiles
    else:
        weight, bias, out, tile = weights[2], biases[2], outs[2], tile - q_tiles - kv_tiles
    first, end = tile * _TILE, min(weight.shape[0], tile * _TILE + _TILE)
    _dots(x, weight, first, end, out, first)
    if bias.shape[0]:
        for m in range(x.shape[0]):
            for n in range(first, end):
                out[m, n] += bias[n]


@inlined
def _tiles(weight: Any) -> Any:
    return (weight.shape[0] + _TILE - 1) // _TILE


@spread
def qkv(x: Any, weights: Any, biases: Any, outs: Any) -> None:
    """Write three maps of ``x``, as `linear`, to ``outs``: one start of the threads, not three."""
    for tile in numba.prange(_tiles(weights[0]) + 2 * _tiles(weights[1])):
        _qkv_tile(tile, x, weights, biases, outs)


@inlined
def _gate_up_tile(tile: int, x: Any, gate: Any, up: Any, out: Any) -> None:
    first, end = tile * _TILE, min(gate.shape[0], tile * _TILE + _TILE)
    opened = np.zeros((x.shape[0], _TILE), np.float32)
    values = np.zeros((x.shape[0], _TILE), np.float32)
    _dots(x, gate, first, end, opened, 0)
    _dots(x, up, first, end, values, 0)
    for m in range(x.shape[0]):
        for column in range(0, end - first, micro.LANES):
            micro.gated(opened, values, m, column)
        for n in range(first, end):
            out[m, n] = values[m, n - first]


@spread
def gate_up(x: Any, gate: Any, up: Any, out: Any) -> None:
    """Write ``silu(x @ gate.T) * (x @ up.T)`` to ``out [M, N]``."""
    for tile in numba.prange((gate.shape[0] + _TILE - 1) // _TILE):
        _gate_up_tile(tile, x, gate, up, out)


@compiled
def norm(x: Any, weight: Any, eps: float, out: Any) -> None:
    """Write the RMS norm of each row of ``x [M, K]`` to ``out``."""
    squares = np.empty((x.shape[0], 1), np.float32)
    for m in range(x.shape[0]):
        _dots_1(x, m, x, m, m + 1, squares, 0, 0)
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
            v_slots[h, first_slot + m] = v[m, h]


@inlined
def _merge(parts: Any, out: Any) -> None:
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
def _accumulate_1(
    weights: Any, m: int, v: Any, start: int, first: int, end: int, sums: Any
) -> None:
    """Add slots ``start + first`` to ``start + end`` to one row, by weight."""
    dim, d = v.shape[1], 0
    while d + 4 * micro.LANES <= dim:
        _accumulate_1_4(weights, m, v, start, first, end, sums, d)
        d += 4 * micro.LANES
    while d < dim:
        _accumulate_1_1(weights, m, v, start, first, end, sums, d)
        d += micro.LANES


@inlined
def _accumulate_3(
    weights: Any, m: int, v: Any, start: int, first: int, end: int, sums: Any
) -> None:
    """Do as `_accumulate_1`, three rows at once."""
    dim, d = v.shape[1], 0
    while d + 4 * micro.LANES <= dim:
        _accumulate_3_4(weights, m, v, start, first, end, sums, d)
        d += 4 * micro.LANES
    while d < dim:
        for i in range(m, m + 3):
            _accumulate_1_1(weights, i, v, start, first, end, sums, d)
        d += micro.LANES


@inlined
def _mix(weights: Any, group: int, alone: int, v: Any, start: int, sums: Any) -> None:
    """Write sums of slots from ``start`` by weight: ``alone + m // group`` slots in row m."""
    rows = weights.shape[0]
    sums[:, : v.shape[1]] = np.float32(0)
    for block in range(0, min(SPAN_SLOTS, alone + (rows - 1) // group), _BLOCK):
        limit = min(SPAN_SLOTS, block + _BLOCK)
        for m in range(0, rows, 3):
            shared = block
            if m + 3 <= rows:
                shared = max(block, min(limit, alone + m // group))
                _accumulate_3(weights, m, v, start, block, shared, sums)
            for i in range(m, min(m + 3, rows)):
                end = min(limit, alone + i // group)
                if end > shared:
                    _accumulate_1(weights, i, v, start, shared, end, sums)


@inlined
def _attend_span(
    q: Any, k: Any, v: Any, first_slot: int, scaling: float, span: int, group: int, head: int, part: Any
) -> None:
    rows, _, dim = q.shape
    start = span * SPAN_SLOTS
    alone = first_slot + 1 - start  # slots of the span that the first row sees, or below 1
    queries = np.empty((rows * group, dim), np.float32)
    for m in range(rows):
        for g in range(group):
            queries[m * group + g] = q[m, head * group + g]
    scores = np.empty((rows * group, SPAN_SLOTS), np.float32)
    seen = min(SPAN_SLOTS, alone + rows - 1)
    for block in range(0, seen, _BLOCK):
        _dots(queries, k, start + block, start + min(seen, block + _BLOCK), scores, block)
    for m in range(rows * group):
        count = min(SPAN_SLOTS, alone + m // group)
        part[m, dim], part[m, dim + 1] = micro.soften(scores, m, max(0, count), np.float32(scaling))
    _mix(scores, group, alone, v, start, part)


@spread
def _attend_spans(
    q: Any, k_slots: Any, v_slots: Any, first_slot: int, scaling: float, parts: Any
) -> None:
    heads, spans = parts.shape[:2]
    for task in numba.prange(heads * spans):
        head, span = task // spans, task % spans
        _attend_span(
            q, k_slots[head], v_slots[head], first_slot, scaling, span, q.shape[1] // heads, head, parts[head, span]
        )


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
    _attend_spans(q, k_slots, v_slots, first_slot, scaling, parts)
    for q_head in range(q.shape[1]):
        head, g = q_head // group, q_head % group
        for m in range(q.shape[0]):
            seen = (first_slot + m) // SPAN_SLOTS + 1
            _merge(parts[head, :seen, m * group + g], out[m, q_head])
