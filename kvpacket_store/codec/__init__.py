"""Packet ↔ bytes, lossless: ``docs/format.md`` is normative.

In come K and V as bit patterns ``[L, H, T, D]``, out comes one record, and back. Nothing here knows
models, stores or floating point: equal arrays are equal bits.
"""

from .decoder import decode, decode_into
from .encoder import encode
from .layer_reader import RecordReader, open_record
from .layered_decoder import decode_base, decode_layers
from .layered_encoder import Layers, encode_layers
from .limits import DEFAULT_MAX_BYTES
from .pack_section import BASE_STEPS, DEFAULT_BASE_STEP, are_base_steps
from .record_info import RecordInfo, info, named_pack

__all__ = [
    "BASE_STEPS",
    "DEFAULT_BASE_STEP",
    "DEFAULT_MAX_BYTES",
    "Layers",
    "RecordInfo",
    "RecordReader",
    "are_base_steps",
    "decode",
    "decode_base",
    "decode_into",
    "decode_layers",
    "encode",
    "encode_layers",
    "info",
    "named_pack",
    "open_record",
]
