"""Record → K and V layer by layer: the first can be used before the last is decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from kvpacket_store.errors import UsageError
from kvpacket_store.types import BitArray, KVDtype

from .checksum import Bytes
from .chunk_order import Chunk, block_tokens, num_blocks
from .decoder import read_chunk
from .frame import Frame, parse_head
from .limits import DEFAULT_MAX_BYTES, require_allowed, view_of
from .linear_record import LinearRecord, open_layers, open_part
from .pack_section import Part
from .workers import for_each

__all__ = ["RecordReader", "open_record"]

_ReadChunk: TypeAlias = Callable[[Chunk, BitArray], None]


def open_record(
    record: Bytes,
    enhancement: Bytes | None = None,
    *,
    packs: Sequence[object] | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> RecordReader:
    """Check a record's head, and return what decodes it layer by layer.

    Parameters
    ----------
    record : bytes-like
        A record of any level that is whole, or a base. The reader refers to it to the last layer.
    enhancement : bytes-like, optional
        What completes a base; without it the reader gives what ``decode_base`` gives.
    packs : sequence of CodecPack, optional
        Where to look for the pack of a ``linear`` record; the installed ones unless given.
    max_bytes : int
        Refuse records whose K and V together are larger than this, before allocating anything.

    Raises
    ------
    CorruptRecordError, TruncatedRecordError, UnsupportedFormatError
        A damaged, cut or foreign head, or records of two prefills; prefill the packet again from
        its token ids.
    LevelUnavailableError
        The record's codec pack is not here.
    UsageError
        An enhancement alone, or records that are not a base and an enhancement.

    Examples
    --------
    >>> from kvpacket_store.codec import encode
    >>> k = np.arange(24, dtype=np.uint16).reshape(2, 1, 3, 4)
    >>> reader = open_record(encode(k, k, kv_dtype="bf16"))
    >>> reader.shape
    (2, 1, 3, 4)
    >>> all(np.array_equal(reader.layer(i)[0], k[i]) for i in range(2))
    True
    """
    if enhancement is not None:
        return _linear_reader(open_layers(record, enhancement, packs, max_bytes))
    view = view_of(record)
    frame = parse_head(view)
    require_allowed(frame, max_bytes)
    if frame.level == "linear":
        part = Part.BASE if frame.part is Part.BASE else Part.WHOLE
        return _linear_reader(open_part(view, frame, part, packs))
    return RecordReader(frame, lambda chunk, out: read_chunk(view, frame, chunk, out))


class RecordReader:
    """Gives a record's layers in order, each once. Not for several threads at a time.

    Made by :func:`open_record`. Beside the record it holds of level ``linear`` a byte for each
    scalar of the layers that a prediction looks back at, and of one more; of other levels nothing.

    Parameters
    ----------
    frame : Frame
        Of the record, or of the base.
    read : callable
        Decodes a chunk into an array [H, T, D] of its tokens; those of one layer and block are
        asked for K before V, layers in order, blocks from several threads.
    """

    def __init__(self, frame: Frame, read: _ReadChunk) -> None:
        self._frame = frame
        self._read: _ReadChunk | None = read
        self._next = 0

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """``(L, H, T, D)`` of K, and of V."""
        return self._frame.shape

    @property
    def kv_dtype(self) -> KVDtype:
        """What the bit patterns mean."""
        return self._frame.kv_dtype

    def layer(self, i: int) -> tuple[BitArray, BitArray]:
        """Return K and V of layer ``i``: 0, then 1, and so on.

        Returns
        -------
        k, v : uint8, uint16 or uint32 [H, T, D]
            Bit patterns, C-contiguous and writable.

        Raises
        ------
        CorruptRecordError
            This layer is damaged: none from here on can be read. Prefill the packet again from its
            token ids.
        UsageError
            Another layer is next, or an earlier one was damaged.
        """
        if i != self._next or i >= self.shape[0]:
            raise UsageError(
                f"layer {i!r:.20} is not next: {self._next} of {self.shape[0]} layers were read, "
                "and they come in order; open the record again for an earlier one"
            )
        read, self._read = self._read, None  # an error may leave half a layer's context
        if read is None:
            raise UsageError("reading this record has failed before; open a sound one")
        out = np.empty((2, *self.shape[1:]), self.kv_dtype.bits_dtype)
        _read_layer(i, read, out)
        self._next += 1
        if self._next < self.shape[0]:  # else let go of the record
            self._read = read
        return out[0], out[1]


def _linear_reader(record: LinearRecord) -> RecordReader:
    blocks = range(num_blocks(record.frame.shape[2]))
    decoders = [record.block_decoder(block) for block in blocks]

    def read(chunk: Chunk, out: BitArray) -> None:
        record.read_chunk(chunk, decoders[chunk.block], out)

    return RecordReader(record.frame, read)


def _read_layer(layer: int, read: _ReadChunk, out: BitArray) -> None:
    """Decode a layer's chunks into ``out`` [2, H, T, D], blocks on several cores."""
    num_tokens = out.shape[2]

    def read_block(block: int) -> None:
        for side in range(2):
            read(Chunk(layer, side, block), out[side, :, block_tokens(num_tokens, block)])

    for_each(read_block, range(num_blocks(num_tokens)), num_bytes=out.nbytes)
