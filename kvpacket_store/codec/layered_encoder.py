"""K and V → records of level ``linear``: everything in one, or a base and its enhancement.

The base alone decodes to K and V that are near the exact ones, for drafting; base and enhancement
together give every bit. The base is predicted from base reconstructions alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvpacket_store.errors import CorruptRecordError, LevelUnavailableError, UsageError
from kvpacket_store.packet import kv_digest
from kvpacket_store.types import BitArray, KVDtype

from .arrays import require_kv_dtype, require_pair
from .checksum import checksum
from .chunk_order import Chunk, block_tokens, chunks_of, num_blocks
from .chunks import StoredChunk, store_raw
from .frame import ChunkEntry, Encoding, Frame, pack_head
from .limits import DEFAULT_MAX_BYTES
from .pack_section import BASE_STEPS, DEFAULT_BASE_STEP, PackSection, Part, are_base_steps
from .workers import for_each

if TYPE_CHECKING:
    from .linear.prepared import Prepared

__all__ = ["Layers", "encode_layers", "encode_whole"]

_NO_CHUNK = StoredChunk(b"", ChunkEntry(0, 0, Encoding.NOTHING, checksum(b""), checksum(b"")))


class Layers(NamedTuple):
    """A packet as two records."""

    base: bytes
    enhancement: bytes


def encode_layers(
    k: BitArray,
    v: BitArray,
    *,
    kv_dtype: KVDtype | str,
    pack: object,
    base_step: str | Sequence[tuple[str, str]] = DEFAULT_BASE_STEP,
) -> Layers:
    """Return two records from which :func:`decode_layers` gives back every bit.

    Parameters
    ----------
    k, v : uint8, uint16 or uint32 [L, H, T, D]
        Bit patterns of equal shape; strides do not matter.
    kv_dtype : KVDtype or str
        Of the bit patterns, and of the pack.
    pack : CodecPack
        Of the model that K and V are from.
    base_step : str, or sequence of (str, str)
        How coarse the base is, in deviations of each channel: ``"sigma/8"``, ``"sigma/4"`` or
        ``"sigma/2"``, for all or for every layer's K and V.

    Raises
    ------
    LevelUnavailableError
        No pack.
    UsageError
        Arrays or a pack that do not fit each other, an unknown step.
    CorruptRecordError
        Decoding gave other bits than were encoded: faulty memory, or a fault of ours.
    """
    prepared, kv_dtype = _prepared(pack, k, v, kv_dtype)
    settings = _settings(base_step, k.shape[0])
    return Layers(*_encode(k, v, prepared, kv_dtype, settings))


def encode_whole(k: BitArray, v: BitArray, *, kv_dtype: KVDtype | str, pack: object) -> bytes:
    """Return one record of level ``linear``; arguments and errors are :func:`encode_layers`'s."""
    prepared, kv_dtype = _prepared(pack, k, v, kv_dtype)
    return _encode(k, v, prepared, kv_dtype, (0,) * (2 * k.shape[0]))[0]


def _prepared(
    pack: object, k: BitArray, v: BitArray, kv_dtype: KVDtype | str
) -> tuple[Prepared, KVDtype]:
    from .linear.pack import CodecPack
    from .linear.prepared import prepare

    kv_dtype = require_kv_dtype(kv_dtype)
    if pack is None:
        raise LevelUnavailableError(
            "codec level 'linear' needs a codec pack of the model; train one with "
            "`kvps codec train`, or use level 'fast'"
        )
    if not isinstance(pack, CodecPack):
        raise UsageError(f"pack is a {type(pack).__name__}; pass a CodecPack")
    require_pair(k, v, kv_dtype, DEFAULT_MAX_BYTES)
    if not pack.fits(kv_dtype, k.shape):
        raise UsageError(
            f"the codec pack is for {pack.kv_dtype.value} {tuple(pack.shape[:3])} (layers, kv "
            f"heads, head dimension); k and v are {kv_dtype.value} {k.shape}"
        )
    return prepare(pack), kv_dtype


def _settings(base_step: str | Sequence[tuple[str, str]], num_layers: int) -> tuple[int, ...]:
    pairs = [(base_step,) * 2] * num_layers if isinstance(base_step, str) else base_step
    if not are_base_steps(pairs, num_layers):
        raise UsageError(
            f"base_step is one of {', '.join(BASE_STEPS)}, or such a pair for each of "
            f"{num_layers} layers"
        )
    return tuple(BASE_STEPS[step] for pair in pairs for step in pair)


def _encode(
    k: BitArray, v: BitArray, prepared: Prepared, kv_dtype: KVDtype, settings: tuple[int, ...]
) -> list[bytes]:
    shape = (k.shape[0], k.shape[1], k.shape[2], k.shape[3])
    layered = any(settings)
    stored: list[dict[Chunk, StoredChunk]] = [{} for _ in range(1 + layered)]

    def write(block: int) -> None:
        _encode_block((k, v), block, prepared, settings, stored)

    for_each(write, range(num_blocks(shape[2])), num_bytes=2 * k.nbytes)
    parts = (Part.BASE, Part.ENHANCEMENT) if layered else (Part.WHOLE,)
    digest = kv_digest(k, v)
    records = []
    for part, chunks in zip(parts, stored, strict=True):
        ordered = [chunks[chunk] for chunk in chunks_of(shape)]
        section = PackSection(prepared.pack.digest, part, digest, settings)
        entries = tuple(chunk.entry for chunk in ordered)
        head = pack_head(Frame("linear", kv_dtype, shape, entries, section))
        records.append(b"".join([head, *(chunk.data for chunk in ordered)]))
    return records


def _encode_block(
    pair: tuple[BitArray, BitArray],
    block: int,
    prepared: Prepared,
    settings: tuple[int, ...],
    stored: list[dict[Chunk, StoredChunk]],
) -> None:
    """Encode a block; decode what was encoded, and compare, before it is kept."""
    from .linear.blocks import BlockDecoder, encode_block

    tokens = block_tokens(pair[0].shape[2], block)
    kv_dtype = prepared.pack.kv_dtype
    items = [
        np.ascontiguousarray(pair[i % 2][i // 2, :, tokens], kv_dtype.bits_dtype)
        for i in range(2 * pair[0].shape[0])
    ]
    decoder = BlockDecoder(prepared, settings, tokens.stop - tokens.start)
    encoded = encode_block(prepared, settings, lambda layer, side: items[2 * layer + side])
    for i, parts in enumerate(encoded):
        chunk = Chunk(i // 2, i % 2, block)
        if parts.base is None or parts.enhancement is None:
            decoder.unpredicted(chunk.layer, chunk.side, items[i])
            stored[0][chunk] = store_raw(items[i], kv_dtype)
            if len(stored) == 2:
                stored[1][chunk] = _NO_CHUNK
            continue
        place = (chunk.layer, chunk.side, parts.base, parts.enhancement)
        if len(stored) == 2:
            exact, rebuilt = decoder.both(*place)
            stored[0][chunk] = _stored(parts.base, rebuilt)
            stored[1][chunk] = _stored(parts.enhancement, exact)
        else:
            exact = decoder.exact(*place)
            stored[0][chunk] = _stored(parts.base + parts.enhancement, exact)
        if not np.array_equal(exact, items[i]):
            raise CorruptRecordError(
                f"what was encoded does not come back (layer {chunk.layer} decodes to other bits); "
                "check this machine's memory, try again"
            )


def _stored(data: bytes, decoded: BitArray) -> StoredChunk:
    total = checksum(np.ascontiguousarray(decoded).reshape(-1).view(np.uint8).data)
    return StoredChunk(data, ChunkEntry(0, len(data), Encoding.LINEAR, checksum(data), total))
