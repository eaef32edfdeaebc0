"""A record of level ``linear``, or base and enhancement: checked, and decoded chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvpacket_store.errors import CorruptRecordError, UsageError
from kvpacket_store.types import BitArray

from .checksum import Bytes, checksum
from .chunk_order import Chunk, block_tokens
from .chunks import load_chunk
from .frame import ChunkEntry, Encoding, Frame, parse_head
from .limits import require_allowed, view_of
from .pack_section import Part
from .packs import find_pack

if TYPE_CHECKING:
    from .linear.blocks import BlockDecoder
    from .linear.prepared import Prepared

__all__ = ["LinearRecord", "open_layers", "open_part"]


@dataclass(frozen=True, slots=True)
class LinearRecord:
    """One record, or a base and its enhancement, whose heads and pack were found to fit.

    Parameters
    ----------
    views : tuple of memoryview
        The bytes of each.
    frames : tuple of Frame
        Their heads.
    prepared : Prepared
        The pack that they name.
    """

    views: tuple[memoryview, ...]
    frames: tuple[Frame, ...]
    prepared: Prepared

    @property
    def frame(self) -> Frame:
        """The head of the record, or of the base."""
        return self.frames[0]

    def block_decoder(self, block: int) -> BlockDecoder:
        """Return what decodes a block's chunks, in their order."""
        from .linear.blocks import BlockDecoder

        tokens = block_tokens(self.frame.shape[2], block)
        settings = self.frame.section.settings if self.frame.section else ()
        return BlockDecoder(self.prepared, settings, tokens.stop - tokens.start)

    def read_chunk(self, chunk: Chunk, decoder: BlockDecoder, out: BitArray) -> None:
        """Decode a chunk into ``out`` [H, T, D], which has its tokens and no others.

        Raises
        ------
        CorruptRecordError
            A checksum does not hold, or the stored bytes cannot be decoded.
        """
        entry, place = self.frame.entry(chunk), (chunk.layer, chunk.side)
        if entry.encoding is not Encoding.LINEAR:
            load_chunk(entry, self.views[0], self.frame.kv_dtype, out)
            decoder.unpredicted(*place, out)
            return
        entries = [frame.entry(chunk) for frame in self.frames]
        stored = [_stored_bytes(*each) for each in zip(entries, self.views, strict=True)]
        if self.frame.part is Part.WHOLE:
            items = decoder.whole(*place, stored[0])
        elif len(stored) == 2:
            items = decoder.exact(*place, stored[0], stored[1])
        else:
            items = decoder.base(*place, stored[0])
        if checksum(items.reshape(-1).view(np.uint8).data) != entries[-1].decoded_checksum:
            raise CorruptRecordError(
                f"record is damaged: layer {chunk.layer} decodes to other items than were stored; "
                "prefill this packet again from its token ids"
            )
        out[...] = items


def open_layers(
    base: Bytes, enhancement: Bytes, packs: Sequence[object] | None, max_bytes: int
) -> LinearRecord:
    """Check a base and its enhancement; arguments and errors are those of ``decode_layers``."""
    views = view_of(base), view_of(enhancement)
    frames = parse_head(views[0]), parse_head(views[1])
    require_allowed(frames[0], max_bytes)
    for frame, part in zip(frames, (Part.BASE, Part.ENHANCEMENT), strict=True):
        _require_part(frame, part)
    _require_twins(*frames)
    return _with_pack(views, frames, packs)


def open_part(
    view: memoryview, frame: Frame, part: Part, packs: Sequence[object] | None
) -> LinearRecord:
    """Check a record that decodes by itself: one that is whole, or a base."""
    _require_part(frame, part)
    return _with_pack((view,), (frame,), packs)


def _with_pack(
    views: tuple[memoryview, ...], frames: tuple[Frame, ...], packs: Sequence[object] | None
) -> LinearRecord:
    from .linear.prepared import prepare

    frame, section = frames[0], frames[0].section
    if section is None:
        raise UsageError("a record of level 'linear' is wanted")
    pack = find_pack(section.pack, packs)
    if not pack.fits(frame.kv_dtype, frame.shape):
        raise CorruptRecordError("record is damaged: its codec pack is for another model")
    return LinearRecord(views, frames, prepare(pack))


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


def _stored_bytes(entry: ChunkEntry, view: memoryview) -> memoryview:
    data = view[entry.offset : entry.offset + entry.length]
    if checksum(data) != entry.stored_checksum:
        raise CorruptRecordError(
            f"record is damaged: the chunk at byte {entry.offset} fails its checksum; "
            "prefill this packet again from its token ids"
        )
    return data
