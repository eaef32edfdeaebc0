"""A base's step as commands take it."""

from __future__ import annotations

import contextlib

__all__ = ["BASE_STEP_HELP", "split_steps"]

BASE_STEP_HELP = (
    "How coarse a base is: bits a scalar, as 2.4, shared out by what harms answers least; or "
    "sigma/8, sigma/4 or sigma/2; K,V where they differ."
)


def split_steps(text: str | None) -> str | float | tuple[str, str] | None:
    """Return what the option says: one step, one for K and one for V, or bits a scalar.

    Examples
    --------
    >>> split_steps("sigma/4"), split_steps("sigma/8,sigma/2"), split_steps("2.4")
    ('sigma/4', ('sigma/8', 'sigma/2'), 2.4)
    """
    with contextlib.suppress(ValueError):
        return float(text or "")
    k, comma, v = (text or "").partition(",")
    return (k.strip(), v.strip()) if comma else text
