"""A few rows of several requests in one forward, each with the bits it would have alone."""

from .forward import RowForward, RowWork, has_row_forward

__all__ = ["RowForward", "RowWork", "has_row_forward"]
