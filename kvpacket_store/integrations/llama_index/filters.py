"""LlamaIndex's metadata filters → the store's."""

from __future__ import annotations

from typing import Any

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from kvpacket_store.errors import UsageError

__all__ = ["where_of"]

_BOUNDS = {FilterOperator.GTE: "gte", FilterOperator.LTE: "lte"}
_VALUES = (FilterOperator.EQ, FilterOperator.IN)


def where_of(filters: MetadataFilters | None) -> dict[str, Any] | None:
    """Return filters as the mapping that `Engine.generate` takes as ``where``.

    Raises
    ------
    UsageError
        The store has no word for one: it knows ==, in, >= and <=, all of which must hold.
    """
    if filters is None or not filters.filters:
        return None
    if filters.condition not in (FilterCondition.AND, None):
        raise UsageError(f"filters are joined by {filters.condition}; the store knows 'and' alone")
    where: dict[str, Any] = {}
    for one in filters.filters:
        if not isinstance(one, MetadataFilter):
            raise UsageError("filters stand inside filters; the store takes one level of them")
        if one.operator in _BOUNDS and isinstance(where.get(one.key, {}), dict):
            where.setdefault(one.key, {})[_BOUNDS[one.operator]] = one.value
        elif one.operator in _VALUES and one.key not in where:
            where[one.key] = one.value
        else:
            raise UsageError(
                f"filter {one.key!r} {one.operator.value!r} is none that the store knows; use ==, "
                "in, >= and <=, each key once"
            )
    return where
