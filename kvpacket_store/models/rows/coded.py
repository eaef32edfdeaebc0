"""Attention to slots that are held as bytes: a draft's, read as they lie.

A scalar is ``low + code * step``, low and step being its slot's: so a score is
``low * sum(q) + step * (q @ codes)``, and what low adds to a mix of values is one number. Nothing
is expanded, and a quarter of the bytes of fp32 is read. Readable reference: `CodedSlots.expand`,
and `reference.attend` on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from kvpacket_store.codec.compiled import compiled, inlined, spread
from kvpacket_store.models.rows import micro
from kvpacket_store.models.rows.kernels import (
    BLOCK_SLOTS,
    SPAN_SLOTS,
    attend_spans,
    dots,
    merge,
    mix,
    queries_of,
)

__all__ = ["CodedSlots", "attend_coded"]

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class CodedSlots:
    """K or V of one layer, n slots.

    Parameters
    ----------
    codes : uint8 ``[H, n, D]``
        C-contiguous.
    low, step : float32 ``[H, n]``
        Of each slot.
    """

    codes: Array
    low: Array
    step: Array

    @property
    def scale_bytes(self) -> int:
        """Bytes of low and step."""
        return self.low.nbytes + self.step.nbytes

    def expand(self) -> Array:
        """Return ``[H, n, D]`` in float32.

        Examples
        --------
        >>> one = np.ones((1, 1), np.float32)
        >>> CodedSlots(np.array([[[0, 3]]], np.uint8), 2 * one, one).expand().tolist()
        [[[2.0, 5.0]]]
        """
        return np.asarray(self.low[..., None] + self.codes * self.step[..., None])


@inlined
def _weighted(weights: Any, low: Any, step: Any, count: int) -> Any:
    """Return the sum of ``weights * low`` in four chains; multiply weights by ``step``."""
    a = b = c = d = np.float32(0)
    whole = count & -4
    for t in range(0, whole, 4):
        a += weights[t] * low[t]
        b += weights[t + 1] * low[t + 1]
        c += weights[t + 2] * low[t + 2]
        d += weights[t + 3] * low[t + 3]
    for t in range(whole, count):
        a += weights[t] * low[t]
    for t in range(count):
        weights[t] *= step[t]
    return (a + b) + (c + d)


@inlined
def _attend_coded_span(task: Any, q: Any, k: Any, v: Any, scaling: float, parts: Any) -> None:
    head, span = task // parts.shape[1], task % parts.shape[1]
    part, start = parts[head, span], span * SPAN_SLOTS
    queries = queries_of(q, head, part.shape[0] // q.shape[0])
    rows, dim = queries.shape
    codes, low, step = k[0][head], k[1][head, start:], k[2][head, start:]
    count = min(SPAN_SLOTS, codes.shape[0] - start)
    scores = np.empty((rows, SPAN_SLOTS), np.float32)
    for block in range(0, count, BLOCK_SLOTS):
        dots(queries, codes, start + block, start + min(count, block + BLOCK_SLOTS), scores, block)
    offsets = np.empty(rows, np.float32)
    for m in range(rows):
        total = np.float32(0)
        for d in range(dim):
            total += queries[m, d]
        for t in range(count):
            scores[m, t] = scores[m, t] * step[t] + total * low[t]
        part[m, dim], part[m, dim + 1] = micro.soften(scores, m, count, np.float32(scaling))
        offsets[m] = _weighted(scores[m], v[1][head, start:], v[2][head, start:], count)
    mix(scores, rows, count, v[0][head], start, part)  # every row sees every slot
    for m in range(rows):
        for d in range(dim):
            part[m, d] += offsets[m]


@spread
def _attend_coded_spans(tasks: int, q: Any, k: Any, v: Any, scaling: float, parts: Any) -> None:
    for task in numba.prange(tasks):
        _attend_coded_span(np.int64(task), q, k, v, scaling, parts)


@compiled
def _attend(q: Any, k: Any, v: Any, own: Any, scaling: float, parts: Any, out: Any) -> None:
    k_own, v_own, first_own = own
    coded_parts, own_parts = parts
    group, dim = q.shape[1] // k_own.shape[0], q.shape[2]
    coded = coded_parts.shape[1]
    _attend_coded_spans(coded_parts.shape[0] * coded, q, k, v, scaling, coded_parts)
    tasks = own_parts.shape[0] * own_parts.shape[1]
    attend_spans(tasks, q, k_own, v_own, first_own, scaling, own_parts)
    for q_head in range(q.shape[1]):
        head, g = q_head // group, q_head % group
        for m in range(q.shape[0]):
            seen = (first_own + m) // SPAN_SLOTS + 1
            both = np.empty((coded + seen, dim + 2), np.float32)
            both[:coded] = coded_parts[head, :, m * group + g]
            both[coded:] = own_parts[head, :seen, m * group + g]
            merge(both, out[m, q_head])


def attend_coded(
    q: Array,
    coded: tuple[CodedSlots, CodedSlots],
    own: tuple[Array, Array, int],
    scaling: float,
    out: Array,
) -> None:
    """Attend with ``q [Q, Hq, D]`` to all coded slots, and as `kernels.attend` to those behind.

    Parameters
    ----------
    q, out : float32 ``[Q, Hq, D]``
        Rotated queries, and what comes of them.
    coded : tuple of CodedSlots
        K (rotated) and V.
    own : tuple
        K and V ``[H, N, D]`` fp32, and the slot of the first row among them.
    scaling : float
        Factor of q·k.
    """
    k, v = ((part.codes, part.low, part.step) for part in coded)
    heads, num_coded = k[0].shape[:2]
    rows = len(q) * (q.shape[1] // heads)
    spans = (-(-num_coded // SPAN_SLOTS), -(-(own[2] + len(q)) // SPAN_SLOTS))
    parts = tuple(np.empty((heads, n, rows, q.shape[2] + 2), np.float32) for n in spans)
    _attend(q, k, v, own, scaling, parts, out)
