"""A chunk's items ↔ its two parts, as ``docs/format.md`` §7 lays them out.

The **base** part holds coarse bins and escapes, the **rest** part what completes them. Sections are
found and checked here; the loops over scalars are the kernels'.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvpacket_store.codec.checksum import Bytes
from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.types import BitArray

from .lanes import LANES
from .prepared import Prepared

__all__ = [
    "Place",
    "Symbols",
    "decode_parts",
    "encode_parts",
    "let_be_context",
    "new_context",
    "split_parts",
    "symbols_of",
]

STATE = 1 << 16  # where every lane begins to be encoded, and where its decoding must end
_COUNT = struct.Struct("<I")
_MAX_REST_BITS = 24  # of one item, at most: 11 octaves, a one, and 10 bits of mantissa


class Place(NamedTuple):
    """Which chunk: its layer, K (0) or V (1), and the setting that it is coded with.

    ``first_layer`` is the one whose rows the context begins with.
    """

    layer: int
    side: int
    setting: int
    first_layer: int = 0


def new_context(
    prepared: Prepared, num_tokens: int, num_layers: int | None = None
) -> npt.NDArray[np.int8]:
    """Return context rows of one block of tokens, zeros: [tiles, pairs, 16, 2].

    Of so many layers, or of all.
    """
    shape = prepared.pack.shape
    num_pairs = (shape.layers if num_layers is None else num_layers) * shape.padded
    return np.zeros((-(-num_tokens // 16), num_pairs, 16, 2), np.int8)


class Symbols(NamedTuple):
    """A chunk's symbols and their tables [C, T], its escapes, and its rest bits in 32-bit words."""

    symbols: npt.NDArray[np.uint8]
    which: npt.NDArray[np.uint64]
    fine_symbols: npt.NDArray[np.uint8]
    fine_which: npt.NDArray[np.uint64]
    escaped: BitArray
    words: npt.NDArray[np.uint32]
    num_bits: int


def symbols_of(
    chunk: BitArray,
    prepared: Prepared,
    place: Place,
    context: npt.NDArray[np.int8],
    kernels: Any = None,
) -> Symbols:
    """Return what is coded of a chunk [H, T, D] of 16-bit items; its context rows are written.

    ``kernels`` are the compiled ones unless the reference's are handed in.
    """
    kernels = kernels or _compiled()
    channels = prepared.channels(place.setting, place.layer, place.side)
    size = (len(channels[0]), chunk.shape[1])
    symbols, fine_symbols = np.empty((2, *size), np.uint8)
    which, fine_which = np.empty((2, *size), np.uint64)
    escaped = np.empty(chunk.size, chunk.dtype)
    words = np.zeros(chunk.size * _MAX_REST_BITS // 32 + 2, np.uint32)
    coded = (symbols, which, fine_symbols, fine_which, escaped, words)
    model = prepared.model(place.layer, place.side)
    num_escaped, num_bits = kernels.find_symbols(
        _geometry(prepared, place), channels, model, context, coded, chunk
    )
    escaped = escaped[:num_escaped]
    return Symbols(symbols, which, fine_symbols, fine_which, escaped, words, int(num_bits))


def encode_parts(
    chunk: BitArray,
    prepared: Prepared,
    place: Place,
    context: npt.NDArray[np.int8],
    kernels: Any = None,
) -> tuple[bytes, bytes] | None:
    """Return base and rest of a chunk [H, T, D] of 16-bit items; None where lanes would overflow.

    Context rows before this side are read, this side's are written.
    """
    kernels = kernels or _compiled()
    found = symbols_of(chunk, prepared, place, context, kernels)
    every = np.ones(len(found.symbols), np.bool_)
    lanes = _encode_lanes(found.symbols, found.which, every, prepared, kernels)
    dropping = prepared.pack.drops[place.setting, place.layer, place.side] > 0
    fine: bytes | None = b""
    if dropping.any():
        fine = _encode_lanes(found.fine_symbols, found.fine_which, dropping, prepared, kernels)
    if lanes is None or fine is None:
        return None
    base = b"".join([_COUNT.pack(len(found.escaped)), lanes, found.escaped.tobytes()])
    return base, fine + found.words.tobytes()[: (found.num_bits + 7) // 8]


def _compiled() -> Any:
    from . import kernels  # numba takes 0.4 s to import: not before it is needed

    return kernels


def _geometry(prepared: Prepared, place: Place) -> tuple[Any, int, int]:
    shape = prepared.pack.shape
    origin = 2 * place.first_layer * shape.padded
    first_row = (2 * place.layer + place.side) * shape.padded - origin
    return tuple(prepared.layout), (shape.first_row(place.layer) - origin) // 2, first_row


def _encode_lanes(
    symbols: Any, which: Any, used: Any, prepared: Prepared, kernels: Any
) -> bytes | None:
    """Return states, lengths and words of all lanes; None where a length has over 16 bits."""
    num_channels, num_tokens = symbols.shape
    num_lanes = min(LANES, num_tokens)
    capacity = num_channels * -(-num_tokens // num_lanes) + 1
    ends = capacity * np.arange(1, num_lanes + 1)
    states, places = np.full(num_lanes, STATE, np.uint64), ends.astype(np.uint64)
    words = np.empty(num_lanes * capacity, np.uint16)
    kernels.encode_lanes((states, places, words), which, prepared.tables[0], symbols, used)
    lengths = ends - places.astype(np.int64)
    if lengths.max() >= 1 << 16:
        return None
    rows = words.reshape(num_lanes, -1)
    runs = [row[len(row) - n :].tobytes() for row, n in zip(rows, lengths, strict=True)]
    return b"".join([states.astype("<u4").tobytes(), lengths.astype("<u2").tobytes(), *runs])


def split_parts(stored: Bytes, num_tokens: int) -> tuple[memoryview, memoryview]:
    """Return base and rest of a chunk that is stored whole."""
    view = memoryview(stored)
    _, end, _ = _find_lanes(view, _COUNT.size, num_tokens)
    end += 2 * _num_escapes(view)
    if end > len(view):
        raise _damaged("its sections do not fill it")
    return view[:end], view[end:]


def decode_parts(
    parts: tuple[Bytes, Bytes | None],
    prepared: Prepared,
    place: Place,
    context: npt.NDArray[np.int8],
    outs: tuple[BitArray, BitArray],
    kernels: Any = None,
) -> None:
    """Decode a chunk whose base, and rest where exact items are wanted, these are.

    Parameters
    ----------
    parts : tuple
        Base; rest or None.
    outs : tuple of uint16 [H, T, D]
        For exact items, and for those rebuilt from the base; of size 0 where not wanted.

    Raises
    ------
    CorruptRecordError
        The parts do not hold together. Parts that do may still be another chunk's: the checksum of
        the items is the caller's to compare.
    """
    kernels = kernels or _compiled()
    channels = prepared.channels(place.setting, place.layer, place.side)
    num_tokens = max(out.shape[1] for out in outs)
    base_view, rest = memoryview(parts[0]), parts[1]
    lanes, at, ends = _find_lanes(base_view, _COUNT.size, num_tokens, len(channels[0]))
    num_escapes = _num_escapes(base_view)
    if at + 2 * num_escapes != len(base_view):
        raise _damaged("its sections do not fill it")
    escaped = np.zeros(num_escapes + 1, np.uint16)
    escaped[:-1] = np.frombuffer(base_view, "<u2", num_escapes, at)
    if (escaped >> prepared.layout.sign_shift > 1).any():
        raise _damaged("it has an item that cannot be")
    fine_lanes, fine_ends, words, num_bytes = _find_rest(rest, channels, num_tokens)
    model = (*prepared.model(place.layer, place.side), prepared.tables, prepared.sizes)
    geometry = _geometry(prepared, place)
    found, bits = kernels.decode_chunk(
        geometry, channels, model, context, (lanes, escaped), (fine_lanes, words), outs
    )
    _require_done(lanes, ends)
    _require_done(fine_lanes, fine_ends)
    if found != num_escapes:
        raise _damaged("its escapes are not those of its symbols")
    if rest is not None and (int(bits) + 7) // 8 != num_bytes:
        raise _damaged("its rest ends early or late")


def let_be_context(
    chunk: BitArray,
    prepared: Prepared,
    place: Place,
    context: npt.NDArray[np.int8],
    kernels: Any = None,
) -> None:
    """Write the context rows of a chunk [H, T, D] that was stored without prediction."""
    kernels = kernels or _compiled()
    channels = prepared.channels(place.setting, place.layer, place.side)
    kernels.let_be_context(_geometry(prepared, place), channels, context, chunk)


def _find_rest(rest: Bytes | None, channels: Any, num_tokens: int) -> Any:
    """Return fine lanes and where they end, rest bits as 32-bit words, and their bytes."""
    no_lanes = (np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint16))
    if rest is None:
        return no_lanes, no_lanes[0], np.zeros(2, np.uint32), 0
    view, at = memoryview(rest), 0
    lanes, ends = no_lanes, no_lanes[0]
    num_dropping = int((channels[6] > 0).sum())
    if num_dropping:
        lanes, at, ends = _find_lanes(view, 0, num_tokens, num_dropping)
    num_bytes = len(view) - at
    words = np.zeros(num_bytes // 4 + 3, np.uint32)
    words.view(np.uint8)[:num_bytes] = np.frombuffer(view, np.uint8, num_bytes, at)
    return lanes, ends, words, num_bytes


def _find_lanes(view: memoryview, at: int, num_tokens: int, num_channels: int = 0) -> Any:
    """Return lanes (states, places, words), the offset behind their words, their last places.

    A damaged lane takes a word a symbol at most: zeros stand where it would read past the end.
    """
    num_lanes = min(LANES, num_tokens)
    heads = at + 6 * num_lanes
    if heads > len(view):
        raise _damaged("it is too short")
    states = np.frombuffer(view, "<u4", num_lanes, at).astype(np.uint64)
    lengths = np.frombuffer(view, "<u2", num_lanes, at + 4 * num_lanes).astype(np.int64)
    total = int(lengths.sum())
    if heads + 2 * total > len(view) or (states < STATE).any():
        raise _damaged("its lanes do not fit it")
    room = num_channels * -(-num_tokens // num_lanes) + 1
    words = np.zeros(total + room, np.uint16)
    words[:total] = np.frombuffer(view, "<u2", total, heads)
    ends = np.cumsum(lengths).astype(np.uint64)
    return (states, ends - lengths.astype(np.uint64), words), heads + 2 * total, ends


def _require_done(lanes: Any, ends: Any) -> None:
    states, places, _ = lanes
    if (states != STATE).any() or (places != ends).any():
        raise _damaged("a lane ends early or late")


def _num_escapes(view: memoryview) -> int:
    if len(view) < _COUNT.size:
        raise _damaged("it is too short")
    return int(_COUNT.unpack_from(view)[0])


def _damaged(reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"a chunk of level linear is damaged: {reason}")
