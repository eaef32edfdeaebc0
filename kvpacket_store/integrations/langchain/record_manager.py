"""When which document was indexed: LangChain's record manager, in the store itself."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from langchain_core.indexing import RecordManager
from langchain_core.runnables import run_in_executor

from kvpacket_store.api import DEFAULT_NAMESPACE, Store
from kvpacket_store.api.document_state import is_whole

__all__ = ["KVPacketRecordManager"]

_COLLECTION = "langchain-records"


class _Record(NamedTuple):
    group: str | None
    updated_s: float


class KVPacketRecordManager(RecordManager):
    """Records of the documents of a `KVPacketIndex`, for LangChain's ``index()``.

    A record is there only as long as its document is whole in the store, with its text, its
    embeddings and its packets (evicted ones count: they are made again when they are needed). So
    what was lost behind the record's back is indexed again, and never skipped.

    Parameters
    ----------
    store : Store
        The one that the index is over.
    namespace : str
        As of the index.

    Examples
    --------
    ::

        index = KVPacketIndex(engine=engine)
        records = KVPacketRecordManager(engine.store)
        langchain_core.indexing.index(
            loader, records, index, cleanup="full", key_encoder="sha256"
        )
    """

    def __init__(self, store: Store, namespace: str = DEFAULT_NAMESPACE) -> None:
        super().__init__(namespace)
        self._packets = store.packets

    def create_schema(self) -> None:
        """Do nothing: the store is there."""

    def get_time(self) -> float:
        """Return seconds since 1970 by the clock of this machine, where the store is written."""
        return time.time()

    def update(
        self,
        keys: Sequence[str],
        *,
        group_ids: Sequence[str | None] | None = None,
        time_at_least: float | None = None,
    ) -> None:
        """Note that documents were indexed now, all in one commit.

        Without ``group_ids`` records keep the group that they have.

        Raises
        ------
        ValueError
            There are not as many groups as keys, or the clock is behind ``time_at_least``.
        """
        now_s = self.get_time()
        if group_ids is not None and len(keys) != len(group_ids):
            raise ValueError(f"{len(keys)} keys, but {len(group_ids)} group ids; pass one for each")
        if time_at_least is not None and now_s < time_at_least:
            raise ValueError(
                "time_at_least is in the future; was the clock of the machine set back?"
            )
        if group_ids is None:
            known = self._get(keys)
            group_ids = [known[key].group if key in known else None for key in keys]
        rows = {
            key: json.dumps({"group": group, "updated_s": now_s}).encode()
            for key, group in zip(keys, group_ids, strict=True)
        }
        self._packets.put_values(self.namespace, _COLLECTION, rows)

    def exists(self, keys: Sequence[str]) -> list[bool]:
        """Say of each key whether it has a record, and its document is whole in the store."""
        known = self._get(keys)
        packets = self._packets
        return [key in known and is_whole(packets, self.namespace, key) for key in keys]

    def list_keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Return keys updated before and after these times, of these groups, in order."""
        return list(islice(self._listed(before, after, group_ids), limit))

    def delete_keys(self, keys: Sequence[str]) -> None:
        """Forget records; documents stay."""
        self._packets.delete_values(self.namespace, _COLLECTION, keys)

    async def acreate_schema(self) -> None:
        """As `create_schema`."""

    async def aget_time(self) -> float:
        """As `get_time`."""
        return self.get_time()

    async def aupdate(
        self,
        keys: Sequence[str],
        *,
        group_ids: Sequence[str | None] | None = None,
        time_at_least: float | None = None,
    ) -> None:
        """As `update`, on a thread."""
        await run_in_executor(
            None, self.update, keys, group_ids=group_ids, time_at_least=time_at_least
        )

    async def aexists(self, keys: Sequence[str]) -> list[bool]:
        """As `exists`, on a thread."""
        return await run_in_executor(None, self.exists, keys)

    async def alist_keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """As `list_keys`, on a thread."""
        return await run_in_executor(
            None, self.list_keys, before=before, after=after, group_ids=group_ids, limit=limit
        )

    async def adelete_keys(self, keys: Sequence[str]) -> None:
        """As `delete_keys`, on a thread."""
        await run_in_executor(None, self.delete_keys, keys)

    def _get(self, keys: Sequence[str]) -> dict[str, _Record]:
        rows = self._packets.get_values(self.namespace, _COLLECTION, keys)
        return {key: _record(row) for key, row in rows.items()}

    def _listed(
        self, before: float | None, after: float | None, group_ids: Sequence[str] | None
    ) -> Iterator[str]:
        for key, row in self._packets.iter_values(self.namespace, _COLLECTION):
            record = _record(row)
            is_in_time = (before is None or record.updated_s < before) and (
                after is None or record.updated_s > after
            )
            if is_in_time and (group_ids is None or record.group in group_ids):
                yield key


def _record(row: bytes) -> _Record:
    values: dict[str, Any] = json.loads(row)
    return _Record(values["group"], values["updated_s"])
