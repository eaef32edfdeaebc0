"""What a record holds, without decoding it."""

from __future__ import annotations

from dataclasses import dataclass

from kvpacket_store.types import KVDtype

from .checksum import Bytes
from .chunk_order import chunks_of
from .frame import HEADER, LEVEL_CODES, parse_head
from .limits import view_of
from .pack_section import BASE_STEPS

__all__ = ["RecordInfo", "info", "named_pack"]

_PACK = slice(HEADER.size, HEADER.size + 32)


@dataclass(frozen=True, slots=True)
class RecordInfo:
    """Sizes and kind of a record.

    Parameters
    ----------
    level : str
        Codec level that wrote it.
    kv_dtype : KVDtype
        What its bit patterns mean.
    shape : tuple of int
        ``(L, H, T, D)`` of K and of V.
    raw_bytes, record_bytes, head_bytes : int
        K and V decoded; the record; its part before the first chunk.
    k_bytes_by_layer, v_bytes_by_layer : tuple of int
        Stored bytes of K and V, L each. With ``head_bytes`` they sum to ``record_bytes``.
    part : str or None
        Of level ``linear``: ``"whole"``, ``"base"`` or ``"enhancement"``.
    pack : str or None
        Of level ``linear``: digest of the codec pack, hex.
    base_step : tuple of (str, str), or None
        Of a packet in two layers: how coarse the base is, by layer, for K and for V.
    """

    level: str
    kv_dtype: KVDtype
    shape: tuple[int, int, int, int]
    raw_bytes: int
    record_bytes: int
    head_bytes: int
    k_bytes_by_layer: tuple[int, ...]
    v_bytes_by_layer: tuple[int, ...]
    part: str | None = None
    pack: str | None = None
    base_step: tuple[tuple[str, str], ...] | None = None

    @property
    def k_bytes(self) -> int:
        """Stored bytes of K, all layers."""
        return sum(self.k_bytes_by_layer)

    @property
    def v_bytes(self) -> int:
        """Stored bytes of V, all layers."""
        return sum(self.v_bytes_by_layer)


def info(record: Bytes) -> RecordInfo:
    """Check a record's head and return what it says.

    Parameters
    ----------
    record : bytes-like
        The whole record and nothing else.

    Raises
    ------
    CorruptRecordError, TruncatedRecordError, UnsupportedFormatError
        The head does not hold. The chunks are not looked at.

    Examples
    --------
    >>> import numpy as np
    >>> from kvpacket_store.codec import encode
    >>> found = info(encode(*np.zeros((2, 1, 1, 3, 4), np.uint16), kv_dtype="bf16", level="raw"))
    >>> found.level, found.shape, found.raw_bytes, found.k_bytes_by_layer
    ('raw', (1, 1, 3, 4), 48, (24,))
    """
    view = view_of(record)
    frame = parse_head(view)
    stored = [[0] * frame.shape[0], [0] * frame.shape[0]]
    for chunk, entry in zip(chunks_of(frame.shape), frame.entries, strict=True):
        stored[chunk.side][chunk.layer] += entry.length
    return RecordInfo(
        level=frame.level,
        kv_dtype=frame.kv_dtype,
        shape=frame.shape,
        raw_bytes=frame.raw_bytes,
        record_bytes=len(view),
        head_bytes=frame.head_bytes,
        k_bytes_by_layer=tuple(stored[0]),
        v_bytes_by_layer=tuple(stored[1]),
        part=frame.section.part.name.lower() if frame.section else None,
        pack=frame.section.pack if frame.section else None,
        base_step=_base_step(frame.section.settings) if frame.section else None,
    )


def _base_step(settings: tuple[int, ...]) -> tuple[tuple[str, str], ...] | None:
    """Return the names of a section's settings; None of a packet in one layer."""
    if not any(settings):
        return None
    names = {setting: name for name, setting in BASE_STEPS.items()}
    named = [names[setting] for setting in settings]
    return tuple(zip(named[::2], named[1::2], strict=True))


def named_pack(record: Bytes) -> str | None:
    """Return the digest of the codec pack that a record names; None of other levels.

    A thousandth of what `info` takes, for nothing is checked: decoding does that.
    """
    view = view_of(record)
    if len(view) < _PACK.stop or HEADER.unpack_from(view)[2] != LEVEL_CODES["linear"]:
        return None
    return bytes(view[_PACK]).hex()
