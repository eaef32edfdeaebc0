"""A store's packets in another encoding: decoded, encoded anew, replaced one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvpacket_store.api.codec_choice import (
    BaseStep,
    choose_base_step,
    choose_layers,
    choose_pack,
)
from kvpacket_store.api.codec_packs import keep_within_cap
from kvpacket_store.api.importance import stored_importance
from kvpacket_store.api.records import decode_packet, encode_packet
from kvpacket_store.api.step_costs import find_costs
from kvpacket_store.codec import DEFAULT_BASE_STEP, info
from kvpacket_store.errors import CodecError, LevelUnavailableError, NotFoundError
from kvpacket_store.packet import kv_digest
from kvpacket_store.store import Damage, PacketRecord, StoredPacket
from kvpacket_store.types import Report

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.codec.linear.pack import CodecPack

__all__ = ["RecodeReport", "recode"]


@dataclass(slots=True)
class RecodeReport(Report):
    """Outcome of a change of level.

    Parameters
    ----------
    recoded : int
        Packets that were encoded anew.
    unchanged : int
        Packets that were so already, or belong to no document.
    skipped : list of Damage
        Packets that cannot be decoded, and why: `verify` with repair prefills them again.
    bytes_before, bytes_after : int
        Of the records of all these packets.
    codec_pack : str or None
        Digest of the pack that is in use now.
    base_step : sequence of (str, str), or None
        By model layer, for K and for V.
    """

    recoded: int = 0
    unchanged: int = 0
    skipped: list[Damage] = field(default_factory=list)
    bytes_before: int = 0
    bytes_after: int = 0
    codec_pack: str | None = None
    base_step: tuple[tuple[str, str], ...] | None = None


def recode(
    store: Store,
    codec: str,
    layers: int | None = None,
    pack: CodecPack | str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    base_step: BaseStep | None = None,
) -> RecodeReport:
    """Encode a store's packets at another level, in so many layers, or with another codec pack.

    From the first moment on, new packets are encoded so. Each packet is replaced in a commit of its
    own, once what was encoded has been decoded and compared: whenever this ends, every packet can
    be read, and the same call goes on where it ended. No model is needed. Evicted packets are
    passed over; those of no document, and what the whole store shares, stay as they are.

    Parameters
    ----------
    store : Store
        Open for writing.
    codec : str
        ``raw``, ``fast`` or ``linear``.
    layers : int, optional
        As for ``Store.create``.
    pack : CodecPack or path, optional
        For ``linear``; default: the one that the store uses, else the newest that it has and that
        fits, else the shipped one.
    progress : callable, optional
        Called after each packet with how many were looked at, and of how many.
    base_step : BaseStep, optional
        As for ``Store.create``; default: as the store has it, if it has two layers.

    Raises
    ------
    LevelUnavailableError, UsageError
        The level, or its pack, is not to be had, or they do not fit. Nothing has changed.
    ReadOnlyError, StoreFullError
        Nothing more can be written.
    """
    num_layers = choose_layers(codec, layers)
    if base_step is None and num_layers == store.meta.layers:
        base_step = store.meta.base_step or (DEFAULT_BASE_STEP if num_layers == 2 else None)
    chosen = choose_pack(codec, pack, store.pack_need, _kept(store))
    digest = None if chosen is None else chosen.digest
    costs = find_costs(store.codec_packs.folder, digest)
    steps = choose_base_step(base_step, num_layers, store.layout.num_layers, costs)
    if chosen is not None:
        keep_within_cap(store, chosen)
    store.packets.change_codec(codec, num_layers, digest, steps)
    work = _Recoding(store)
    work.report.codec_pack, work.report.base_step = digest, steps
    sizes = store.packets.stats()
    total = sizes.packets + sizes.evicted_packets
    for number, (namespace, packet_key) in enumerate(_packet_keys(store), start=1):
        work.take(namespace, packet_key)
        if progress is not None:
            progress(number, max(number, total))
    return work.report


def _kept(store: Store) -> Iterator[CodecPack]:
    """Yield the packs that the store has, the one in use first."""
    with contextlib.suppress(LevelUnavailableError):
        if (in_use := store.codec_pack) is not None:
            yield in_use
    yield from store.codec_packs.kept()


def _packet_keys(store: Store) -> Iterator[tuple[str, str]]:
    """Yield namespace and key of every packet."""
    for namespace in store.packets.namespaces():
        for packet_key in store.packets.iter_packet_keys(namespace):
            yield namespace, packet_key


class _Recoding:
    """One run: what is done with each packet, and what became of all."""

    def __init__(self, store: Store) -> None:
        self.report = RecodeReport()
        self._store = store

    def take(self, namespace: str, packet_key: str) -> None:
        """Encode one packet anew, unless it is so already."""
        report = self.report
        with contextlib.suppress(NotFoundError):  # evicted, of no document, or gone meanwhile
            try:
                packet = self._store.packets.read_packet(namespace, packet_key)
                after = self._encoded(packet)
            except CodecError as error:
                report.skipped.append(Damage(packet_key, (), str(error), namespace))
                return
            before_bytes = packet.manifest.stored_bytes
            if after is None:
                report.unchanged += 1
            else:
                self._store.packets.replace_record(namespace, after, is_use=False)
                report.recoded += 1
            report.bytes_before += before_bytes
            report.bytes_after += before_bytes if after is None else after.stored_bytes

    def _is_so(self, packet: StoredPacket) -> bool:
        found, meta = info(packet.record), self._store.meta
        layers = packet.manifest.num_records
        wanted = (meta.codec, meta.layers, meta.codec_pack, meta.base_step)
        return (found.level, layers, found.pack, found.base_step) == wanted

    def _encoded(self, packet: StoredPacket) -> PacketRecord | None:
        """Return the packet as the store encodes now; None where it is so, or nobody's."""
        manifest = packet.manifest
        if not manifest.refcount or self._is_so(packet):
            return None
        k, v = decode_packet(self._store, packet.record, packet.enhancement)
        if kv_digest(k, v) != manifest.kv_digest:
            raise CodecError("K and V decode to other bits than were stored")
        record, enhancement = encode_packet(self._store, k, v)
        key, namespace = manifest.packet_key, manifest.namespace or ""
        return PacketRecord(
            packet_key=key,
            record=record,
            token_ids=manifest.token_ids,
            positions=manifest.positions,
            raw_bytes=manifest.raw_bytes,
            kv_digest=manifest.kv_digest,
            engine=manifest.engine,
            enhancement=enhancement,
            importance=stored_importance(self._store, namespace, key),
        )
