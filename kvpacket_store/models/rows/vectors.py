"""Vector instructions of `micro`: what one builder call of LLVM is too little for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba.core import cgutils

__all__ = [
    "F32",
    "I32",
    "I64",
    "LANES",
    "V",
    "advance",
    "at",
    "call",
    "lane_sums",
    "larger",
    "largest_lane",
    "load",
    "load_wide",
    "power_of_two",
    "prefetch",
    "row",
    "splat",
    "steps",
    "store",
    "store_scalars",
    "variable",
    "zeros",
]


# One register: 16 numbers where there is AVX-512 (verifications of 8 rows take 0.6 of the time that
# 8 numbers take), else 8. What a row gets then differs between such machines.
def _lanes() -> int:
    try:
        return 16 if get_host_cpu_features().get("avx512f") else 8
    except RuntimeError:  # a processor that LLVM does not know
        return 8


LANES = _lanes()

F32, I8, I16 = ir.FloatType(), ir.IntType(8), ir.IntType(16)
I32, I64 = ir.IntType(32), ir.IntType(64)
V, _V_I8, _V_I16, _V_I32 = (ir.VectorType(scalar, LANES) for scalar in (F32, I8, I16, I32))
# 2**fraction for a fraction from 0 to 1, to a part in 10 million; highest power first
_POWER_OF_TWO = (0.00015469, 0.0013333558, 0.009618129, 0.05550357, 0.2402265, 0.6931472, 1.0)


def call(
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


def at(context: Any, builder: Any, typed: tuple[Any, Any], row: Any) -> tuple[Any, Any]:
    """Return a pointer to a row of a 2-d array, and how long the row is."""
    array_type, value = typed
    if array_type.ndim != 2 or array_type.layout != "C":
        raise TypeError(f"rows of {array_type}: only of C-contiguous matrices")
    array = context.make_array(array_type)(context, builder, value)
    length = cgutils.unpack_tuple(builder, array.shape, 2)[1]
    return builder.gep(array.data, [builder.mul(row, length)]), length


def row(builder: Any, pointer: Any, stride: Any, i: int) -> Any:
    """Point to the start of a row, i rows on."""
    return builder.gep(pointer, [builder.mul(stride, I64(i))])


def steps(builder: Any, count: Any) -> Any:
    """Return how many vectors so many numbers are."""
    return builder.udiv(count, I64(LANES))


def load(builder: Any, pointer: Any, k: Any) -> Any:
    """Load a vector from the k-th number on."""
    address = builder.bitcast(builder.gep(pointer, [k]), V.as_pointer())
    return builder.load(address, align=4)


def load_wide(builder: Any, pointer: Any, k: Any, element: str) -> Any:
    """Load a vector of fp32, bf16 (its upper half) or bytes as fp32."""
    if element == "fp32":
        return load(builder, pointer, k)
    if element == "u8":
        address = builder.bitcast(builder.gep(pointer, [k]), _V_I8.as_pointer())
        return builder.sitofp(builder.zext(builder.load(address, align=1), _V_I32), V)
    address = builder.bitcast(builder.gep(pointer, [k]), _V_I16.as_pointer())
    bits = builder.zext(builder.load(address, align=2), _V_I32)
    return builder.bitcast(builder.shl(bits, _V_I32([16] * LANES)), V)


def store(builder: Any, vector: Any, pointer: Any, k: Any) -> None:
    """Store a vector from the k-th number on."""
    address = builder.bitcast(builder.gep(pointer, [k]), V.as_pointer())
    builder.store(vector, address, align=4)


def variable(builder: Any, start: Any) -> Any:
    """Return a register with a value at first: LLVM keeps no slot of the stack for it."""
    return cgutils.alloca_once_value(builder, start)


def zeros(builder: Any) -> Any:
    """Return a `variable`, zeros at first."""
    return variable(builder, V([0.0] * LANES))


def advance(builder: Any, chain: Any, a: Any, b: Any) -> None:
    """Add ``a * b`` to a `variable`."""
    builder.store(multiply_add(builder, a, b, builder.load(chain)), chain)


def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builtin(builder, "fmuladd", a, b, c)


def builtin(builder: Any, name: str, *vectors: Any) -> Any:
    signature = ir.FunctionType(V, [V] * len(vectors))
    name = f"llvm.{name}.v{LANES}f32"
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, vectors)


def splat(builder: Any, scalar: Any) -> Any:
    """Return a vector of one number."""
    first = builder.insert_element(V(ir.Undefined), scalar, I32(0))
    return pick(builder, first, first, [0] * LANES)


def pick(builder: Any, a: Any, b: Any, lanes: Sequence[int]) -> Any:
    mask = ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
    return builder.shuffle_vector(a, b, mask)


def lane_sums(builder: Any, vectors: Sequence[Any]) -> list[Any]:
    """Return the sum of each vector, as many sums a vector as it has lanes.

    Lanes half a vector apart are added first, neighbours last. Fewer vectors than lanes are
    repeated, which costs nothing: LLVM keeps one of equal instructions.
    """
    sums = []
    for first in range(0, len(vectors), LANES):
        some = vectors[first : first + LANES]
        parts = [(some[i % len(some)], [i]) for i in range(LANES)]
        while len(parts) > 1:
            half = len(parts) // 2
            pairs = zip(parts[:half], parts[half:], strict=True)
            parts = [_folded(builder, a, b, half) for a, b in pairs]
        sums.append(parts[0][0])
    return sums


def _folded(
    builder: Any, a: tuple[Any, list[int]], b: tuple[Any, list[int]], step: int
) -> tuple[Any, list[int]]:
    """Return lanes of two vectors plus those ``step`` after them, and whose sums they are.

    In the order of owners; each has ``2 * step`` neighbouring lanes before, ``step`` afterwards.
    """
    owned = [(owner, 2 * step * i) for i, owner in enumerate(a[1])]
    owned += [(owner, LANES + 2 * step * i) for i, owner in enumerate(b[1])]
    owned.sort()
    lanes = [first + lane for _, first in owned for lane in range(step)]
    later = [lane + step for lane in lanes]
    folded = builder.fadd(pick(builder, a[0], b[0], lanes), pick(builder, a[0], b[0], later))
    return folded, [owner for owner, _ in owned]


def larger(builder: Any, a: Any, b: Any) -> Any:
    """Return the larger of each lane."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def largest_lane(builder: Any, vector: Any) -> Any:
    """Return the largest lane of a vector."""
    for step in (LANES >> i for i in range(1, LANES.bit_length())):
        moved = pick(builder, vector, vector, [(i + step) % LANES for i in range(LANES)])
        vector = larger(builder, vector, moved)
    return builder.extract_element(vector, I32(0))


def power_of_two(builder: Any, exponent: Any) -> Any:
    """Return ``2**exponent`` within 2**-126 and 2**127: a polynomial, and the exponent's bits."""
    exponent = larger(builder, V([-126.0] * LANES), exponent)
    below = builder.fcmp_ordered("<", exponent, V([127.0] * LANES))
    exponent = builder.select(below, exponent, V([127.0] * LANES))
    whole = builtin(builder, "floor", exponent)
    fraction = builder.fsub(exponent, whole)
    power: Any = V([_POWER_OF_TWO[0]] * LANES)
    for coefficient in _POWER_OF_TWO[1:]:
        power = multiply_add(builder, power, fraction, V([coefficient] * LANES))
    raised = builder.shl(builder.fptosi(whole, _V_I32), _V_I32([23] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(power, _V_I32), raised), V)


def store_scalars(builder: Any, sums: Any, first: int, count: int, pointer: Any) -> None:
    """Store ``count`` of the lanes in vectors ``sums``, from lane ``first``."""
    lanes = [first % LANES + i for i in range(count)]
    some = pick(builder, sums[first // LANES], sums[first // LANES], lanes)
    builder.store(some, builder.bitcast(pointer, some.type.as_pointer()), align=4)


def prefetch(builder: Any, pointer: Any, k: Any) -> None:
    """Ask for the line that the k-th number is on; no address is wrong."""
    byte = ir.IntType(8).as_pointer()
    signature = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0i8")
    address = builder.bitcast(builder.gep(pointer, [k]), byte)
    builder.call(function, [address, I32(0), I32(3), I32(1)])
