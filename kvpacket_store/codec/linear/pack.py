"""A codec pack: what level ``linear`` knows of a model's K and V (``docs/format.md`` §8).

Everything is integers. A pack is immutable and named by the digest of its contents; a record names
the pack that it was coded with.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from kvpacket_store.codec.checksum import Bytes
from kvpacket_store.codec.rans_body import EXPONENT_BITS
from kvpacket_store.errors import CorruptRecordError, UnsupportedFormatError
from kvpacket_store.types import KVDtype

from .shapes import GROUP, NUM_COARSE, NUM_FINE, PackShape, fine_table

__all__ = ["MAX_PACK_BYTES", "SETTINGS", "CodecPack"]

SETTINGS = ("whole", "sigma/8", "sigma/4", "sigma/2")
MAX_PACK_BYTES = 1 << 28
MAGIC = b"\x89KVC\r\n\x1a\n"
PACK_VERSION = 1
_HEAD = struct.Struct("<8sHI")
_MAX_RATIO = 1 << 15  # no Zstandard block gives more bytes for one
_MAX_BASE = 1 << 30  # shifted left by 32 at most, in 64 bits
_MAX_PREDICTION = 1 << 30  # bins: with room to spare in 32 bits
_WEIGHTS = re.compile("[0-9a-f]{64}|")
_MISREAD = (
    zstandard.ZstdError,
    struct.error,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)
_NAMES = (
    "steps",
    "centers",
    "shifts",
    "bases",
    "multipliers",
    "downs",
    "drops",
    "classes",
    "coarse",
    "fine",
    "matrices",
)


@dataclass(frozen=True, eq=False)
class CodecPack:
    """Integers that predict and price the scalars of one model.

    Parameters
    ----------
    shape : PackShape
        Layers, kv heads, head dimension, and how many layers back a prediction looks.
    kv_dtype : KVDtype
        Of the items.
    weights : str
        SHA-256 of the model's weights, or empty.
    about : mapping
        Where the pack comes from: corpus, tokens, bits measured. Not read by the codec.
    steps, shifts, downs : uint8 [L, 2, C]
        Biased exponent of a bin's width; how far bins are shifted as context, sums as prediction.
    centers : int16 [L, 2, C]
        Bin that is context 0.
    bases : int32 [L, 2, C]
        Prediction from a context of zeros, in 256ths of a bin.
    multipliers : uint16 [L, 2, C]
        From sums to bins, before the shift.
    drops, classes : uint8 [4, L, 2, C]
        By setting: low bits of a bin that the base leaves out; the row of tables.
    coarse : uint16 [K, 15, 64]
        Frequencies of base symbols, by class and by dropped bits and place in the coarse bin.
    fine : uint16 [K, 38, 8]
        Frequencies of dropped bits, by class and by dropped bits and distance.
    matrices : int8 [n]
        Weights, by layer, side and group of 16 channels, [16, context rows] each.
    """

    shape: PackShape
    kv_dtype: KVDtype
    weights: str
    about: Mapping[str, Any]
    steps: npt.NDArray[np.uint8]
    centers: npt.NDArray[np.int16]
    shifts: npt.NDArray[np.uint8]
    bases: npt.NDArray[np.int32]
    multipliers: npt.NDArray[np.uint16]
    downs: npt.NDArray[np.uint8]
    drops: npt.NDArray[np.uint8]
    classes: npt.NDArray[np.uint8]
    coarse: npt.NDArray[np.uint16]
    fine: npt.NDArray[np.uint16]
    matrices: npt.NDArray[np.int8] = field(repr=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the contents, as 64 lower-case hex characters."""
        return hashlib.sha256(self._contents()).hexdigest()

    def fits(self, kv_dtype: KVDtype, shape: tuple[int, ...]) -> bool:
        """Say whether the pack is for K and V of this dtype and shape (L, H, T, D)."""
        return kv_dtype is self.kv_dtype and (shape[0], shape[1], shape[3]) == self.shape[:3]

    def to_bytes(self) -> bytes:
        """Return the pack as a file's contents."""
        contents = self._contents()
        packed = zstandard.ZstdCompressor(level=3).compress(contents)  # 19 saves nothing
        return _HEAD.pack(MAGIC, PACK_VERSION, len(contents)) + packed

    @classmethod
    def from_bytes(cls, data: Bytes, *, max_bytes: int = MAX_PACK_BYTES) -> CodecPack:
        """Return the pack that :meth:`to_bytes` gave, checked.

        ``max_bytes`` bounds its contents, before anything of their size is allocated.

        Raises
        ------
        UnsupportedFormatError
            Not a codec pack, or one of a newer version.
        CorruptRecordError
            Cut, damaged, or numbers that cannot be.
        """
        if len(data) < _HEAD.size or bytes(data[: len(MAGIC)]) != MAGIC:
            raise UnsupportedFormatError("these bytes are not a codec pack of kvpacket-store")
        _, version, num_bytes = _HEAD.unpack_from(data)
        if version != PACK_VERSION:
            raise UnsupportedFormatError(f"codec pack of version {version}; upgrade kvpacket-store")
        packed = data[_HEAD.size :]
        if num_bytes > min(max_bytes, MAX_PACK_BYTES, _MAX_RATIO * len(packed)):
            raise _damaged(f"it declares {num_bytes} bytes")
        try:
            if zstandard.frame_content_size(packed) != num_bytes:
                raise _damaged("it declares another length")
            return _parse(zstandard.ZstdDecompressor().decompress(packed, allow_extra_data=False))
        except _MISREAD as error:
            raise _damaged(str(error)) from error

    def _contents(self) -> bytes:
        head = {
            "shape": self.shape._asdict(),
            "kv_dtype": self.kv_dtype.value,
            "weights": self.weights,
            "about": dict(self.about),
            "classes": len(self.coarse),
        }
        text = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
        arrays = [_little(getattr(self, name)).tobytes() for name in _NAMES]
        return b"".join([struct.pack("<I", len(text)), text, *arrays])


def _little(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


def _parse(contents: bytes) -> CodecPack:
    (length,) = struct.unpack_from("<I", contents)
    head = json.loads(contents[4 : 4 + length])
    shape = PackShape(**{name: int(value) for name, value in head["shape"].items()})
    shape.require_possible()
    sizes = _array_shapes(shape, int(head["classes"]))
    at, arrays = 4 + length, {}
    for name in _NAMES:
        dtype, size = sizes[name]
        count = int(np.prod(size))
        arrays[name] = np.frombuffer(contents, dtype, count, at).reshape(size)
        at += arrays[name].nbytes
    if at != len(contents):
        raise ValueError("bytes follow its end")
    pack = CodecPack(
        shape, KVDtype(head["kv_dtype"]), str(head["weights"]), dict(head["about"]), **arrays
    )
    if pack._contents() != contents:
        raise ValueError("its head is not written as heads are")
    _require_possible(pack)
    return pack


def _array_shapes(shape: PackShape, num_classes: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    if not 1 <= num_classes <= 64:
        raise ValueError(f"{num_classes} classes")
    each = (shape.layers, 2, shape.channels)
    return {
        "steps": ("<u1", each),
        "centers": ("<i2", each),
        "shifts": ("<u1", each),
        "bases": ("<i4", each),
        "multipliers": ("<u2", each),
        "downs": ("<u1", each),
        "drops": ("<u1", (len(SETTINGS), *each)),
        "classes": ("<u1", (len(SETTINGS), *each)),
        "coarse": ("<u2", (num_classes, NUM_COARSE, 64)),
        "fine": ("<u2", (num_classes, NUM_FINE, 8)),
        "matrices": ("<i1", (shape.num_weights,)),
    }


def _require_possible(pack: CodecPack) -> None:
    """Refuse numbers that would lead the kernels out of their arrays or sums out of 32 bits."""
    largest_exponent = (1 << EXPONENT_BITS[pack.kv_dtype.value]) - 1
    wrong = (
        not _WEIGHTS.fullmatch(pack.weights)
        or pack.steps.min() < 1
        or pack.steps.max() >= largest_exponent
        or np.abs(pack.centers.astype(np.int64)).max() > 4096
        or pack.drops.max(initial=0) > 3
        or pack.drops[0].any()
        or pack.classes.max(initial=0) >= len(pack.coarse)
        or pack.shifts.max(initial=0) > 12
        or not ((pack.downs >= 8) & (pack.downs <= 40)).all()
        or (pack.coarse.sum(axis=2) != 4096).any()
        or (pack.coarse == 0).any()
        or (pack.fine.sum(axis=2) != 4096).any()
        or not all(_are_fine(pack.fine, drop) for drop in (1, 2, 3))
        or pack.matrices.min(initial=0) < -127
        or np.abs(pack.bases.astype(np.int64)).max() >= _MAX_BASE
        or _largest_prediction(pack) >= _MAX_PREDICTION
    )
    if wrong:
        raise ValueError("it has numbers that cannot be")


def _are_fine(fine: npt.NDArray[np.uint16], drop: int) -> bool:
    """Return whether the tables of a drop have all of its symbols and no others."""
    tables = fine[:, fine_table(drop) : fine_table(drop + 1)]
    return bool(tables[..., : 1 << drop].all()) and not tables[..., 1 << drop :].any()


def _largest_prediction(pack: CodecPack) -> int:
    """Return a bound on how far from zero any context can move a prediction, in bins."""
    shape = pack.shape
    rows = [[shape.rows(layer, side) + shape.padded - GROUP for side in range(2)]
            for layer in range(shape.layers)]  # fmt: skip
    sums = 127 * 127 * np.array(rows, np.int64)[:, :, None] * pack.multipliers
    return int(((sums >> pack.downs) + (np.abs(pack.bases.astype(np.int64)) >> 8)).max())


def _damaged(reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"codec pack is damaged: {reason}; train it again")
