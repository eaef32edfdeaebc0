"""Does a store hold what it says? Structure, bytes, K and V, a second prefill; and repair."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kvpacket_store.api.records import decode_packet
from kvpacket_store.errors import CodecError, KVPacketError, NotFoundError, StoreCorruptError
from kvpacket_store.packet import (
    PACKET_FORMAT_VERSION,
    PacketIdentity,
    kv_digest,
    packet_key,
)
from kvpacket_store.store import Damage, DocumentManifest, PacketManifest
from kvpacket_store.types import Report, TokenIds

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["VerifyReport", "verify_store"]

_PAGE_DOCUMENTS = 200


@dataclass(slots=True)
class VerifyReport(Report):
    """Outcome of a verification.

    Parameters
    ----------
    checked : int
        Packets looked at.
    damaged : list of Damage
        What was found, with the documents that it touches.
    repaired : int
        How many of these hold again.
    remaining : list of Damage
        What does not hold now.
    evicted : int
        Packets without a record because it gave way to others: no damage, prefilled when needed.
    recomputed, recompute_skipped : int
        Packets that were prefilled again and compared, and those that another engine had made,
        whose bits may differ.
    """

    checked: int = 0
    damaged: list[Damage] = field(default_factory=list)
    repaired: int = 0
    remaining: list[Damage] = field(default_factory=list)
    evicted: int = 0
    recomputed: int = 0
    recompute_skipped: int = 0


@dataclass(frozen=True, slots=True)
class _Found:
    """A packet and one document that refers to it."""

    document_id: str
    manifest: PacketManifest

    @property
    def place(self) -> tuple[str, str]:
        """Namespace and packet key."""
        return self.manifest.namespace or "", self.manifest.packet_key

    def damage(self, reason: str) -> Damage:
        """Return the finding."""
        return Damage(
            self.manifest.packet_key, (self.document_id,), reason, self.manifest.namespace
        )


def verify_store(
    store: Store,
    *,
    deep: bool,
    recompute: int,
    repair: bool,
    progress: Callable[[int], None] | None = None,
) -> VerifyReport:
    """Verify, and repair if asked; see ``Store.verify``."""
    work = _Verification(store, deep=deep, progress=progress or (lambda checked: None))
    work.look()
    sample = _sample(work.sound, recompute)
    work.recompute(sample)
    report = work.report
    report.remaining = report.damaged
    if repair and report.damaged:
        from kvpacket_store.api.repair import repair_store

        repair_store(store, report.damaged)
        again = _Verification(store, deep=deep, progress=progress or (lambda checked: None))
        again.look()
        again.recompute(sample)
        report.remaining = again.report.damaged
        places = {_place(found) for found in report.remaining}
        report.repaired = sum(_place(found) not in places for found in report.damaged)
    return report


def _place(found: Damage) -> tuple[object, ...]:
    """Return what stays the same of a finding while counts in its reason change."""
    if found.packet_key is None and not found.document_ids:
        return found.namespace, "".join(c for c in found.reason if not c.isdigit())
    return found.namespace, found.packet_key, found.document_ids


class _Verification:
    def __init__(self, store: Store, *, deep: bool, progress: Callable[[int], None]) -> None:
        self.report = VerifyReport()
        self.sound: list[_Found] = []
        self._store = store
        self._deep = deep
        self._progress = progress

    def look(self) -> None:
        """Find what does not hold, and packets that do."""
        self.report.damaged.extend(self._store.packets.check(deep=self._deep))
        self._look_at_codec_pack()
        try:
            self._find_unfindable()
            self._look_at_packets()
        except StoreCorruptError as error:  # a namespace's own row: `check` has named it
            if not self.report.damaged:
                self.report.damaged.append(Damage(None, (), str(error)))

    def recompute(self, sample: Sequence[_Found]) -> None:
        """Prefill packets again and compare."""
        for found in sample:
            with contextlib.suppress(NotFoundError):  # deleted meanwhile
                if reason := self._recomputed_otherwise(found):
                    self.report.damaged.append(found.damage(reason))

    def _look_at_codec_pack(self) -> None:
        """Find that the store's own copy is gone; packets that suffer by it are named when read."""
        digest = self._store.meta.codec_pack
        if digest is not None and (reason := self._store.codec_packs.problem(digest)):
            self.report.damaged.append(Damage(None, (), reason))

    def _look_at_packets(self) -> None:
        known = {(found.namespace, found.packet_key) for found in self.report.damaged}
        for found in self._packets():
            self.report.checked += 1
            self._progress(self.report.checked)
            if found.manifest.is_evicted:
                self.report.evicted += 1
            elif found.place in known:
                continue
            elif reason := self._wrong(found):
                self.report.damaged.append(found.damage(reason))
            else:
                self.sound.append(found)

    def _find_unfindable(self) -> None:
        """Find documents without embeddings: the store may hold such, retrieval does not."""
        known = {(found.namespace, i) for found in self.report.damaged for i in found.document_ids}
        packets = self._store.packets
        for namespace, document in self._documents():
            if (namespace, document.id) in known or not document.segments:
                continue
            if packets.has_embeddings(namespace, document):
                continue
            with contextlib.suppress(NotFoundError, CodecError):
                if packets.get_document(namespace, document.id) == document:
                    reason = "it has no embeddings, so that no question finds it"
                    self.report.damaged.append(Damage(None, (document.id,), reason, namespace))

    def _documents(self) -> Iterator[tuple[str, DocumentManifest]]:
        packets = self._store.packets
        for namespace in packets.namespaces():
            after = None
            while True:
                page = packets.document_page(namespace, _PAGE_DOCUMENTS, after)
                for document in page.documents:
                    yield namespace, document
                if (after := page.following) is None:
                    break

    def _packets(self) -> Iterator[_Found]:
        """Yield each packet that a document refers to once, with one such document."""
        seen: set[tuple[str, str]] = set()
        for namespace, document in self._documents():
            for key in document.packet_keys:
                if (namespace, key) not in seen:
                    seen.add((namespace, key))
                    with contextlib.suppress(NotFoundError, CodecError):
                        yield _Found(document.id, self._store.packets.get_manifest(namespace, key))

    def _wrong(self, found: _Found) -> str | None:
        """Return what is wrong with a packet, if anything."""
        manifest = found.manifest
        if self._key_of(manifest.token_ids) != manifest.packet_key:
            return (
                "its manifest names tokens that give another key; delete the document and ingest "
                "it again"
            )
        if not self._deep:
            return None
        try:
            packet = self._store.packets.read_packet(*found.place, manifest.token_ids)
            k, v = decode_packet(self._store, packet.record, packet.enhancement)
        except NotFoundError:
            return self._missing(found)
        except CodecError as error:
            return str(error)
        now = packet.manifest
        if k.shape != self._store.layout.shape(now.positions):
            return f"K and V are {k.shape}, {self._store.layout.shape(now.positions)} is needed"
        if kv_digest(k, v) != now.kv_digest:
            return "K and V decode to other bits than were stored"
        return None

    def _missing(self, found: _Found) -> str | None:
        """Say that a packet is missing, unless it was deleted or evicted in good order."""
        namespace, key = found.place
        packets = self._store.packets
        with contextlib.suppress(NotFoundError):
            if key not in packets.get_document(namespace, found.document_id).packet_keys:
                return None
            if (
                packets.has_packet(namespace, key)
                or packets.get_manifest(namespace, key).is_evicted
            ):
                return None
            return "the packet is missing"
        return None

    def _recomputed_otherwise(self, found: _Found) -> str | None:
        """Prefill the packet again; return what differs, if anything."""
        prefiller = self._store.prefiller
        try:
            packet = self._store.packets.read_packet(*found.place)
            k, v = decode_packet(self._store, packet.record, packet.enhancement)
        except CodecError as error:
            return str(error)
        manifest = packet.manifest
        if manifest.engine != prefiller.engine:
            self.report.recompute_skipped += 1
            return None
        self.report.recomputed += 1
        body = prefiller.segment(manifest.token_ids)
        if np.array_equal(body.k, k) and np.array_equal(body.v, v):
            return None
        return "prefilled again, its tokens give other K and V on the same engine"

    def _key_of(self, token_ids: TokenIds) -> str:
        """Return the key that the store's own description gives these tokens; no model needed."""
        meta = self._store.meta
        identity = PacketIdentity(
            format_version=PACKET_FORMAT_VERSION,
            weights=meta.fingerprint["weights"],
            tokenizer=meta.fingerprint["tokenizer"],
            config=meta.fingerprint["config"],
            rope=meta.fingerprint["rope"],
            kv_dtype=self._store.kv_dtype,
            adapter=meta.adapter_digest,
            recipe=meta.recipe,
            role="segment",
            token_ids=token_ids,
        )
        try:
            return packet_key(identity)
        except KVPacketError:
            return ""


def _sample(sound: Sequence[_Found], count: int) -> list[_Found]:
    return random.SystemRandom().sample(sound, min(count, len(sound)))
