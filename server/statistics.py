"""What ``GET /stats`` tells: sizes as ``kvps stats``, counters as ``GET /metrics``."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from kvpacket_store.api import Store
from kvpacket_store.api.quality_gate import why_unverified
from kvpacket_store.api.statistics import collect_statistics

from .callers import Caller

__all__ = ["metric_values", "store_statistics"]


def store_statistics(store: Store, caller: Caller, asked: str | None) -> dict[str, Any]:
    """Return what ``kvps stats`` says, and what the store is. It reads records.

    Who has a key learns of its own namespace alone: of no other's name, nor of what all share.

    Parameters
    ----------
    asked : str, optional
        The namespace that the request names. None: the key's, or all where there are no keys.

    Raises
    ------
    NotFoundError
        Nobody has filed anything in the namespace that is asked for.
    UsageError
        It is not the key's.
    """
    if caller.namespace is None:
        report = store.stats(namespace=asked).to_dict()
    else:
        own = caller.namespace_for(asked)  # it need not have documents yet
        report = collect_statistics(store.packets, own, store.layout, store.kv_dtype).to_dict()
        report |= {"namespaces": [own], "file_bytes": None, "pack_bytes": None}
    meta, reason = store.meta, why_unverified(store)
    return {
        **report,
        "store": {
            "model": meta.model,
            "adapter": meta.adapter,
            "codec": meta.codec,
            "layers": meta.layers,
            "kv_dtype": meta.kv_dtype,
            "raw_bits_per_scalar": 8 * store.kv_dtype.itemsize_bytes,
        },
        "quality": {"verified": reason is None, "reason": reason},
    }


def metric_values(registry: CollectorRegistry) -> dict[str, float]:
    """Return what a registry counts, by the names of Prometheus' text format; no buckets.

    Examples
    --------
    >>> from prometheus_client import Counter
    >>> registry = CollectorRegistry()
    >>> Counter("seen", "Seen.", ["by"], registry=registry).labels("me").inc(2)
    >>> metric_values(registry)
    {'seen_total{by="me"}': 2.0}
    """
    return {
        _name(sample.name, sample.labels): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


def _name(name: str, labels: dict[str, str]) -> str:
    pairs = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{pairs}}}" if pairs else name
