"""Sizes of a store by layer, and of K and V apart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice

import numpy as np

from kvpacket_store.api.reports import StatsReport
from kvpacket_store.codec import info
from kvpacket_store.errors import CodecError, NotFoundError
from kvpacket_store.store import PacketManifest, PacketStore
from kvpacket_store.types import KVDtype, KVLayout

__all__ = ["collect_statistics"]

# Reading every record of a large store would take minutes; sizes of these tell bits by layer.
_SAMPLED_PACKETS = 64


def collect_statistics(
    packets: PacketStore, namespace: str | None, layout: KVLayout, kv_dtype: KVDtype
) -> StatsReport:
    """Return the statistics of a namespace, or of everything."""
    sizes = packets.stats(namespace)
    k_bits, v_bits = _bits_by_layer(packets, namespace, layout, kv_dtype)
    every = sizes.raw_bytes / kv_dtype.itemsize_bytes
    return StatsReport(
        documents=sizes.documents,
        packets=sizes.packets,
        evicted_packets=sizes.evicted_packets,
        tokens=sizes.tokens,
        raw_bytes=sizes.raw_bytes,
        live_bytes=sizes.live_bytes,
        pack_bytes=0,
        file_bytes=sizes.file_bytes,
        ratio=sizes.raw_bytes / sizes.live_bytes if sizes.live_bytes else None,
        bits_per_scalar={
            "k": float(k_bits.mean()) if k_bits.size else None,
            "v": float(v_bits.mean()) if v_bits.size else None,
            "all": 8 * sizes.live_bytes / every if every else None,
            "base": None,
        },
        layers=[
            {"layer": i, "k": float(k), "v": float(v)}
            for i, (k, v) in enumerate(zip(k_bits, v_bits, strict=True))
        ],
        namespaces=list(packets.namespaces()),
    )


def _sample(packets: PacketStore, namespace: str | None) -> Iterator[PacketManifest]:
    """Yield some manifests; a damaged one ends the sample, and is for `verify` to name."""
    with contextlib.suppress(CodecError):
        yield from islice(packets.iter_packets(namespace), _SAMPLED_PACKETS)


def _bits_by_layer(
    packets: PacketStore, namespace: str | None, layout: KVLayout, kv_dtype: KVDtype
) -> tuple[np.ndarray, np.ndarray]:
    """Return bits a scalar of K and of V by layer, over a sample; empty where there is none."""
    k_bytes = np.zeros(layout.num_layers)
    v_bytes = np.zeros(layout.num_layers)
    scalars = 0
    for manifest in _sample(packets, namespace):
        try:
            record = packets.read_record(manifest.namespace or "", manifest.packet_key, None)
            sizes = info(record)
        except (CodecError, NotFoundError):
            continue  # damage is `doctor`'s to report
        k_bytes += np.array(sizes.k_bytes_by_layer)
        v_bytes += np.array(sizes.v_bytes_by_layer)
        scalars += int(np.prod(sizes.shape[1:]))
    if not scalars:
        return np.zeros(0), np.zeros(0)
    return 8 * k_bytes / scalars, 8 * v_bytes / scalars
