"""Level ``linear`` as records: everything in one, or a base and the enhancement that completes it.

The base alone decodes to K and V that are near the exact ones, for drafting; base and enhancement
together give every bit. The base is predicted from base reconstructions alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvpacket_store.errors import CorruptRecordError, LevelUnavailableError, UsageError
from kvpacket_store.packet import kv_digest
from kvpacket_store.types import BitArray, KVDtype

from .arrays import require_kv_dtype, require_pair
from .checksum import Bytes, checksum
from .chunks import StoredChunk, load_chunk, store_raw
from .frame import (
    Chunk,
    ChunkEntry,
    Encoding,
    Frame,
    block_tokens,
    chunks_of,
    num_blocks,
    pack_head,
    parse_head,
)
from .pack_section import PackSection, Part
from .packs import find_pack
from .workers import for_each

if TYPE_CHECKING:
    from .linear.blocks import BlockDecoder
    from .linear.pack import CodecPack
    from .linear.prepared import Prepared

__all__ = ["BASE_STEPS", "Layers", "decode_base", "decode_layers", "encode_layers", "encode_whole"]

BASE_STEPS: Mapping[str, int] = {"sigma/8": 1, "sigma/4": 2, "sigma/2": 3}
_MAX_BYTES = 8 << 30
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
    base_step: str | Sequence[tuple[str, str]] = "sigma/4",
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


def decode_layers(
    base: Bytes, enhancement: Bytes, *, packs: Sequence[object] | None = None
) -> tuple[BitArray, BitArray]:
    """Return the K and V that were encoded.

    Parameters
    ----------
    base, enhancement : bytes-like
        Two records of one packet.
    packs : sequence of CodecPack, optional
        Where to look for the pack; the installed ones unless given.

    Raises
    ------
    CorruptRecordError, TruncatedRecordError, UnsupportedFormatError
        Damaged, cut or foreign bytes, or records of two prefills; prefill the packet again from its
        token ids.
    LevelUnavailableError
        The pack is not here.
    UsageError
        These records are not a base and an enhancement.
    """
    views = memoryview(base).cast("B"), memoryview(enhancement).cast("B")
    frames = parse_head(views[0]), parse_head(views[1])
    for frame, part in zip(frames, (Part.BASE, Part.ENHANCEMENT), strict=True):
        _require_part(frame, part)
    _require_twins(*frames)
    return _decode(views, frames, packs)


def decode_base(
    base: Bytes, *, packs: Sequence[object] | None = None
) -> tuple[BitArray, BitArray]:
    """Return K and V as the base alone gives them: near the exact ones, the same everywhere.

    Arguments and errors are those of :func:`decode_layers`.
    """
    view = memoryview(base).cast("B")
    frame = parse_head(view)
    _require_part(frame, Part.BASE)
    return _decode((view,), (frame,), packs)


def decode_whole(
    view: memoryview, frame: Frame, packs: Sequence[object] | None
) -> tuple[BitArray, BitArray]:
    """Return the K and V of a record of level ``linear`` that is whole."""
    _require_part(frame, Part.WHOLE)
    return _decode((view,), (frame,), packs)


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
    require_pair(k, v, kv_dtype, _MAX_BYTES)
    if not _fits(pack, kv_dtype, k.shape):
        raise UsageError(
            f"the codec pack is for {pack.kv_dtype.value} {tuple(pack.shape[:3])} (layers, kv heads, "
            f"head dimension); k and v are {kv_dtype.value} {k.shape}"
        )
    return prepare(pack), kv_dtype


def _fits(pack: CodecPack, kv_dtype: KVDtype, shape: tuple[int, ...]) -> bool:
    wanted = (pack.shape.layers, pack.shape.heads, pack.shape.head_dim)
    return kv_dtype is pack.kv_dtype and (shape[0], shape[1], shape[3]) == wanted


def _settings(base_step: str | Sequence[tuple[str, str]], num_layers: int) -> tuple[int, ...]:
    pairs = [(base_step,) * 2] * num_layers if isinstance(base_step, str) else base_step
    steps = [step for pair in pairs for step in pair]
    if len(steps) != 2 * num_layers or any(step not in BASE_STEPS for step in steps):
        raise UsageError(
            f"base_step is one of {', '.join(BASE_STEPS)}, or such a pair for each of {num_layers} layers"
        )
    return tuple(BASE_STEPS[step] for step in steps)


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


def _require_part(frame: Frame, part: Part) -> None:
    if frame.part is not part:
        found = "a record of another level" if frame.part is None else f"part {frame.part.name.lower()}"
        raise UsageError(
            f"this is {found}, not part {part.name.lower()}: decode takes whole records, decode_base "
            "a base, decode_layers a base and its enhancement"
        )


def _require_twins(base: Frame, enhancement: Frame) -> None:
    ours, theirs = base.section, enhancement.section
    if ours is None or theirs is None:
        raise UsageError("records of level 'linear' are wanted")
    said = (base.shape, base.kv_dtype, ours._replace(part=theirs.part))
    complete = [entry.encoding is Encoding.RAW for entry in base.entries]
    empty = [entry.encoding is Encoding.NOTHING for entry in enhancement.entries]
    if said != (enhancement.shape, enhancement.kv_dtype, theirs) or complete != empty:
        raise CorruptRecordError(
            "base and enhancement are not of one packet; prefill this packet again from its token ids"
        )


def _decode(
    views: tuple[memoryview, ...], frames: tuple[Frame, ...], packs: Sequence[object] | None
) -> tuple[BitArray, BitArray]:
    from .linear.prepared import prepare

    frame, section = frames[0], frames[0].section
    if section is None:
        raise UsageError("a record of level 'linear' is wanted")
    pack = find_pack(section.pack, packs)
    if not _fits(pack, frame.kv_dtype, frame.shape):
        raise CorruptRecordError("record is damaged: its codec pack is for another model")
    outs = tuple(np.empty((2, *frame.shape), frame.kv_dtype.bits_dtype))  # one, for huge pages
    prepared = prepare(pack)

    def read(block: int) -> None:
        _decode_block(views, frames, block, prepared, outs)

    for_each(read, range(num_blocks(frame.shape[2])), num_bytes=frame.raw_bytes)
    return outs[0], outs[1]


def _decode_block(
    views: tuple[memoryview, ...],
    frames: tuple[Frame, ...],
    block: int,
    prepared: Prepared,
    outs: tuple[BitArray, ...],
) -> None:
    from .linear.blocks import BlockDecoder

    frame = frames[0]
    tokens = block_tokens(frame.shape[2], block)
    settings = frame.section.settings if frame.section else ()
    decoder = BlockDecoder(prepared, settings, tokens.stop - tokens.start)
    for i in range(2 * frame.shape[0]):
        chunk = Chunk(i // 2, i % 2, block)
        out = outs[chunk.side][chunk.layer, :, tokens]
        out[...] = _decode_chunk(views, frames, chunk, decoder, out)


def _decode_chunk(
    views: tuple[memoryview, ...],
    frames: tuple[Frame, ...],
    chunk: Chunk,
    decoder: BlockDecoder,
    out: BitArray,
) -> BitArray:
    entry, place = frames[0].entry(chunk), (chunk.layer, chunk.side)
    if entry.encoding is not Encoding.LINEAR:
        load_chunk(entry, views[0], frames[0].kv_dtype, out)
        decoder.unpredicted(*place, out)
        return out
    stored = [_stored_bytes(f.entry(chunk), view) for f, view in zip(frames, views, strict=True)]
    if frames[0].part is Part.WHOLE:
        items = decoder.whole(*place, stored[0])
    elif len(stored) == 2:
        items, entry = decoder.exact(*place, stored[0], stored[1]), frames[1].entry(chunk)
    else:
        items = decoder.base(*place, stored[0])
    if checksum(items.reshape(-1).view(np.uint8).data) != entry.decoded_checksum:
        raise CorruptRecordError(
            f"record is damaged: layer {chunk.layer} decodes to other items than were stored; "
            "prefill this packet again from its token ids"
        )
    return items


def _stored_bytes(entry: ChunkEntry, view: memoryview) -> memoryview:
    data = view[entry.offset : entry.offset + entry.length]
    if checksum(data) != entry.stored_checksum:
        raise CorruptRecordError(
            f"record is damaged: the chunk at byte {entry.offset} fails its checksum; "
            "prefill this packet again from its token ids"
        )
    return data
