"""What callers pass, looked at before it is used: types are hints only until somebody checks."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["is_count", "is_count_or_zero", "is_one", "says_something"]


def is_count(value: object) -> bool:
    """Say whether this is a whole number of at least 1.

    Examples
    --------
    >>> is_count(3), is_count(0), is_count("3")
    (True, False, False)
    """
    return isinstance(value, int) and value >= 1


def is_count_or_zero(value: object) -> bool:
    """Say whether this is a whole number of at least 0.

    Examples
    --------
    >>> is_count_or_zero(0), is_count_or_zero(-1), is_count_or_zero("0")
    (True, False, False)
    """
    return isinstance(value, int) and value >= 0


def is_one(items: object) -> bool:
    """Say whether this is one text, or nothing that can be gone through, where a list is asked for.

    Examples
    --------
    >>> is_one("a"), is_one(7), is_one(["a"])
    (True, True, False)
    """
    return isinstance(items, str) or not isinstance(items, Iterable)


def says_something(value: object) -> bool:
    r"""Say whether this is a text that is not blank.

    Examples
    --------
    >>> says_something("Who?"), says_something(" \n"), says_something(None)
    (True, False, False)
    """
    return isinstance(value, str) and bool(value.strip())
