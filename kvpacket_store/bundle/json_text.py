"""JSON of a bundle: written one way, read strictly."""

from __future__ import annotations

import json
import math
from typing import Any

from kvpacket_store.bundle.limits import BundleLimits
from kvpacket_store.errors import BundleError

__all__ = ["from_json", "to_json"]


def to_json(value: Any) -> bytes:
    r"""Return the one JSON text of a value: keys sorted, no blanks, ASCII.

    Examples
    --------
    >>> to_json({"b": 1, "a": "é"})
    b'{"a":"\\u00e9","b":1}'
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def from_json(data: bytes, what: str, limits: BundleLimits) -> dict[str, Any]:
    """Return the object that ``data`` spells.

    Parameters
    ----------
    data : bytes
        As it stands in the bundle; its digest has been checked.
    what : str
        For the message: the member's name.
    limits : BundleLimits
        ``max_json_values`` holds before anything is parsed.

    Raises
    ------
    BundleError
        No JSON object, a key twice, NaN or infinity, too deep, or too many values.
    """
    num_values = data.count(b",") + data.count(b"[") + data.count(b"{")
    if num_values > limits.max_json_values:
        raise BundleError(
            f"{what} of the bundle may hold {num_values} values, over "
            f"max_json_values={limits.max_json_values}; pass a higher limit if that is right"
        )
    try:
        value = json.loads(
            data.decode("ascii"),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{what} of the bundle is not plain JSON ({error!s:.80})") from error
    if not isinstance(value, dict):
        raise BundleError(f"{what} of the bundle is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands there twice")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    return value


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
