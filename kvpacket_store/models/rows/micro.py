"""Inner loops of the row kernels, written as LLVM vector code: registers are laid out by hand.

A sum over an axis is one chain of 8 lanes, multiplied and added in order, and its lanes are put
together in one fixed order. How many chains a loop advances at once (to read each operand from
memory less often) changes no bit, so any number of rows can take the loops that suit it.
Left to the compiler, a dot product reads two operands for each multiplication and reached
14 GFLOP/s a core; these reach 75 (Zen 3, peak 110).

Multiply-add is ``llvm.fmuladd``: one rounding where the processor has the instruction (x86 since
2013, ARM), two roundings elsewhere; the same throughout a machine either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

__all__ = ["LANES", "accumulate", "dots", "gated", "soften"]

LANES = 8
_UNROLLED = 32  # inputs: a line of 16-bit weights

_F32, _I16, _I32, _I64 = ir.FloatType(), ir.IntType(16), ir.IntType(32), ir.IntType(64)
_V8, _V8_I16, _V8_I32 = (ir.VectorType(scalar, LANES) for scalar in (_F32, _I16, _I32))
_LOG2_E = 1.4426950408889634
# 2**fraction for a fraction from 0 to 1, to a part in 10 million; highest power first
_POWER_OF_TWO = (0.00015469, 0.0013333558, 0.009618129, 0.05550357, 0.2402265, 0.6931472, 1.0)


def dots(rows: int, outputs: int) -> Any:
    """Make ``dots(x, m, w, n, end, out, column, ahead)``: rows of ``x`` times rows of ``w``.

    ``out[m + i, column + j] = x[m + i] @ w[n + j]`` for i below ``rows`` and j below ``end - n``,
    ``outputs`` at a time; w in fp32 or bf16 bits (uint16); arrays are C-contiguous, their rows a
    multiple of 8 long. Asks for the rows of ``w`` that are ``ahead`` further on, if not 0.
    """

    def emit(builder: Any, arguments: Sequence[Any], element: str) -> None:
        x, x_stride, w, w_stride, out, out_stride, count, ahead = arguments
        xs = [_row(builder, x, x_stride, i) for i in range(rows)]
        outs = [_row(builder, out, out_stride, i) for i in range(rows)]
        ahead = builder.mul(ahead, w_stride)
        grouped = builder.mul(builder.udiv(count, _I64(outputs)), _I64(outputs))
        for width, start, end in ((outputs, _I64(0), grouped), (1, grouped, count)):
            with cgutils.for_range_slice(builder, start, end, _I64(width), _I64) as (n, _):
                first = builder.gep(w, [builder.mul(n, w_stride)])
                ws = [_row(builder, first, w_stride, j) for j in range(width)]
                sums = _dot_chains(builder, xs, ws, (w_stride, ahead), element)
                for i, place in enumerate(outs):
                    _store_scalars(builder, sums, i * width, width, builder.gep(place, [n]))

    @intrinsic  # type: ignore[untyped-decorator]
    def call(
        typing: Any, x: Any, m: Any, w: Any, n: Any, end: Any, out: Any, column: Any, ahead: Any
    ) -> Any:
        del typing, m, n, end, column, ahead
        element = "bf16" if w.dtype == types.uint16 else "fp32"

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            del signature
            x_row, x_stride = _at(context, builder, (x, values[0]), values[1])
            w_row, w_stride = _at(context, builder, (w, values[2]), values[3])
            out_row, out_stride = _at(context, builder, (out, values[5]), values[1])
            arguments = [x_row, x_stride, w_row, w_stride, builder.gep(out_row, [values[6]])]
            arguments += [out_stride, builder.sub(values[4], values[3]), values[7]]
            name = f"kvps_dots_{rows}_{outputs}_{element}"
            _call(builder, name, arguments, lambda b, a: emit(b, a, element))
            return context.get_dummy_value()

        i64 = types.int64
        return types.void(x, i64, w, i64, i64, out, i64, i64), codegen

    return call


def _dot_chains(
    builder: Any, xs: Sequence[Any], ws: Sequence[Any], sizes: tuple[Any, Any], element: str
) -> Any:
    """Return the products of all pairs of rows, in vectors of 8; ``sizes`` are length, ahead."""
    chains = [[_zeros(builder) for _ in ws] for _ in xs]
    inputs, ahead = sizes

    def step(k: Any) -> None:
        wide = [_load_wide(builder, row, k, element) for row in ws]
        for row, row_chains in zip(xs, chains, strict=True):
            some_x = _load(builder, row, k)
            for chain, some_w in zip(row_chains, wide, strict=True):
                _advance(builder, chain, some_x, some_w)

    whole = builder.and_(inputs, _I64(-_UNROLLED))
    with cgutils.for_range_slice(builder, _I64(0), whole, _I64(_UNROLLED), _I64) as (k, _):
        for row in ws:
            for line in range(0, _UNROLLED, 32 if element == "bf16" else 16):
                _prefetch(builder, row, builder.add(builder.add(k, ahead), _I64(line)))
        for lane in range(0, _UNROLLED, LANES):
            step(builder.add(k, _I64(lane)))
    with cgutils.for_range_slice(builder, whole, inputs, _I64(LANES), _I64) as (k, _):
        step(k)
    return _lane_sums(builder, [builder.load(c) for row_chains in chains for c in row_chains])


def _store_scalars(builder: Any, sums: Any, first: int, count: int, pointer: Any) -> None:
    """Store ``count`` of the lanes in vectors ``sums``, from lane ``first``."""
    lanes = [first % LANES + i for i in range(count)]
    some = _pick(builder, sums[first // LANES], sums[first // LANES], lanes)
    builder.store(some, builder.bitcast(pointer, some.type.as_pointer()), align=4)


def _prefetch(builder: Any, pointer: Any, k: Any) -> None:
    byte = ir.IntType(8).as_pointer()
    signature = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0i8")
    address = builder.bitcast(builder.gep(pointer, [k]), byte)
    builder.call(function, [address, _I32(0), _I32(3), _I32(1)])


def accumulate(rows: int, vectors: int) -> Any:
    """Make ``accumulate(weights, m, v, start, count, out, column)``: weighted sums of rows.

    ``out[m + i, column:][:8 * vectors] += weights[m + i, t] * v[start + t, column:]``, t from
    ``first`` to ``end`` in order; ``rows`` rows share what is read of ``v``.
    """

    def emit(builder: Any, arguments: Sequence[Any]) -> None:
        weights, weight_stride, v, v_stride, first, end, out, out_stride = arguments
        weight_rows = [_row(builder, weights, weight_stride, i) for i in range(rows)]
        out_rows = [_row(builder, out, out_stride, i) for i in range(rows)]
        columns = [_I64(LANES * d) for d in range(vectors)]
        chains = [[_variable(builder, _load(builder, row, d)) for d in columns] for row in out_rows]
        with cgutils.for_range(builder, end, start=first, intp=_I64) as loop:
            value = builder.gep(v, [builder.mul(loop.index, v_stride)])
            values = [_load(builder, value, d) for d in columns]
            for row, row_chains in zip(weight_rows, chains, strict=True):
                weight = _splat(builder, builder.load(builder.gep(row, [loop.index]), align=4))
                for chain, some_v in zip(row_chains, values, strict=True):
                    _advance(builder, chain, weight, some_v)
        for row, row_chains in zip(out_rows, chains, strict=True):
            for d, chain in zip(columns, row_chains, strict=True):
                _store(builder, builder.load(chain), row, d)

    @intrinsic  # type: ignore[untyped-decorator]
    def call(
        typing: Any, weights: Any, m: Any, v: Any, start: Any, t: Any, end: Any, out: Any, d: Any
    ) -> Any:
        del typing

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            del signature
            weight_row, weight_stride = _at(context, builder, (weights, values[0]), values[1])
            v_row, v_stride = _at(context, builder, (v, values[2]), values[3])
            out_row, out_stride = _at(context, builder, (out, values[6]), values[1])
            v_row, out_row = (builder.gep(row, [values[7]]) for row in (v_row, out_row))
            arguments = [weight_row, weight_stride, v_row, v_stride, values[4], values[5]]
            arguments += [out_row, out_stride]
            _call(builder, f"kvps_accumulate_{rows}_{vectors}", arguments, emit)
            return context.get_dummy_value()

        i64 = types.int64
        return types.void(weights, i64, v, i64, i64, i64, out, i64), codegen

    return call


@intrinsic  # type: ignore[untyped-decorator]
def soften(typing: Any, scores: Any, m: Any, count: Any, scaling: Any) -> Any:
    """``soften(scores, m, count, scaling)`` → largest, total: a softmax not yet divided.

    The first ``count`` of ``scores[m]`` become ``exp(scaling * (score - largest))``, the rest of
    the last 8 nothing of use. A scaling is positive.
    """
    del typing, m, count, scaling

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        row, _ = _at(context, builder, (scores, values[0]), values[1])
        count, scaling = values[2], values[3]
        steps = _steps(builder, builder.add(count, _I64(LANES - 1)))
        with cgutils.for_range(
            builder, builder.mul(steps, _I64(LANES)), start=count, intp=_I64
        ) as loop:
            builder.store(_F32(float("-inf")), builder.gep(row, [loop.index]))
        largest = _variable(builder, _V8([float("-inf")] * LANES))
        with cgutils.for_range(builder, steps, intp=_I64) as loop:
            some = _load(builder, row, builder.mul(loop.index, _I64(LANES)))
            builder.store(_larger(builder, builder.load(largest), some), largest)
        peak = _largest_lane(builder, builder.load(largest))
        total = _zeros(builder)
        peaks = _splat(builder, peak)
        scale = _splat(builder, builder.fmul(scaling, _F32(_LOG2_E)))
        with cgutils.for_range(builder, steps, intp=_I64) as loop:
            k = builder.mul(loop.index, _I64(LANES))
            exponent = builder.fmul(builder.fsub(_load(builder, row, k), peaks), scale)
            weight = _power_of_two(builder, exponent)
            _store(builder, weight, row, k)
            builder.store(builder.fadd(builder.load(total), weight), total)
        sums = _lane_sums(builder, [builder.load(total)])
        pair = [builder.fmul(peak, scaling), builder.extract_element(sums[0], _I32(0))]
        return context.make_tuple(builder, signature.return_type, pair)

    returned = types.UniTuple(types.float32, 2)
    return returned(scores, types.int64, types.int64, types.float32), codegen


@intrinsic  # type: ignore[untyped-decorator]
def gated(typing: Any, opened: Any, values: Any, m: Any, column: Any) -> Any:
    """``gated(opened, values, m, column)``: 8 of ``opened[m]`` become silu(opened) * values."""
    del typing, m, column

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        row, column = arguments[2], arguments[3]
        opened_row, _ = _at(context, builder, (opened, arguments[0]), row)
        values_row, _ = _at(context, builder, (values, arguments[1]), row)
        x, y = _load(builder, opened_row, column), _load(builder, values_row, column)
        falling = _power_of_two(builder, builder.fmul(x, _V8([-_LOG2_E] * LANES)))
        silu = builder.fdiv(x, builder.fadd(falling, _V8([1.0] * LANES)))
        _store(builder, builder.fmul(silu, y), opened_row, column)
        return context.get_dummy_value()

    return types.void(opened, values, types.int64, types.int64), codegen


def _call(
    builder: Any, name: str, arguments: Sequence[Any], emit: Callable[[Any, Sequence[Any]], None]
) -> None:
    """Call a function of this module of code, made the first time: one copy, its own registers."""
    signature = ir.FunctionType(ir.VoidType(), [a.type for a in arguments])
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    if function.is_declaration:
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        function.attributes.add("optsize")  # LLVM would unroll the rest of a row besides
        inner = ir.IRBuilder(function.append_basic_block("entry"))
        emit(inner, function.args)
        inner.ret_void()
    builder.call(function, arguments)


def _at(context: Any, builder: Any, typed: tuple[Any, Any], row: Any) -> tuple[Any, Any]:
    """Return a pointer to a row of a 2-d array, and how long the row is."""
    array_type, value = typed
    if array_type.ndim != 2 or array_type.layout != "C":
        raise TypeError(f"rows of {array_type}: only of C-contiguous matrices")
    array = context.make_array(array_type)(context, builder, value)
    length = cgutils.unpack_tuple(builder, array.shape, 2)[1]
    return builder.gep(array.data, [builder.mul(row, length)]), length


def _row(builder: Any, pointer: Any, stride: Any, i: int) -> Any:
    return builder.gep(pointer, [builder.mul(stride, _I64(i))])


def _steps(builder: Any, count: Any) -> Any:
    return builder.lshr(count, _I64(3))


def _load(builder: Any, pointer: Any, k: Any) -> Any:
    address = builder.bitcast(builder.gep(pointer, [k]), _V8.as_pointer())
    return builder.load(address, align=4)


def _load_wide(builder: Any, pointer: Any, k: Any, element: str) -> Any:
    """Load 8 weights as fp32; bf16 is its upper half."""
    if element == "fp32":
        return _load(builder, pointer, k)
    address = builder.bitcast(builder.gep(pointer, [k]), _V8_I16.as_pointer())
    bits = builder.zext(builder.load(address, align=2), _V8_I32)
    return builder.bitcast(builder.shl(bits, _V8_I32([16] * LANES)), _V8)


def _store(builder: Any, vector: Any, pointer: Any, k: Any) -> None:
    address = builder.bitcast(builder.gep(pointer, [k]), _V8.as_pointer())
    builder.store(vector, address, align=4)


def _variable(builder: Any, start: Any) -> Any:
    """Return a register with a value at first: LLVM keeps no slot of the stack for it."""
    return cgutils.alloca_once_value(builder, start)


def _zeros(builder: Any) -> Any:
    return _variable(builder, _V8([0.0] * LANES))


def _advance(builder: Any, chain: Any, a: Any, b: Any) -> None:
    builder.store(_multiply_add(builder, a, b, builder.load(chain)), chain)


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return _builtin(builder, "fmuladd", a, b, c)


def _builtin(builder: Any, name: str, *vectors: Any) -> Any:
    signature = ir.FunctionType(_V8, [_V8] * len(vectors))
    name = f"llvm.{name}.v{LANES}f32"
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, vectors)


def _splat(builder: Any, scalar: Any) -> Any:
    first = builder.insert_element(_V8(ir.Undefined), scalar, _I32(0))
    return _pick(builder, first, first, [0] * LANES)


def _pick(builder: Any, a: Any, b: Any, lanes: Sequence[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_I32, len(lanes)), list(lanes))
    return builder.shuffle_vector(a, b, mask)


def _lane_sums(builder: Any, vectors: Sequence[Any]) -> list[Any]:
    """Return the sum of each vector, 8 sums a vector: lanes 4 apart, then 2, then neighbours.

    Fewer than 8 are repeated, which costs nothing: LLVM keeps one of equal instructions.
    """
    sums = []
    for first in range(0, len(vectors), LANES):
        some = vectors[first : first + LANES]
        a = [some[i % len(some)] for i in range(LANES)]
        fours = [
            _folded(builder, a[i], a[i + 4], [0, 1, 2, 3, 8, 9, 10, 11], 4) for i in range(4)
        ]
        twos = [
            _folded(builder, fours[i], fours[i + 1], [0, 1, 8, 9, 4, 5, 12, 13], 2) for i in (0, 2)
        ]
        sums.append(_folded(builder, twos[0], twos[1], [0, 2, 8, 10, 4, 6, 12, 14], 1))
    return sums


def _folded(builder: Any, a: Any, b: Any, lanes: Sequence[int], step: int) -> Any:
    """Return the lanes of two vectors plus those ``step`` after them."""
    later = [lane + step for lane in lanes]
    return builder.fadd(_pick(builder, a, b, lanes), _pick(builder, a, b, later))


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _largest_lane(builder: Any, vector: Any) -> Any:
    for step in (4, 2, 1):
        moved = _pick(builder, vector, vector, [(i + step) % LANES for i in range(LANES)])
        vector = _larger(builder, vector, moved)
    return builder.extract_element(vector, _I32(0))


def _power_of_two(builder: Any, exponent: Any) -> Any:
    """Return ``2**exponent`` within 2**-126 and 2**127: a polynomial, and the exponent's bits."""
    exponent = _larger(builder, _V8([-126.0] * LANES), exponent)
    below = builder.fcmp_ordered("<", exponent, _V8([127.0] * LANES))
    exponent = builder.select(below, exponent, _V8([127.0] * LANES))
    whole = _builtin(builder, "floor", exponent)
    fraction = builder.fsub(exponent, whole)
    power: Any = _V8([_POWER_OF_TWO[0]] * LANES)
    for coefficient in _POWER_OF_TWO[1:]:
        power = _multiply_add(builder, power, fraction, _V8([coefficient] * LANES))
    raised = builder.shl(builder.fptosi(whole, _V8_I32), _V8_I32([23] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(power, _V8_I32), raised), _V8)
