"""LlamaIndex's key-value and document stores, in the store itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.kvstore.types import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_COLLECTION,
    BaseKVStore,
)

from kvpacket_store.api import DEFAULT_NAMESPACE, Store
from kvpacket_store.integrations.handles import StoreHandle
from kvpacket_store.store import PacketStore

__all__ = ["KVPacketDocumentStore", "KVPacketKVStore"]

_COLLECTIONS = "llama-index/"


class KVPacketKVStore(BaseKVStore):
    """JSON objects by key, in collections. It serves `IngestionCache` too.

    Parameters
    ----------
    store : Store
        Where they lie, beside its documents.
    namespace : str
        Whose.
    """

    def __init__(self, store: Store | StoreHandle, namespace: str = DEFAULT_NAMESPACE) -> None:
        self._store = store if isinstance(store, StoreHandle) else StoreHandle(store)
        self._namespace = namespace

    def put(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        """File one object."""
        self.put_all([(key, val)], collection)

    def put_all(
        self,
        kv_pairs: list[tuple[str, dict[str, Any]]],
        collection: str = DEFAULT_COLLECTION,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ) -> None:
        """File many in one commit, whatever the size of batches."""
        del batch_size
        rows = {key: json.dumps(value).encode() for key, value in kv_pairs}
        self._packets.put_values(self._namespace, _COLLECTIONS + collection, rows)

    def get(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """Return one object, or None."""
        found = self._packets.get_values(self._namespace, _COLLECTIONS + collection, [key])
        return _parsed(found[key]) if key in found else None

    def get_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """Return every object of a collection."""
        values = self._packets.iter_values(self._namespace, _COLLECTIONS + collection)
        return {key: _parsed(value) for key, value in values}

    def delete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """Delete one object; say whether it was there."""
        deleted = self._packets.delete_values(self._namespace, _COLLECTIONS + collection, [key])
        return deleted > 0

    async def aput(
        self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION
    ) -> None:
        """As `put`, on a thread."""
        await asyncio.to_thread(self.put, key, val, collection)

    async def aput_all(
        self,
        kv_pairs: list[tuple[str, dict[str, Any]]],
        collection: str = DEFAULT_COLLECTION,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ) -> None:
        """As `put_all`, on a thread."""
        await asyncio.to_thread(self.put_all, kv_pairs, collection, batch_size)

    async def aget(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """As `get`, on a thread."""
        return await asyncio.to_thread(self.get, key, collection)

    async def aget_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """As `get_all`, on a thread."""
        return await asyncio.to_thread(self.get_all, collection)

    async def adelete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """As `delete`, on a thread."""
        return await asyncio.to_thread(self.delete, key, collection)

    @property
    def _packets(self) -> PacketStore:
        return self._store.get().packets


class KVPacketDocumentStore(KVDocumentStore):
    """LlamaIndex's document store over a store: an ingestion pipeline skips what it has seen.

    Parameters
    ----------
    store : Store
        Where nodes and hashes lie, beside its documents.
    namespace : str
        Whose.
    """

    def __init__(self, store: Store | StoreHandle, namespace: str = DEFAULT_NAMESPACE) -> None:
        super().__init__(KVPacketKVStore(store, namespace))


def _parsed(value: bytes) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(value)
    return parsed
