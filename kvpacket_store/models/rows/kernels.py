"""The kernels of `RowForward`: what a row gets does not depend on the rows beside it.

Each output is summed by one thread in an order that was fixed when the code was compiled, over
spans that depend on slot numbers alone; how many rows, requests or threads there are changes no bit
(tests/unit/models/test_models_rows.py). Libraries choose their kernel by the number of rows: one
row and two differ there (measured, fp32: no row of 64 equal). Readable reference: `reference.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba.extending import overload

from kvpacket_store.codec.compiled import compiled, inlined, spread

__all__ = ["SPAN_SLOTS", "attend", "gate_up", "linear", "norm", "place", "qkv"]

SPAN_SLOTS = 512
"""Slots that one task attends to: 128 KiB of K, half of a core's second-level cache."""

_TILE = 16  # outputs a task: 18 kB of 16-bit weights at 576 inputs
_LOG2_E = np.float32(1.4426950408889634)


def _widen(row: Any, wide: Any) -> None:
    """Write a row of weights, bf16 bits or fp32, to ``wide`` fp32."""
    raise NotImplementedError


@overload(_widen)  # type: ignore[untyped-decorator]
def _widen_compiled(row: Any, wide: Any) -> Any:
    del wide
    if row.dtype == numba.types.uint16:

        def from_bf16(row: Any, wide: Any) -> None:
            bits = wide.view(np.uint32)
            for k in range(row.shape[0]):
                bits[k] = np.uint32(row[k]) << np.uint32(16)

        return from_bf16

    def from_fp32(row: Any, wide: Any) -> None:
        for k in range(row.shape[0]):
            wide[k] = row[k]

    return from_fp32


@spread
def linear(x: Any, weight: Any, bias: Any, out: Any) -> None:
    """Add ``x [M, K] @ weight [N, K].T + bias [N]`` to ``out [M, N]``; an empty bias is none."""
    outputs, inputs = weight.shape
    for tile in numba.prange((outputs + _TILE - 1) // _TILE):
        wide = np.empty(inputs, np.float32)
        for n in range(tile * _TILE, min(outputs, tile * _TILE + _TILE)):
            _widen(weight[n], wide)
            for m in range(x.shape[0]):
                row = x[m]
                total = np.float32(0)
                for k in range(inputs):
                    total += row[k] * wide[k]
                if bias.shape[0]:
                    total += bias[n]
                out[m, n] += total


@spread
def qkv(x: Any, weights: Any, biases: Any, outs: Any) -> None:
    """Write three maps of ``x``, as `linear`, to ``outs``: one start of the threads, not three."""
    q_outputs, inputs = weights[0].shape
    kv_outputs = weights[1].shape[0]
    for tile in numba.prange((q_outputs + 2 * kv_outputs + _TILE - 1) // _TILE):
        wide = np.empty(inputs, np.float32)
        for n in range(tile * _TILE, min(q_outputs + 2 * kv_outputs, tile * _TILE + _TILE)):
            if n < q_outputs:
                weight, bias, out, i = weights[0], biases[0], outs[0], n
            elif n < q_outputs + kv_outputs:
                weight, bias, out, i = weights[1], biases[1], outs[1], n - q_outputs
            else:
                weight, bias, out, i = weights[2], biases[2], outs[2], n - q_outputs - kv_outputs
            _widen(weight[i], wide)
            for m in range(x.shape[0]):
                row = x[m]
                total = np.float32(0)
                for k in range(inputs):
                    total += row[k] * wide[k]
                if bias.shape[0]:
                    total += bias[i]
                out[m, i] = total


@spread
def gate_up(x: Any, gate: Any, up: Any, out: Any) -> None:
    """Write ``silu(x @ gate.T) * (x @ up.T)`` to ``out [M, N]``."""
    outputs, inputs = gate.shape
    for tile in numba.prange((outputs + _TILE - 1) // _TILE):
        wide_gate, wide_up = np.empty(inputs, np.float32), np.empty(inputs, np.float32)
        for n in range(tile * _TILE, min(outputs, tile * _TILE + _TILE)):
            _widen(gate[n], wide_gate)
            _widen(up[n], wide_up)
            for m in range(x.shape[0]):
                row = x[m]
                opened, value = np.float32(0), np.float32(0)
                for k in range(inputs):
                    opened += row[k] * wide_gate[k]
                    value += row[k] * wide_up[k]
                out[m, n] = opened / (np.float32(1) + np.exp(-opened)) * value


@compiled
def norm(x: Any, weight: Any, eps: float, out: Any) -> None:
    """Write the RMS norm of each row of ``x [M, K]`` to ``out``."""
    for m in range(x.shape[0]):
        squares = np.float32(0)
        for k in range(x.shape[1]):
            squares += x[m, k] * x[m, k]
        scale = np.float32(1 / math.sqrt(squares / np.float32(x.shape[1]) + eps))
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
def _power_of_two(fraction: Any) -> Any:
    """Return ``2**fraction`` for a fraction from 0 to 1, to a part in 10 million."""
    high = np.float32(0.0013333558) + fraction * np.float32(0.00015469)
    middle = np.float32(0.05550357) + fraction * (np.float32(0.009618129) + fraction * high)
    low = np.float32(0.6931472) + fraction * (np.float32(0.2402265) + fraction * middle)
    return np.float32(1) + fraction * low


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


@spread
def attend(
    q: Any, k_slots: Any, v_slots: Any, first_slot: int, scaling: float, parts: Any, out: Any
) -> None:
    """Attend with ``q [Q, Hq, D]`` to slots ``[H, N, D]``; row *i* sees up to ``first_slot + i``.

    Spans of slots are attended to apart (``parts [H, spans, Q * Hq / H, D + 2]``: weighted sum,
    largest score, sum of weights) and put together in order: Dao et al. 2023, flash decoding, with
    spans of fixed length instead of a fixed number.
    """
    rows, q_heads, dim = q.shape
    heads = k_slots.shape[0]
    group = q_heads // heads
    spans = (first_slot + rows + SPAN_SLOTS - 1) // SPAN_SLOTS
    for task in numba.prange(heads * spans):
        head, span = task // spans, task % spans
        start = span * SPAN_SLOTS
        scores = np.empty(SPAN_SLOTS, np.float32)
        bits = scores.view(np.int32)
        for m in range(rows):
            count = min(SPAN_SLOTS, first_slot + m + 1 - start)
            for g in range(group):
                part = parts[head, span, m * group + g]
                query = q[m, head * group + g]
                largest = np.float32(-np.inf)
                for t in range(count):
                    key = k_slots[head, start + t]
                    score = np.float32(0)
                    for d in range(dim):
                        score += query[d] * key[d]
                    scores[t] = score * np.float32(scaling)
                    largest = max(largest, scores[t])
                # 2**y: a polynomial for the fraction, the whole part into the exponent's bits
                for t in range(count):
                    y = max((scores[t] - largest) * _LOG2_E, np.float32(-126))
                    whole = np.floor(y)
                    scores[t] = _power_of_two(y - whole)
                    bits[t] += np.int32(whole) << np.int32(23)
                total = np.float32(0)
                for t in range(count):
                    total += scores[t]
                for d in range(dim):
                    part[d] = np.float32(0)
                for t in range(count):
                    value, weight = v_slots[head, start + t], scores[t]
                    for d in range(dim):
                        part[d] += weight * value[d]
                part[dim], part[dim + 1] = largest, total
    for q_head in numba.prange(q_heads):
        head, g = q_head // group, q_head % group
        for m in range(rows):
            seen = (first_slot + m) // SPAN_SLOTS + 1
            _merge(parts[head, :seen, m * group + g], out[m, q_head])
