from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from kvpacket_store.store import PacketStore
from kvpacket_store.store.schema import Table
from kvpacket_store.store.synthetic import make_meta


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PacketStore]:
    with PacketStore.create(tmp_path / "s.kvps", make_meta(), map_bytes=1 << 20) as opened:
        yield opened


@pytest.fixture
def behind_its_back():
    """A function: change a store's tables without the store. Its handles must be closed."""

    def change(path: Path, action):
        with (
            lmdb.open(str(path), map_size=1 << 30, max_dbs=32) as env,
            env.begin(write=True) as txn,
        ):
            tables = {table: env.open_db(table.encode(), txn, create=False) for table in Table}
            return action(txn, tables)

    return change
