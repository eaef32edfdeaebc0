"""Intervals by bootstrap: items are drawn again with replacement, all arms of one together.

Source: Efron 1979; the percentile interval. Seeded, so that a report says the same twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

__all__ = ["Columns", "bootstrap_interval"]

Columns = Mapping[str, npt.NDArray[np.float64]]
_DRAWS = 2000
_SEED = 20261130
_CHUNK = 200


def bootstrap_interval(
    columns: Columns, statistic: Callable[[Columns], npt.NDArray[np.float64]]
) -> tuple[float, float] | None:
    """Return the 95 % interval of a statistic over items.

    Parameters
    ----------
    columns : mapping of str to float64 ``[n]``
        Values of each item; what belongs together is drawn together.
    statistic : callable
        Takes columns ``[draws, n]``, gives ``[draws]``: it works along the last axis.

    Returns
    -------
    tuple of float or None
        None for fewer than two items, or where too many draws have no value.

    Examples
    --------
    >>> values = np.arange(100.0)
    >>> low, high = bootstrap_interval({"x": values}, lambda c: c["x"].mean(-1))
    >>> 43 < low < 45 < 54 < high < 56
    True
    """
    count = len(next(iter(columns.values())))
    if count < 2:
        return None
    random = np.random.default_rng(_SEED)
    found = []
    for _ in range(_DRAWS // _CHUNK):
        drawn = random.integers(0, count, (_CHUNK, count))
        found.append(statistic({name: values[drawn] for name, values in columns.items()}))
    values = np.concatenate(found)
    values = values[np.isfinite(values)]
    if len(values) < _DRAWS // 2:
        return None
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
