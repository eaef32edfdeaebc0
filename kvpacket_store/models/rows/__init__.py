"""A few rows of several requests in one forward, each with the bits it would have alone."""

from .coded import CodedSlots
from .forward import RowForward, RowWork
from .vectors import LANES
from .weights import is_hooked, suits_row_kernels

__all__ = ["LANES", "CodedSlots", "RowForward", "RowWork", "is_hooked", "suits_row_kernels"]
