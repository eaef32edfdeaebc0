"""Compressors by name: ``part("*"part)*``, a part being ``name[":"number]``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite

from kvpacket_store.compress import scorers
from kvpacket_store.compress.compressor import ProductCompressor, TokenDropper
from kvpacket_store.compress.float8 import Float8
from kvpacket_store.compress.importance_map import ImportanceMap
from kvpacket_store.compress.plan import Compressor
from kvpacket_store.compress.quantisers import Kivi, KVQuant, Noise, PerToken, Quantiser
from kvpacket_store.compress.scorers import Scorer
from kvpacket_store.errors import UsageError

__all__ = ["compressor_names", "parse_compressor", "takes_importance", "takes_map"]

_EXACT = "exact"
_MAPPED = "kvzap"
_STORED = "importance"

_SCORERS: Mapping[str, Scorer] = {
    "expected": scorers.expected_scores,
    "h2o": scorers.h2o_scores,
    _STORED: scorers.importance_scores,
    "keydiff": scorers.keydiff_scores,
    "knorm": scorers.knorm_scores,
    "random": scorers.random_scores,
    "scissorhands": scorers.scissorhands_scores,
    "snapkv": scorers.snapkv_scores,
    "streaming": scorers.streaming_scores,
    "tova": scorers.tova_scores,
}


def compressor_names() -> tuple[str, ...]:
    """Return the names of all parts, sorted.

    Examples
    --------
    >>> compressor_names()[:4]
    ('exact', 'expected', 'fp8', 'h2o')
    """
    return tuple(sorted([*_SCORERS, *_QUANTISERS, _EXACT, _MAPPED]))


def parse_compressor(name: str, importance_map: ImportanceMap | None = None) -> Compressor:
    """Return the compressor of that name.

    Token droppers take the share of slots that they keep, above 0 and up to 1: ``snapkv:0.25``.
    ``kivi`` and ``kvquant`` take 2 or 4 bits (4 if none is given), ``noise`` a relative strength
    (0.1). ``exact`` keeps everything. A product drops from left to right and then quantises.

    Parameters
    ----------
    name : str
        As ``snapkv:0.25*int8``.
    importance_map : ImportanceMap, optional
        What ``kvzap`` scores with.

    Raises
    ------
    UsageError
        An unknown name, a number that means nothing there, or two quantisers.

    Examples
    --------
    >>> parse_compressor("keydiff:0.5*int4").name
    'keydiff:0.5*int4'
    >>> parse_compressor("keydiff:50")
    Traceback (most recent call last):
    ...
    kvpacket_store.errors.UsageError: keydiff:50: give the share of slots to keep, as keydiff:0.25
    """
    droppers: list[TokenDropper] = []
    quantisers: list[Quantiser] = []
    for part in name.split("*"):
        title, colon, text = part.partition(":")
        number = _number(part, text) if colon else None
        if title in _QUANTISERS:
            quantisers.append(_QUANTISERS[title](part, number))
        elif title == _EXACT:
            _refuse_number(part, number)
        else:
            droppers.append(_dropper(part, number, _scorer(title, importance_map)))
    if len(quantisers) > 1:
        raise UsageError(f"{name} quantises twice; name one of {', '.join(_QUANTISERS)}")
    return ProductCompressor(name, tuple(droppers), quantisers[0] if quantisers else None)


def takes_importance(name: str) -> bool:
    """Whether a compressor judges by the importance that is stored with packets.

    Examples
    --------
    >>> takes_importance("importance:0.5*int8"), takes_importance("keydiff:0.5")
    (True, False)
    """
    return _STORED in _titles(name)


def takes_map(name: str) -> bool:
    """Whether a compressor judges by an importance map."""
    return _MAPPED in _titles(name)


def _titles(name: str) -> list[str]:
    return [part.partition(":")[0] for part in name.split("*")]


def _number(part: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise UsageError(f"{part}: {text!r} is not a number")
    return number


def _scorer(title: str, importance_map: ImportanceMap | None) -> Scorer:
    if title in _SCORERS:
        return _SCORERS[title]
    if title != _MAPPED:
        raise UsageError(
            f"no compressor is named {title!r}; there are {', '.join(compressor_names())}"
        )
    if importance_map is None:
        raise UsageError(
            "kvzap scores with an importance map, and there is none for this model; fit one to a "
            "store's packets with `kvps fit-importance STORE`"
        )
    return importance_map


def _dropper(part: str, share: float | None, score: Scorer) -> TokenDropper:
    if share is None or not 0 < share <= 1:
        title = part.partition(":")[0]
        raise UsageError(f"{part}: give the share of slots to keep, as {title}:0.25")
    return TokenDropper(score, share)


def _refuse_number(part: str, number: float | None) -> None:
    if number is not None:
        raise UsageError(f"{part}: {part.partition(':')[0]} takes no number")


def _code_bits(part: str, number: float | None) -> int:
    bits = 4 if number is None else number
    if bits not in (2, 4):
        raise UsageError(f"{part}: bits are 2 or 4")
    return int(bits)


def _float8(part: str, number: float | None) -> Quantiser:
    _refuse_number(part, number)
    return Float8()


def _int4(part: str, number: float | None) -> Quantiser:
    _refuse_number(part, number)
    return PerToken(4)


def _int8(part: str, number: float | None) -> Quantiser:
    _refuse_number(part, number)
    return PerToken(8)


def _kivi(part: str, number: float | None) -> Quantiser:
    return Kivi(_code_bits(part, number))


def _kvquant(part: str, number: float | None) -> Quantiser:
    return KVQuant(_code_bits(part, number))


def _noise(part: str, number: float | None) -> Quantiser:
    strength = 0.1 if number is None else number
    if strength < 0:
        raise UsageError(f"{part}: the strength of noise is 0 or more")
    return Noise(strength)


_QUANTISERS: Mapping[str, Callable[[str, float | None], Quantiser]] = {
    "fp8": _float8,
    "int4": _int4,
    "int8": _int8,
    "kivi": _kivi,
    "kvquant": _kvquant,
    "noise": _noise,
}
