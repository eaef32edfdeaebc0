"""Packet ↔ bytes, lossless: ``docs/format.md`` is normative.

In come K and V as bit patterns ``[L, H, T, D]``, out comes one record, and back. Nothing here knows
models, stores or floating point: equal arrays are equal bits.
"""

from .decoder import DEFAULT_MAX_BYTES, decode, decode_into
from .encoder import encode
from .record_info import RecordInfo, info

__all__ = ["DEFAULT_MAX_BYTES", "RecordInfo", "decode", "decode_into", "encode", "info"]
