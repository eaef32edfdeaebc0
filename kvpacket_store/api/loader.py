"""A packet key → K and V, from memory or disk; what is unusable is prefilled again from tokens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kvpacket_store.api.given import is_filed
from kvpacket_store.api.importance import wanted_importance
from kvpacket_store.api.loaded_body import LoadedBody
from kvpacket_store.api.packet_tokens import packet_tokens
from kvpacket_store.api.read_ahead import ReadAhead
from kvpacket_store.api.records import decode_packet, decode_packet_base, make_record
from kvpacket_store.api.shared_bodies import SharedBodies
from kvpacket_store.codec import info
from kvpacket_store.errors import (
    CodecError,
    CorruptRecordError,
    KVPacketError,
    NotFoundError,
    StoreCorruptError,
)
from kvpacket_store.memory import MemoryTier
from kvpacket_store.packet import Packet, kv_digest
from kvpacket_store.prefill import BodyKV
from kvpacket_store.store import PacketManifest, PacketRecord
from kvpacket_store.types import BitArray, TokenIds

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.codec.linear.pack import CodecPack

__all__ = ["LoadedBody", "PacketLoader"]

_UNUSABLE = (CodecError, NotFoundError, StoreCorruptError)
_READS = 4  # a packet may be replaced between the reading of its manifest and of its record


class _ReplacedError(Exception):
    """The record that was read is not the one that the manifest had named."""


class PacketLoader:
    """Loads bodies (segment and trailer) and what all packets share: header and preamble.

    Parameters
    ----------
    store : Store
        Where the packets are.
    memory : MemoryTier, optional
        Keeps bodies between calls. What it holds counts only while the store's manifest names the
        same K and V for the same tokens, so it is never ahead of the store, nor behind it.
    """

    def __init__(self, store: Store, memory: MemoryTier[BodyKV] | None = None) -> None:
        self._store = store
        self._memory: MemoryTier[BodyKV] = memory or MemoryTier(max_bytes=0)
        self._shared = SharedBodies(store)

    def packet(self, namespace: str, key: str) -> Packet:
        """Return the whole packet ``[header | segment | trailer]``, or raise what is wrong."""
        loaded = self._read(namespace, self._manifest(namespace, key), wants_same=False)
        header, adapter = self.header(), self._store.adapter
        return Packet(
            key=key,
            token_ids=loaded.token_ids,
            k=np.concatenate([header.k, loaded.body.k], axis=2),
            v=np.concatenate([header.v, loaded.body.v], axis=2),
            kv_dtype=self._store.kv_dtype,
            header_tokens=adapter.header_slots,
            trailer_tokens=adapter.trailer_tokens,
        )

    def base(self, namespace: str, key: str) -> LoadedBody:
        """Return a body as its base alone gives it, or the exact one of a packet in one layer.

        No byte of an enhancement is read. What is wrong is raised, and nothing is made again: a
        caller who meets an error takes `body`.

        Raises
        ------
        NotFoundError
            No such packet, or it was evicted or made from other tokens, or by another model.
        CodecError
            The base is damaged, or its codec pack is lost.
        """
        started = time.perf_counter()
        packet = self._store.packets.read_base(namespace, key)
        manifest = packet.manifest
        self._require_own(manifest)
        read = time.perf_counter()
        loaded = self._decoded(manifest, decode_packet_base(self._store, packet), started, read)
        if manifest.num_records > 1:
            loaded.kv_digest = manifest.kv_digest
        loaded.base_bytes = len(packet.record)
        return loaded

    def ahead(
        self, namespace: str, keys: Sequence[tuple[str, str]]
    ) -> ReadAhead[tuple[str, str], LoadedBody]:
        """Return what reads and decodes packets (key, document id) on other threads; no prefill.

        A forward stays with the thread that asked: on another one it may give other bits. Other
        levels than ``linear`` decode one packet on all cores: read ahead, they took 1.03 of the
        time to the first token, ``linear`` 0.86 (two cores).
        """

        def refuse(reason: str) -> LoadedBody:
            raise CodecError(reason)

        chosen = keys if self._store.meta.codec == "linear" else ()
        return ReadAhead(lambda key: self._body(namespace, key[0], refuse), chosen)

    def body(
        self, namespace: str, key: str, document_id: str, token_ids: TokenIds | None = None
    ) -> LoadedBody:
        """Return a body; a packet that is missing, damaged or foreign is prefilled again.

        ``token_ids`` are those of a text that came with the question: a packet that nobody filed
        is then made from them, which is no fallback.

        Raises
        ------
        StoreCorruptError
            Neither the record nor its token ids nor the document's text can be read.
        """

        def prefill(reason: str) -> LoadedBody:
            tokens = token_ids or self.token_ids(namespace, key, document_id)
            made = self._made(key, tokens, reason)
            self._repair(namespace, key, tokens, made.body)
            return made

        if token_ids is not None and not is_filed(self._store, namespace, key):
            return self._made(key, token_ids, None)
        return self._body(namespace, key, prefill)

    def _body(self, namespace: str, key: str, recover: Callable[[str], LoadedBody]) -> LoadedBody:
        for _ in range(_READS):
            with contextlib.suppress(_ReplacedError):
                return self._find(namespace, key, recover)
        return recover(f"packet {key[:12]} was replaced again and again while it was read")

    def _find(self, namespace: str, key: str, recover: Callable[[str], LoadedBody]) -> LoadedBody:
        started = time.perf_counter()
        try:
            manifest = self._manifest(namespace, key)
        except _UNUSABLE as error:
            return recover(str(error))
        fresh: list[LoadedBody] = []

        def load() -> BodyKV:
            try:
                fresh.append(self._read(namespace, manifest))
            except _UNUSABLE as error:
                fresh.append(recover(str(error)))
            return fresh[0].body

        identity = (namespace, key, manifest.kv_digest, manifest.token_ids)
        body, _ = self._memory.get(identity, load)
        if fresh:
            fell_back = fresh[0].fallback_reason is not None
            if fell_back and kv_digest(body.k, body.v) != manifest.kv_digest:
                self._memory.forget(identity)  # made again by another engine: other bits
            return fresh[0]
        elapsed = 1e3 * (time.perf_counter() - started)
        return LoadedBody(key, manifest.token_ids, body, "ram", load_ms=elapsed)

    def header(self) -> BodyKV:
        """Return the adapter's header, stored once per store."""
        return self._shared.header()

    def preamble(self, token_ids: TokenIds, *, is_kept: bool = True) -> tuple[BodyKV, bool]:
        """Return a preamble's K and V, and whether no forward was needed for them."""
        return self._shared.preamble(token_ids, is_kept=is_kept)

    def require_genuine(self, record: PacketRecord, pack: CodecPack | None = None) -> None:
        """Refuse a record from elsewhere that does not hold what stands beside it.

        ``pack`` is what the record names where the store has not got it.

        Raises
        ------
        CodecError
            Its key is not that of its tokens under this store's model, or it decodes to K and V of
            another shape or digest.
        """
        key = record.packet_key
        if self._store.prefiller.segment_key(record.token_ids) != key:
            raise CorruptRecordError(f"packet {key[:12]} has the key of other tokens")
        if info(record.record).kv_dtype != self._store.kv_dtype:
            raise CorruptRecordError(f"packet {key[:12]} is of another KV dtype than the store")
        k, v = decode_packet(self._store, record.record, record.enhancement, pack=pack)
        self._require_shape(key, k.shape, len(record.token_ids))
        said = (record.kv_digest, record.raw_bytes, record.positions)
        if said != (kv_digest(k, v), k.nbytes + v.nbytes, k.shape[2]):
            raise CorruptRecordError(f"packet {key[:12]} decodes to other K and V than it names")

    def _manifest(self, namespace: str, key: str) -> PacketManifest:
        """Return what the store says of a packet, if it is this model's packet of these tokens."""
        manifest = self._store.packets.get_manifest(namespace, key)
        self._require_own(manifest)
        return manifest

    def _require_own(self, manifest: PacketManifest) -> None:
        key = manifest.packet_key
        if self._store.prefiller.segment_key(manifest.token_ids) != key:
            raise NotFoundError(
                f"packet {key[:12]} was made from other tokens, another model or another adapter"
            )

    def _read(
        self, namespace: str, manifest: PacketManifest, *, wants_same: bool = True
    ) -> LoadedBody:
        started = time.perf_counter()
        key = manifest.packet_key
        packet = self._store.packets.read_packet(namespace, key, manifest.token_ids)
        if wants_same and packet.manifest.kv_digest != manifest.kv_digest:
            raise _ReplacedError
        read = time.perf_counter()
        decoded = decode_packet(self._store, packet.record, packet.enhancement)
        return self._decoded(manifest, decoded, started, read)

    def _decoded(
        self,
        manifest: PacketManifest,
        kv: tuple[BitArray, BitArray],
        started: float,
        read: float,
    ) -> LoadedBody:
        """Return K and V just decoded; reading began at ``started`` and ended at ``read``."""
        key, token_ids = manifest.packet_key, manifest.token_ids
        self._require_shape(key, kv[0].shape, len(token_ids))
        return LoadedBody(
            key,
            token_ids,
            BodyKV(*kv),
            "disk",
            load_ms=1e3 * (read - started),
            decode_ms=1e3 * (time.perf_counter() - read),
        )

    def _require_shape(self, key: str, shape: tuple[int, ...], segment_tokens: int) -> None:
        expected = self._store.layout.shape(segment_tokens + self._store.adapter.trailer_tokens)
        if shape != expected:
            raise CodecError(f"packet {key[:12]} holds {shape}, {expected} is needed")

    def _made(self, key: str, token_ids: TokenIds, reason: str | None) -> LoadedBody:
        started = time.perf_counter()
        body = self._store.prefiller.segment(token_ids)
        elapsed = 1e3 * (time.perf_counter() - started)
        return LoadedBody(
            key, token_ids, body, "prefill", prefill_ms=elapsed, fallback_reason=reason
        )

    def token_ids(self, namespace: str, key: str, document_id: str) -> TokenIds:
        """Return the packet's tokens from its manifest, else from the document's text."""
        return packet_tokens(self._store, namespace, key, document_id)

    def _repair(self, namespace: str, key: str, token_ids: TokenIds, body: BodyKV) -> None:
        """Put the packet back; an answer does not depend on whether that works."""
        if self._store.prefiller.segment_key(token_ids) != key:
            return  # made by another recipe: under this key it would never be found
        with contextlib.suppress(KVPacketError):
            importance = wanted_importance(self._store, body, token_ids)
            record = make_record(self._store, key, token_ids, body, importance=importance)
            self._store.packets.replace_record(namespace, record)
