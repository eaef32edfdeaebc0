"""What a store knows of the quality of its model and adapter: one report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.store.environment import Environment
from kvpacket_store.store.rows import json_bytes, pack, unpack_json
from kvpacket_store.store.schema import META_QUALITY, Table
from kvpacket_store.store.transaction import Transaction
from kvpacket_store.store.writer import Writer

__all__ = ["QualityShelf"]


class QualityShelf:
    """The last report that was recorded. A part of `PacketStore`."""

    _environment: Environment
    _writer: Writer

    def put_quality(self, report: Mapping[str, Any]) -> None:
        """Keep a small report, in the place of the one before.

        Raises
        ------
        ReadOnlyError
            The store is open for reading alone.
        """
        row = pack(json_bytes(dict(report)))

        def action(tx: Transaction) -> None:
            tx.put(Table.META, META_QUALITY, row)

        self._writer.write(action, frees_space=True)

    def get_quality(self) -> dict[str, Any] | None:
        """Return the report, or None where none was recorded, or it is damaged."""
        with self._environment.read() as tx:
            row = tx.get(Table.META, META_QUALITY)
            if row is None:
                return None
            try:
                return dict(unpack_json(row, "the quality report"))
            except CorruptRecordError:
                return None
