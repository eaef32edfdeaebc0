"""Sizes of a store by layer, and of K and V apart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from kvpacket_store.api.audit_totals import read_audit
from kvpacket_store.api.reports import StatsReport
from kvpacket_store.codec import info
from kvpacket_store.errors import CodecError, NotFoundError
from kvpacket_store.store import PacketManifest, PacketStore, StoredPacket
from kvpacket_store.store.disk_use import PACKS_FOLDER, folder_bytes
from kvpacket_store.types import KVDtype, KVLayout

__all__ = ["collect_statistics"]

# Reading every record of a large store would take minutes; sizes of these tell bits by layer.
_SAMPLED_PACKETS = 64


def collect_statistics(
    packets: PacketStore, namespace: str | None, layout: KVLayout, kv_dtype: KVDtype
) -> StatsReport:
    """Return the statistics of a namespace, or of everything."""
    sizes = packets.stats(namespace)
    found = _measure(packets, namespace, layout)
    k, v = found.bits()
    base = found.base_bits()
    every = sizes.raw_bytes / kv_dtype.itemsize_bytes
    return StatsReport(
        documents=sizes.documents,
        packets=sizes.packets,
        evicted_packets=sizes.evicted_packets,
        tokens=sizes.tokens,
        raw_bytes=sizes.raw_bytes,
        live_bytes=sizes.live_bytes,
        pack_bytes=folder_bytes(packets.path / PACKS_FOLDER),
        file_bytes=sizes.file_bytes,
        ratio=sizes.raw_bytes / sizes.live_bytes if sizes.live_bytes else None,
        bits_per_scalar={
            "k": float(k.mean()) if k.size else None,
            "v": float(v.mean()) if v.size else None,
            "all": 8 * sizes.live_bytes / every if every else None,
            "base": float(np.mean(base)) if base[0].size else None,
        },
        layers=[
            {
                "layer": i,
                "k": float(k[i]),
                "v": float(v[i]),
                "k_base": float(base[0][i]) if base[0].size else None,
                "v_base": float(base[1][i]) if base[1].size else None,
            }
            for i in range(k.size)
        ],
        sampled_packets=found.packets,
        namespaces=list(packets.namespaces()),
        audit=read_audit(packets.path).means(),
    )


@dataclass(slots=True)
class _Sizes:
    """Stored bytes of a sample's K and V by layer [2, L]; of bases apart, where there are any."""

    stored: npt.NDArray[np.int64]
    base: npt.NDArray[np.int64]
    packets: int = 0
    scalars: int = 0
    base_scalars: int = 0

    def add(self, packet: StoredPacket) -> None:
        """Count a packet in; raise CodecError, counting nothing, where a head does not hold."""
        sizes = info(packet.record)
        stored = np.array([sizes.k_bytes_by_layer, sizes.v_bytes_by_layer])
        scalars = int(np.prod(sizes.shape[1:]))
        if packet.enhancement is not None:
            rest = info(packet.enhancement)
            self.base += stored
            self.base_scalars += scalars
            stored = stored + np.array([rest.k_bytes_by_layer, rest.v_bytes_by_layer])
        self.stored += stored
        self.scalars += scalars
        self.packets += 1

    def bits(self) -> npt.NDArray[np.float64]:
        """Return bits a scalar of K and of V by layer [2, L]; [2, 0] where there is no packet."""
        return _bits(self.stored, self.scalars)

    def base_bits(self) -> npt.NDArray[np.float64]:
        """Return the same of bases alone."""
        return _bits(self.base, self.base_scalars)


def _bits(stored: npt.NDArray[np.int64], scalars: int) -> npt.NDArray[np.float64]:
    return 8 * stored / scalars if scalars else np.zeros((2, 0))


def _measure(packets: PacketStore, namespace: str | None, layout: KVLayout) -> _Sizes:
    size = (2, layout.num_layers)
    found = _Sizes(np.zeros(size, np.int64), np.zeros(size, np.int64))
    for manifest in _sample(packets, namespace):
        with contextlib.suppress(CodecError, NotFoundError):  # damage is `doctor`'s to report
            found.add(packets.read_packet(manifest.namespace or "", manifest.packet_key))
    return found


def _sample(packets: PacketStore, namespace: str | None) -> Iterator[PacketManifest]:
    """Yield some manifests of every namespace, by how many it has; keys are in no order of content.

    A damaged one ends its namespace's part of the sample, and is for `verify` to name.
    """
    total = max(packets.stats(namespace).packets, 1)
    names = packets.namespaces() if namespace is None else [namespace]
    for name in names[:_SAMPLED_PACKETS]:
        count = packets.stats(name).packets
        share = -(-_SAMPLED_PACKETS * count // total) if total > _SAMPLED_PACKETS else count
        with contextlib.suppress(CodecError):
            held = (found for found in packets.iter_packets(name) if not found.is_evicted)
            yield from islice(held, share)
