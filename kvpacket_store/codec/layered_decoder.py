"""Records of level ``linear`` → K and V: exact ones, or those that a base alone gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvpacket_store.types import BitArray

from .checksum import Bytes
from .chunk_order import Chunk, block_tokens, num_blocks
from .frame import Frame, parse_head
from .limits import DEFAULT_MAX_BYTES, require_allowed, view_of
from .linear_record import LinearRecord, open_layers, open_part
from .pack_section import Part
from .workers import for_each

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
    return _decode(open_layers(base, enhancement, packs, max_bytes))


def decode_base(
    base: Bytes, *, packs: Sequence[object] | None = None, max_bytes: int = DEFAULT_MAX_BYTES
) -> tuple[BitArray, BitArray]:
    """Return K and V as the base alone gives them: near the exact ones, the same everywhere.

    Arguments and errors are those of :func:`decode_layers`.
    """
    view = view_of(base)
    frame = parse_head(view)
    require_allowed(frame, max_bytes)
    return _decode(open_part(view, frame, Part.BASE, packs))


def decode_whole(
    view: memoryview, frame: Frame, packs: Sequence[object] | None
) -> tuple[BitArray, BitArray]:
    """Return the K and V of a record of level ``linear`` that is whole."""
    return _decode(open_part(view, frame, Part.WHOLE, packs))


def _decode(record: LinearRecord) -> tuple[BitArray, BitArray]:
    """Decode all blocks, each by itself: that is what runs on several cores at once."""
    frame = record.frame
    outs = tuple(np.empty((2, *frame.shape), frame.kv_dtype.bits_dtype))  # one, for huge pages

    def read(block: int) -> None:
        decoder, tokens = record.block_decoder(block), block_tokens(frame.shape[2], block)
        for i in range(2 * frame.shape[0]):
            chunk = Chunk(i // 2, i % 2, block)
            record.read_chunk(chunk, decoder, outs[chunk.side][chunk.layer, :, tokens])

    for_each(read, range(num_blocks(frame.shape[2])), num_bytes=frame.raw_bytes)
    return outs[0], outs[1]
