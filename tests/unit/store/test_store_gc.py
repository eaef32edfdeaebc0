import pytest

from kvpacket_store.errors import NotFoundError, UsageError
from kvpacket_store.store import PacketStore, garbage, space_shelf, usage, writer
from kvpacket_store.store.schema import (
    Table,
    chunk_key,
    document_key,
    embedding_key,
    packet_row_key,
)
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

A, B = make_record("a", 300_000), make_record("b", 3_000)
HOUR_MS = 3_600_000
NOT_NUMBERED = {Table.META, Table.NAMESPACES}


@pytest.fixture
def later(monkeypatch):
    """A function: let so many milliseconds pass."""
    passed = [0]
    really_now = usage.now_ms

    def wait(ms):
        passed[0] += ms

    for module in (usage, writer, space_shelf):
        monkeypatch.setattr(module, "now_ms", lambda: really_now() + passed[0])
    return wait


def test_gc_of_a_sound_store_changes_nothing(store):
    store.put_documents("n", [make_write("d", [A, B])])
    store.put_shared(make_record("header"))
    store.pin_document("n", "d")
    looked_at = []
    report = store.gc(progress=looked_at.append)
    assert (report.deleted_packets, report.evicted_packets, report.deleted_rows) == (0, 0, 0)
    assert report.before_bytes == report.after_bytes == store.stats().live_bytes
    assert report.file_bytes == store.stats().file_bytes
    assert looked_at[-1] > 8
    assert store.check(deep=True) == []


def test_gc_deletes_staged_packets_that_are_old(store, later):
    store.stage_packets("n", {"": A})
    store.put_documents("n", [make_write("d", [B])])
    assert store.gc().deleted_packets == 0
    later(HOUR_MS + 1000)
    store.stage_packets("n", {"": make_record("young")})
    report = store.gc()
    assert report.deleted_packets == 1
    assert report.before_bytes - report.after_bytes > 300_000
    assert not store.has_packet("n", A.packet_key)
    assert store.has_packet("n", make_record("young").packet_key)
    assert store.read_record("n", B.packet_key) == B.record
    later(1)
    assert store.gc(grace_s=0).deleted_packets == 1
    assert store.check(deep=True) == []


def test_gc_evicts_what_has_outlived_its_time(tmp_path, later):
    meta = make_meta(packet_ttl_s=3600)
    with PacketStore.create(tmp_path / "s.kvps", meta) as store:
        store.put_documents("n", [make_write("d", [A]), make_write("pinned", [B])])
        store.pin_document("n", "pinned")
        later(HOUR_MS + 1000)
        store.put_documents("n", [make_write("e", [make_record("young")])])
        report = store.gc()
        assert (report.deleted_packets, report.evicted_packets) == (0, 1)
        assert store.get_manifest("n", A.packet_key).is_evicted
        assert store.has_packet("n", B.packet_key)
        assert store.check(deep=True) == []
    with PacketStore.open(tmp_path / "s.kvps") as store:
        assert store.meta.packet_ttl_s == 3600


def test_a_time_to_live_is_a_second_or_more():
    with pytest.raises(UsageError, match="packet_ttl_s"):
        make_meta(packet_ttl_s=0)


def test_gc_deletes_rows_that_belong_to_nothing(store, behind_its_back, monkeypatch):
    monkeypatch.setattr(garbage, "_MAX_ROWS", 2)
    store.put_documents("n", [make_write("d", [A, B]), make_write("e", [B])])
    gone = packet_row_key(1, make_record("gone").packet_key)
    ghost = document_key(1, "ghost")
    store.close()
    rows = [
        (Table.PINS, ghost),
        *((Table.EMBEDDINGS, embedding_key(ghost, index)) for index in range(3)),
        (Table.EMBEDDINGS, embedding_key(document_key(1, "d"), 7)),
        (Table.USAGE, gone),
        *((Table.CHUNKS, chunk_key(gone, index)) for index in range(3)),
        (Table.CHUNKS, chunk_key(packet_row_key(0, make_record("gone").packet_key), 0)),
        (Table.DOCUMENTS, bytes(4) + b"d"),
        *((table, bytes(3)) for table in Table if table not in NOT_NUMBERED),
        *((table, bytes(3) + b"\x01") for table in Table if table not in NOT_NUMBERED),
        (Table.EMBEDDINGS, bytes(3) + b"\x01abcd"),
        (Table.CHUNKS, packet_row_key(1, A.packet_key)),
    ]

    def spoil(txn, tables):
        for table, key in rows:
            txn.put(key, b"x", db=tables[table])
        for name in (b"ghost", b"e"):
            txn.put(packet_row_key(1, A.packet_key), name, db=tables[Table.REFERENCES])

    behind_its_back(store.path, spoil)
    with PacketStore.open(store.path) as opened:
        assert opened.check() != []
        assert opened.gc().deleted_rows == len(rows) + 2
        assert opened.check(deep=True) == []
        assert opened.read_record("n", A.packet_key) == A.record
        assert opened.gc().deleted_rows == 0


def test_a_spoilt_key_never_stands_for_all_that_it_begins(store, behind_its_back):
    store.put_documents("n", [make_write("d", [A, B])])
    store.put_shared(make_record("header"))
    store.close()
    keys = [bytes(4), bytes(3) + b"\x01", packet_row_key(1, A.packet_key)[:20]]

    def spoil(txn, tables):
        for key in keys:
            txn.put(key, b"x", db=tables[Table.MANIFESTS])

    behind_its_back(store.path, spoil)
    with PacketStore.open(store.path) as opened:
        found = [damage.reason for damage in opened.check()]
        assert "3 rows of table manifests belong to nothing" in found
        opened.mend()
        opened.gc(grace_s=0)
        assert opened.read_record("n", A.packet_key) == A.record
        assert opened.has_shared(make_record("header").packet_key)
        assert opened.check(deep=True) == []


def test_gc_gives_a_packet_its_place_among_the_evictable_again(store, behind_its_back):
    store.put_documents("n", [make_write("d", [A])])
    store.close()
    key = packet_row_key(1, A.packet_key)
    behind_its_back(store.path, lambda txn, tables: txn.delete(key, db=tables[Table.USAGE]))
    with PacketStore.open(store.path) as opened:
        opened.gc()
        with opened._environment.read() as tx:
            assert usage.parse_usage(tx.get(Table.USAGE, key) or b"")[1] == 300_000


def test_gc_works_in_a_full_store(tmp_path, later):
    with PacketStore.create(tmp_path / "s.kvps", make_meta(max_bytes=4 << 20)) as store:
        num_staged = 0
        while not store.stats().evicted_packets:
            store.stage_packets("n", {"": make_record(f"{num_staged}", 5_000)})
            num_staged += 1
        later(HOUR_MS + 1000)
        assert store.gc().deleted_packets == num_staged
        assert store.stats().packets == store.stats().evicted_packets == 0
        assert store.check(deep=True) == []


def test_a_damaged_document_is_listed_as_damaged(store, behind_its_back):
    store.put_documents("n", [make_write(name, [B]) for name in "abcd"])
    store.close()

    def spoil(txn, tables):
        for name in "bd":
            txn.put(document_key(1, name), b"spoilt", db=tables[Table.DOCUMENTS])

    behind_its_back(store.path, spoil)
    with PacketStore.open(store.path) as opened:
        documents, following = opened.list_documents("n")
        assert [document.id for document in documents] == ["a", "c"]
        assert following is None
        for namespace in ("n", None):
            first = opened.document_page(namespace, 1)
            second = opened.document_page(namespace, 1, first.following)
            third = opened.document_page(namespace, 1, second.following)
            pages = [(tuple(d.id for d in p.documents), p.damaged) for p in (first, second, third)]
            assert pages == [
                (("a",), ()),
                (("c",), (("n", "b"),)),
                ((), (("n", "d"),)),
            ]
            assert third.following is None
        with pytest.raises(NotFoundError):
            opened.get_document("n", "absent")
