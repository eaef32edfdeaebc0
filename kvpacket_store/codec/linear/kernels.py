"""The compiled kernels of level ``linear`` together; ``reference`` has the same names."""

from .decode_kernel import decode_chunk, let_be_context
from .encode_kernel import encode_lanes, find_symbols

__all__ = ["decode_chunk", "encode_lanes", "find_symbols", "let_be_context"]
