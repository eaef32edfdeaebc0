"""Records of level ``linear`` → K and V: exact ones, or those that a base alone gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kvpacket_store.errors import CorruptRecordError, UsageError
from kvpacket_store.types import BitArray

from .checksum import Bytes, checksum
from .chunk_order import Chunk, block_tokens, num_blocks
from .chunks import load_chunk
from .frame import ChunkEntry, Encoding, Frame, parse_head
from .limits import DEFAULT_MAX_BYTES, require_allowed, view_of
from .pack_section import Part
from .packs import find_pack
from .workers import for_each

if TYPE_CHECKING:
    from .linear.blocks import BlockDecoder
    from .linear.prepared import Prepared

__all__ = ["decode_base", "decode_layers", "decode_whole"]


def decode_layers(
    base: Bytes,
    enhancement: Bytes,
    *,
    packs: Sequence[object] | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> tuple[BitArray, BitArray]:
    """Return the K and V that were encoded.

    Parameters
    ----------
    base, enhancement : bytes-like
        Two records of one packet.
    packs : sequence of CodecPack, optional
        Where to look for the pack; the installed ones unless given.
    max_bytes : int
        Refuse records whose K and V together are larger than this, before allocating them.

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
    views = view_of(base), view_of(enhancement)
    frames = parse_head(views[0]), parse_head(views[1])
    for frame, part in zip(frames, (Part.BASE, Part.ENHANCEMENT), strict=True):
        _require_part(frame, part)
    _require_twins(*frames)
    require_allowed(frames[0], max_bytes)
    return _decode(views, frames, packs)


def decode_base(
    base: Bytes, *, packs: Sequence[object] | None = None, max_bytes: int = DEFAULT_MAX_BYTES
) -> tuple[BitArray, BitArray]:
    """Return K and V as the base alone gives them: near the exact ones, the same everywhere.

    Arguments and errors are those of :func:`decode_layers`.
    """
    view = view_of(base)
    frame = parse_head(view)
    _require_part(frame, Part.BASE)
    require_allowed(frame, max_bytes)
    return _decode((view,), (frame,), packs)


def decode_whole(
    view: memoryview, frame: Frame, packs: Sequence[object] | None
) -> tuple[BitArray, BitArray]:
    """Return the K and V of a record of level ``linear`` that is whole."""
    _require_part(frame, Part.WHOLE)
    return _decode((view,), (frame,), packs)


def _require_part(frame: Frame, part: Part) -> None:
    if frame.part is not part:
        found = (
            "a record of another level" if frame.part is None else f"part {frame.part.name.lower()}"
        )
        raise UsageError(
            f"this is {found}, not part {part.name.lower()}: decode takes whole records, "
            "decode_base a base, decode_layers a base and its enhancement"
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
            "base and enhancement are not of one packet; prefill this packet again from its tokens"
        )


def _decode(
    views: tuple[memoryview, ...], frames: tuple[Frame, ...], packs: Sequence[object] | None
) -> tuple[BitArray, BitArray]:
    from .linear.prepared import prepare

    frame, section = frames[0], frames[0].section
    if section is None:
        raise UsageError("a record of level 'linear' is wanted")
    pack = find_pack(section.pack, packs)
    if not pack.fits(frame.kv_dtype, frame.shape):
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
