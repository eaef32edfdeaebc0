"""The compiled kernels of level ``fast`` together; ``rans_reference`` has the same names."""

from .rans_decode import decode_chunk
from .rans_encode import encode_chunk

__all__ = ["decode_chunk", "encode_chunk"]
