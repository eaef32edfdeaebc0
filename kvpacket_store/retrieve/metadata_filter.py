"""A small filter language over document metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kvpacket_store.errors import UsageError

__all__ = ["MetadataFilter"]

_OPERATORS = ("gte", "lte")
_FORMS = 'a value, a list of values, or {"gte": ..., "lte": ...}'


@dataclass(frozen=True, slots=True)
class _AnyOf:
    """The value, or one of the values where it is a list, equals one of these."""

    values: tuple[Any, ...]

    def accepts(self, value: Any) -> bool:
        found = value if isinstance(value, list | tuple) else (value,)
        return any(_same(one, wanted) for one in found for wanted in self.values)


@dataclass(frozen=True, slots=True)
class _Between:
    """The value is of the bounds' kind (number or string) and lies between them, ends included."""

    lowest: Any
    highest: Any

    def accepts(self, value: Any) -> bool:
        bounds = [bound for bound in (self.lowest, self.highest) if bound is not None]
        if not all(_comparable(value, bound) for bound in bounds):
            return False
        above = self.lowest is None or value >= self.lowest
        return bool(above and (self.highest is None or value <= self.highest))


_Condition: TypeAlias = _AnyOf | _Between


class MetadataFilter:
    """Whether a document's metadata meets every condition of a mapping.

    Each key of the mapping names a metadata key. Its value is what the metadata must equal, a list
    of which it must equal one, or a range with ``gte`` and ``lte`` (either or both). Metadata that
    is a list meets a value when one of its elements does. A key that the metadata lacks is never
    met. ``true`` is not ``1``; strings compare by code point, so ISO dates are ranges too.

    Parameters
    ----------
    conditions : mapping of str to value, list or mapping
        Empty accepts everything; an empty list accepts nothing.

    Raises
    ------
    UsageError
        The mapping is none of the above; the message names the key and the forms there are.

    Examples
    --------
    >>> recent_notes = MetadataFilter({"kind": ["note", "memo"], "date": {"gte": "2024-01-01"}})
    >>> recent_notes({"kind": "memo", "date": "2025-03-09"})
    True
    >>> recent_notes({"kind": "memo"})
    False
    """

    __slots__ = ("_conditions",)

    def __init__(self, conditions: Mapping[str, Any]) -> None:
        if not isinstance(conditions, Mapping):
            raise UsageError(f"a metadata filter is a mapping of keys to {_FORMS}")
        self._conditions = {_key(key): _condition(key, it) for key, it in conditions.items()}

    def __call__(self, metadata: Mapping[str, Any]) -> bool:
        """Return whether ``metadata`` meets every condition."""
        return all(
            key in metadata and condition.accepts(metadata[key])
            for key, condition in self._conditions.items()
        )


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise UsageError(f"metadata filter: the key {key!r} is not a string")
    return key


def _condition(key: str, form: Any) -> _Condition:
    if isinstance(form, Mapping):
        return _between(key, form)
    values = tuple(form) if isinstance(form, list | tuple) else (form,)
    for value in values:
        if not _is_scalar(value):
            raise UsageError(f"metadata filter: {key!r} has {value!r}; it takes {_FORMS}")
    return _AnyOf(values)


def _between(key: str, form: Mapping[Any, Any]) -> _Between:
    if not form or any(name not in _OPERATORS for name in form):
        raise UsageError(
            f"metadata filter: {key!r} has operators {[*form]!r}; there are {', '.join(_OPERATORS)}"
        )
    bounds = [form[name] for name in _OPERATORS if name in form]
    if not all(_comparable(bounds[0], bound) for bound in bounds) or bounds != sorted(bounds):
        raise UsageError(
            f"metadata filter: the range of {key!r} is {dict(form)!r}; bounds are both numbers or "
            "both strings, the lower one under gte"
        )
    return _Between(form.get("gte"), form.get("lte"))


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return not (isinstance(value, float) and math.isnan(value))


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | bool) or _is_number(value)


def _comparable(left: Any, right: Any) -> bool:
    both_strings = isinstance(left, str) and isinstance(right, str)
    return both_strings or (_is_number(left) and _is_number(right))


def _same(left: Any, right: Any) -> bool:
    """Return JSON equality: numbers by value, ``true`` and ``1`` apart."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)
