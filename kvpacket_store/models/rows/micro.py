"""Inner loops of the row kernels, written as LLVM vector code: registers are laid out by hand.

A sum over an axis is one chain of `LANES` lanes, multiplied and added in order, and its lanes are
put together in one fixed order. How many chains a loop advances at once (to read each operand from
memory less often) changes no bit, so any number of rows can take the loops that suit it.
Left to the compiler, a dot product reads two operands for each multiplication and reached
14 GFLOP/s a core; these reach 75 (Zen 3, peak 110).

Multiply-add is ``llvm.fmuladd``: one rounding where the processor has the instruction (x86 since
2013, ARM), two roundings elsewhere; the same throughout a machine either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

from kvpacket_store.models.rows import vectors as vec

__all__ = ["LANES", "accumulate", "dots", "gated", "soften"]

LANES = vec.LANES
_UNROLLED = 32  # inputs: a line of 16-bit weights

_LOG2_E = 1.4426950408889634
_THREE = types.containers.UniTuple(types.int64, 3)


def dots(rows: int, outputs: int) -> Any:
    """Make ``dots(x, m, w, (n, end, ahead), out, column)``: rows of ``x`` times rows of ``w``.

    ``out[m + i, column + j] = x[m + i] @ w[n + j]`` for i below ``rows`` and j below ``end - n``,
    ``outputs`` at a time; w in fp32, bf16 bits (uint16) or bytes; arrays are C-contiguous, their
    rows a multiple of `LANES` long. Asks for the rows of ``w`` that are ``ahead`` further on,
    if not 0.
    """

    def emit(builder: Any, arguments: Sequence[Any], element: str) -> None:
        x, x_stride, w, w_stride, out, out_stride, count, ahead = arguments
        xs = [vec.row(builder, x, x_stride, i) for i in range(rows)]
        outs = [vec.row(builder, out, out_stride, i) for i in range(rows)]
        ahead = builder.mul(ahead, w_stride)
        grouped = builder.mul(builder.udiv(count, vec.I64(outputs)), vec.I64(outputs))
        for width, start, end in ((outputs, vec.I64(0), grouped), (1, grouped, count)):
            with cgutils.for_range_slice(builder, start, end, vec.I64(width), vec.I64) as (n, _):
                first = builder.gep(w, [builder.mul(n, w_stride)])
                ws = [vec.row(builder, first, w_stride, j) for j in range(width)]
                sums = _dot_chains(builder, xs, ws, (w_stride, ahead), element)
                for i, place in enumerate(outs):
                    vec.store_scalars(builder, sums, i * width, width, builder.gep(place, [n]))

    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, x: Any, m: Any, w: Any, span: Any, out: Any, column: Any) -> Any:
        del typing, m, span, column
        element = _element(w)

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            del signature
            x_row, x_stride = vec.at(context, builder, (x, values[0]), values[1])
            first, end, ahead = cgutils.unpack_tuple(builder, values[3], 3)
            w_row, w_stride = vec.at(context, builder, (w, values[2]), first)
            out_row, out_stride = vec.at(context, builder, (out, values[4]), values[1])
            arguments = [x_row, x_stride, w_row, w_stride, builder.gep(out_row, [values[5]])]
            arguments += [out_stride, builder.sub(end, first), ahead]
            name = f"kvps_dots_{rows}_{outputs}_{element}"
            vec.call(builder, name, arguments, lambda b, a: emit(b, a, element))
            return context.get_dummy_value()

        return types.void(x, types.int64, w, _THREE, out, types.int64), codegen

    return call


def _element(array: Any) -> str:
    return {types.uint16: "bf16", types.uint8: "u8"}.get(array.dtype, "fp32")


def _dot_chains(
    builder: Any, xs: Sequence[Any], ws: Sequence[Any], sizes: tuple[Any, Any], element: str
) -> Any:
    """Return the products of all pairs of rows, in vectors; ``sizes`` are length, ahead."""
    chains = [[vec.zeros(builder) for _ in ws] for _ in xs]
    inputs, ahead = sizes

    def step(k: Any) -> None:
        wide = [vec.load_wide(builder, row, k, element) for row in ws]
        for row, row_chains in zip(xs, chains, strict=True):
            some_x = vec.load(builder, row, k)
            for chain, some_w in zip(row_chains, wide, strict=True):
                vec.advance(builder, chain, some_x, some_w)

    whole = builder.and_(inputs, vec.I64(-_UNROLLED))
    with cgutils.for_range_slice(builder, vec.I64(0), whole, vec.I64(_UNROLLED), vec.I64) as (k, _):
        for row in ws:
            for line in range(0, _UNROLLED, 32 if element == "bf16" else 16):
                vec.prefetch(builder, row, builder.add(builder.add(k, ahead), vec.I64(line)))
        for lane in range(0, _UNROLLED, LANES):
            step(builder.add(k, vec.I64(lane)))
    with cgutils.for_range_slice(builder, whole, inputs, vec.I64(LANES), vec.I64) as (k, _):
        step(k)
    return vec.lane_sums(builder, [builder.load(c) for row_chains in chains for c in row_chains])


def accumulate(rows: int, vectors: int) -> Any:
    """Make ``accumulate(weights, m, v, (start, first, end), out, column)``: sums by weight.

    ``out[m + i, column:][:LANES * vectors] += weights[m + i, t] * v[start + t, column:]``, t from
    ``first`` to ``end`` in order; ``rows`` rows share what is read of ``v``, as `dots` does of w.
    """

    def emit(builder: Any, arguments: Sequence[Any], element: str) -> None:
        weights, weight_stride, v, v_stride, first, end, out, out_stride = arguments
        weight_rows = [vec.row(builder, weights, weight_stride, i) for i in range(rows)]
        out_rows = [vec.row(builder, out, out_stride, i) for i in range(rows)]
        columns = [vec.I64(LANES * d) for d in range(vectors)]
        chains = [
            [vec.variable(builder, vec.load(builder, row, d)) for d in columns] for row in out_rows
        ]
        with cgutils.for_range(builder, end, start=first, intp=vec.I64) as loop:
            value = builder.gep(v, [builder.mul(loop.index, v_stride)])
            values = [vec.load_wide(builder, value, d, element) for d in columns]
            for row, row_chains in zip(weight_rows, chains, strict=True):
                weight = vec.splat(builder, builder.load(builder.gep(row, [loop.index]), align=4))
                for chain, some_v in zip(row_chains, values, strict=True):
                    vec.advance(builder, chain, weight, some_v)
        for row, row_chains in zip(out_rows, chains, strict=True):
            for d, chain in zip(columns, row_chains, strict=True):
                vec.store(builder, builder.load(chain), row, d)

    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, weights: Any, m: Any, v: Any, span: Any, out: Any, column: Any) -> Any:
        del typing, m, span, column
        element = _element(v)

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            del signature
            weight_row, weight_stride = vec.at(context, builder, (weights, values[0]), values[1])
            start, first, end = cgutils.unpack_tuple(builder, values[3], 3)
            v_row, v_stride = vec.at(context, builder, (v, values[2]), start)
            out_row, out_stride = vec.at(context, builder, (out, values[4]), values[1])
            v_row, out_row = (builder.gep(row, [values[5]]) for row in (v_row, out_row))
            arguments = [weight_row, weight_stride, v_row, v_stride, first, end]
            arguments += [out_row, out_stride]
            name = f"kvps_accumulate_{rows}_{vectors}_{element}"
            vec.call(builder, name, arguments, lambda b, a: emit(b, a, element))
            return context.get_dummy_value()

        return types.void(weights, types.int64, v, _THREE, out, types.int64), codegen

    return call


@intrinsic  # type: ignore[untyped-decorator]
def soften(typing: Any, scores: Any, m: Any, count: Any, scaling: Any) -> Any:
    """``soften(scores, m, count, scaling)`` → largest, total: a softmax not yet divided.

    The first ``count`` of ``scores[m]`` become ``exp(scaling * (score - largest))``, the rest of
    the last vector nothing of use. A scaling is positive.
    """
    del typing, m, count, scaling

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        row, _ = vec.at(context, builder, (scores, values[0]), values[1])
        count, scaling = values[2], values[3]
        steps = vec.steps(builder, builder.add(count, vec.I64(LANES - 1)))
        with cgutils.for_range(
            builder, builder.mul(steps, vec.I64(LANES)), start=count, intp=vec.I64
        ) as loop:
            builder.store(vec.F32(float("-inf")), builder.gep(row, [loop.index]))
        largest = vec.variable(builder, vec.V([float("-inf")] * LANES))
        with cgutils.for_range(builder, steps, intp=vec.I64) as loop:
            some = vec.load(builder, row, builder.mul(loop.index, vec.I64(LANES)))
            builder.store(vec.larger(builder, builder.load(largest), some), largest)
        peak = vec.largest_lane(builder, builder.load(largest))
        total = vec.zeros(builder)
        peaks = vec.splat(builder, peak)
        scale = vec.splat(builder, builder.fmul(scaling, vec.F32(_LOG2_E)))
        with cgutils.for_range(builder, steps, intp=vec.I64) as loop:
            k = builder.mul(loop.index, vec.I64(LANES))
            exponent = builder.fmul(builder.fsub(vec.load(builder, row, k), peaks), scale)
            weight = vec.power_of_two(builder, exponent)
            vec.store(builder, weight, row, k)
            builder.store(builder.fadd(builder.load(total), weight), total)
        sums = vec.lane_sums(builder, [builder.load(total)])
        pair = [builder.fmul(peak, scaling), builder.extract_element(sums[0], vec.I32(0))]
        return context.make_tuple(builder, signature.return_type, pair)

    returned = types.containers.UniTuple(types.float32, 2)
    return returned(scores, types.int64, types.int64, types.float32), codegen


@intrinsic  # type: ignore[untyped-decorator]
def gated(typing: Any, opened: Any, values: Any, m: Any, column: Any) -> Any:
    """``gated(opened, values, m, column)``: a vector of ``opened[m]`` becomes silu(it) * values."""
    del typing, m, column

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        row, column = arguments[2], arguments[3]
        opened_row, _ = vec.at(context, builder, (opened, arguments[0]), row)
        values_row, _ = vec.at(context, builder, (values, arguments[1]), row)
        x, y = vec.load(builder, opened_row, column), vec.load(builder, values_row, column)
        falling = vec.power_of_two(builder, builder.fmul(x, vec.V([-_LOG2_E] * LANES)))
        silu = builder.fdiv(x, builder.fadd(falling, vec.V([1.0] * LANES)))
        vec.store(builder, builder.fmul(silu, y), opened_row, column)
        return context.get_dummy_value()

    return types.void(opened, values, types.int64, types.int64), codegen
