"""The quality gate: whether answers from a model and adapter were compared with full recompute.

`kvps adapter eval --store` records a report for the pair that a store holds. Without one, or with
one of another pair, the pair is unverified: answers may be fluent and wrong, and nobody has looked.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kvpacket_store.adapters import answers_digest, shipped_report
from kvpacket_store.api.identity import PACKET_FIELDS
from kvpacket_store.errors import QualityError

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["check_verified", "kept_report", "record_quality", "why_unverified"]

_LOG = logging.getLogger(__name__)
_KEPT_FIGURES = ("kl", "gold_nll", "f1", "em", "n")
_warned: set[tuple[str, str]] = set()


def record_quality(store: Store, report: Mapping[str, Any]) -> dict[str, Any]:
    """Keep what a quality report says of the store's pair; return what is kept.

    Parameters
    ----------
    report : mapping
        As `quality.measure_quality` gives it and `require_sane` lets it through.

    Raises
    ------
    QualityError
        It is of another model or adapter.
    ReadOnlyError
        The store is open for reading alone.
    """
    kept = kept_report(report)
    if kept["pair"] != _pair_of(store):
        raise QualityError(
            f"the report is not of the model and adapter of store {store.path}; "
            f"run `kvps adapter eval --store {store.path}`"
        )
    store.packets.put_quality(kept)
    return kept


def kept_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a quality report: in a store, and beside an adapter that ships."""
    return {
        "version": report["version"],
        "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "pair": _pair(report["model_fingerprint"], report["adapter_digest"]),
        "sane": report["sane"],
        "arms": {
            name: {figure: values[figure] for figure in _KEPT_FIGURES}
            for name, values in report["arms"].items()
        },
        "gap_closed": report["gap_closed"].get("packet"),
        "datasets": [
            {"name": block["name"], "domain": block["domain"], "n": block["n"]}
            for block in report["datasets"]
        ],
    }


def why_unverified(store: Store) -> str | None:
    """Say why a store's pair is unverified, or None where it is verified.

    A pair is verified by a report of its own, recorded in the store or shipped with the adapter,
    whose full recompute was sane, and, where there is an adapter, whose packets are nearer to full
    recompute than naive reuse is.
    """
    report = store.packets.get_quality() or shipped_report(_digest_of(store))
    if report is None:
        return "no quality report was recorded for it"
    if report.get("pair") != _pair_of(store):
        return "the recorded quality report is of another model or adapter"
    if not report.get("sane"):
        return "its quality report was forced: full recompute itself did badly"
    closed = (report.get("gap_closed") or {}).get("kl")
    if _digest_of(store) == "none":
        return None
    if closed is None:
        return "its quality report says nothing of packets"
    if closed["interval"] is None or closed["interval"][0] <= 0:
        return "by its quality report packets are not surely nearer than naive reuse is"
    return None


def check_verified(store: Store, *, required: bool = False) -> bool:
    """Return whether a store's pair is verified; warn once where it has an adapter and is not.

    Raises
    ------
    QualityError
        It is not, and that is required.
    """
    reason = why_unverified(store)
    if reason is None:
        return True
    meta = store.meta
    pair = f"model {meta.model!r} with adapter {meta.adapter or 'none'!r}"
    remedy = f"run `kvps adapter eval --store {store.path}`"
    if required:
        raise QualityError(f"{pair} is unverified: {reason}; {remedy}")
    known = (str(store.path), _digest_of(store))
    if known[1] != "none" and known not in _warned:
        _warned.add(known)
        _LOG.warning("%s is unverified: %s; %s", pair, reason, remedy)
    return False


def _pair_of(store: Store) -> dict[str, str]:
    return _pair(store.meta.fingerprint, _digest_of(store))


def _digest_of(store: Store) -> str:
    return answers_digest(store.meta.adapter_digest, store.meta.correction_digest)


def _pair(fingerprint: Mapping[str, str], adapter_digest: str) -> dict[str, str]:
    """Return what a report holds for: all that decides a packet's K,V but dtype and tokens."""
    return {**{name: fingerprint[name] for name in PACKET_FIELDS}, "adapter": adapter_digest}
