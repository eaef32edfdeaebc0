"""A store of each format that was ever released opens, and holds what was put into it."""

import io
import runpy
import tarfile
from pathlib import Path

import pytest
import zstandard

from kvpacket_store.errors import UnsupportedFormatError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.meta import FORMAT_VERSION
from kvpacket_store.store.rows import json_bytes, pack, unpack_json
from kvpacket_store.store.schema import META_STORE, Table

pytestmark = pytest.mark.golden
HERE = Path(__file__).parent
MADE = runpy.run_path(str(HERE / "make_store.py"), run_name="golden")
STORES = sorted((HERE / "store").glob("v*.tar.zst"))


def unpacked(archive, folder):
    plain = zstandard.ZstdDecompressor().decompress(archive.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(plain)) as members:
        members.extractall(folder, filter="data")
    return folder / "golden.kvps"


def test_there_is_a_store_of_this_format():
    assert f"v{FORMAT_VERSION}.tar.zst" in [archive.name for archive in STORES]


@pytest.mark.parametrize("archive", STORES, ids=lambda archive: archive.name)
def test_a_store_of_an_earlier_release_holds_what_was_put(archive, tmp_path):
    with PacketStore.open(unpacked(archive, tmp_path)) as store:
        assert store.check(deep=True) == []
        found = {}
        for namespace in store.namespaces():
            for document in store.list_documents(namespace)[0]:
                found[document.id] = (namespace, list(document.packet_keys))
                assert store.document_text(namespace, document.id).startswith(document.id)
                assert store.has_embeddings(namespace, document)
                is_pinned = (namespace, document.id) == MADE["PINNED"]
                assert document.is_pinned == is_pinned
        assert found == {
            document: (namespace, [MADE["record"](name).packet_key for name in names])
            for document, (namespace, names) in MADE["DOCUMENTS"].items()
        }
        for namespace, names in MADE["DOCUMENTS"].values():
            for record in map(MADE["record"], names):
                read = store.read_packet(namespace, record.packet_key, record.token_ids)
                assert (read.record, read.enhancement) == (record.record, record.enhancement)
        header = MADE["record"]("header")
        assert store.read_shared(header.packet_key) == header.record
        assert store.stats().packets == 8  # seven of documents, one staged


@pytest.mark.parametrize("archive", STORES, ids=lambda archive: archive.name)
def test_a_store_of_an_earlier_release_can_be_written(archive, tmp_path):
    with PacketStore.open(unpacked(archive, tmp_path)) as store:
        store.delete_document("default", "shares")
        store.gc(grace_s=0)
        MADE["fill"](store)
        store.compact()
        assert store.check(deep=True) == []


def test_a_later_format_is_refused_and_left_alone(tmp_path, behind_its_back):
    path = unpacked(HERE / "store" / f"v{FORMAT_VERSION}.tar.zst", tmp_path)

    def make_later(txn, tables):
        meta = unpack_json(bytes(txn.get(META_STORE, db=tables[Table.META])), "meta")
        later = pack(json_bytes(meta | {"format_version": FORMAT_VERSION + 1, "moon": "full"}))
        txn.put(META_STORE, later, db=tables[Table.META])

    behind_its_back(path, make_later)
    before = (path / "data.mdb").read_bytes()
    with pytest.raises(UnsupportedFormatError, match="upgrade kvpacket-store"):
        PacketStore.open(path)
    assert (path / "data.mdb").read_bytes() == before
