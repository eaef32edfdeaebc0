"""A base's step as commands take it."""

from __future__ import annotations

__all__ = ["BASE_STEP_HELP", "split_steps"]

BASE_STEP_HELP = "How coarse a base is: sigma/8, sigma/4 or sigma/2; K,V where they differ."


def split_steps(text: str | None) -> str | tuple[str, str] | None:
    """Return what the option says: one step, or one for K and one for V.

    Examples
    --------
    >>> split_steps("sigma/4"), split_steps("sigma/8,sigma/2")
    ('sigma/4', ('sigma/8', 'sigma/2'))
    """
    k, comma, v = (text or "").partition(",")
    return (k.strip(), v.strip()) if comma else text
