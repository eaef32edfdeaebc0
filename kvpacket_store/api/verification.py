"""Does a store hold what it says? Structure, bytes, K and V, a second prefill; and repair."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kvpacket_store.codec import decode
from kvpacket_store.errors import CodecError, NotFoundError
from kvpacket_store.packet import kv_digest
from kvpacket_store.store import Damage, DocumentManifest, PacketManifest
from kvpacket_store.types import Report

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
    report = work.look(recompute)
    report.remaining = report.damaged
    if repair and report.damaged:
        from kvpacket_store.api.repair import repair_store

        repair_store(store, report.damaged)
        again = _Verification(store, deep=deep, progress=progress or (lambda checked: None))
        report.remaining = again.look(0).damaged
        report.repaired = len(set(report.damaged) - set(report.remaining))
    return report


class _Verification:
    def __init__(self, store: Store, *, deep: bool, progress: Callable[[int], None]) -> None:
        self._store = store
        self._deep = deep
        self._progress = progress
        self._report = VerifyReport()

    def look(self, recompute: int) -> VerifyReport:
        """Find what does not hold."""
        report = self._report
        report.damaged.extend(self._store.packets.check(deep=self._deep))
        self._find_unfindable()
        known = {(found.namespace, found.packet_key) for found in report.damaged}
        sound = []
        for document_id, manifest in self._packets():
            report.checked += 1
            self._progress(report.checked)
            if manifest.is_evicted:
                report.evicted += 1
            elif (manifest.namespace, manifest.packet_key) not in known:
                if self._deep and (reason := self._decoded_wrongly(manifest)):
                    report.damaged.append(_damage(manifest, document_id, reason))
                else:
                    sound.append((document_id, manifest))
        for document_id, manifest in _sample(sound, recompute):
            self._recompute(document_id, manifest)
        return report

    def _find_unfindable(self) -> None:
        """Find documents without embeddings: the store may hold such, retrieval does not."""
        known = {(found.namespace, i) for found in self._report.damaged for i in found.document_ids}
        for namespace, document in self._documents():
            if (namespace, document.id) in known or not document.segments:
                continue
            if not self._store.packets.has_embeddings(namespace, document):
                reason = "it has no embeddings, so that no question finds it"
                self._report.damaged.append(Damage(None, (document.id,), reason, namespace))

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

    def _packets(self) -> Iterator[tuple[str, PacketManifest]]:
        """Yield each packet that a document refers to once, with one such document."""
        seen: set[tuple[str, str]] = set()
        for namespace, document in self._documents():
            for key in document.packet_keys:
                if (namespace, key) not in seen:
                    seen.add((namespace, key))
                    with contextlib.suppress(NotFoundError, CodecError):
                        yield document.id, self._store.packets.get_manifest(namespace, key)

    def _decoded_wrongly(self, manifest: PacketManifest) -> str | None:
        """Return what is wrong with the decoded K and V, if anything."""
        try:
            k, v = decode(self._record(manifest))
        except (CodecError, NotFoundError) as error:
            return str(error)
        if kv_digest(k, v) != manifest.kv_digest:
            return "K and V decode to other bits than were stored"
        return None

    def _recompute(self, document_id: str, manifest: PacketManifest) -> None:
        prefiller = self._store.prefiller
        if manifest.engine != prefiller.engine:
            self._report.recompute_skipped += 1
            return
        self._report.recomputed += 1
        body = prefiller.segment(manifest.token_ids)
        k, v = decode(self._record(manifest))
        if not (np.array_equal(body.k, k) and np.array_equal(body.v, v)):
            reason = "prefilled again, its tokens give other K and V on the same engine"
            self._report.damaged.append(_damage(manifest, document_id, reason))

    def _record(self, manifest: PacketManifest) -> bytes:
        return self._store.packets.read_record(
            manifest.namespace or "", manifest.packet_key, manifest.token_ids
        )


def _sample(
    sound: list[tuple[str, PacketManifest]], count: int
) -> list[tuple[str, PacketManifest]]:
    return random.SystemRandom().sample(sound, min(count, len(sound)))


def _damage(manifest: PacketManifest, document_id: str, reason: str) -> Damage:
    return Damage(manifest.packet_key, (document_id,), reason, manifest.namespace)
