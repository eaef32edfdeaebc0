"""What a handle has copied out of its store, by layer."""

import os
import threading

import pytest

from kvpacket_store.errors import CorruptRecordError, NotFoundError
from kvpacket_store.store import BytesRead, PacketStore
from kvpacket_store.store.schema import Table, packet_row_key
from kvpacket_store.store.synthetic import make_record, make_write

TWO = make_record("two", 200_000, enhancement_bytes=300_000)
ONE = make_record("one", 5000)


@pytest.fixture
def filled(store):
    store.put_documents("n", [make_write("d", (ONE, TWO))])
    return store


def read_enhancement(store):
    return store.read_enhancement("n", TWO.packet_key, kv_digest=TWO.kv_digest)


def test_nothing_is_read_before_it_is_asked_for(filled):
    filled.get_manifest("n", TWO.packet_key)
    filled.has_packet("n", TWO.packet_key)
    filled.check(deep=True)
    assert list(filled.iter_packets())
    assert filled.bytes_read == BytesRead()


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda store: store.read_base("n", TWO.packet_key), BytesRead(base=200_000)),
        (lambda store: store.read_record("n", TWO.packet_key), BytesRead(base=200_000)),
        (read_enhancement, BytesRead(enhancement=300_000)),
        (lambda store: store.read_packet("n", TWO.packet_key), BytesRead(200_000, 300_000)),
        (lambda store: store.read_base("n", ONE.packet_key), BytesRead(whole=5000)),
        (lambda store: store.read_packet("n", ONE.packet_key), BytesRead(whole=5000)),
        (lambda store: store.read_document("n", "d"), BytesRead(200_000, 300_000, 5000)),
        (lambda store: store.has_packet("n", ONE.packet_key, deep=True), BytesRead(whole=5000)),
    ],
)
def test_what_is_read_counts_by_layer_each_time(filled, read, expected):
    for times in (1, 2):
        read(filled)
        assert filled.bytes_read.to_dict() == {
            name: times * size for name, size in expected.to_dict().items()
        }


def test_shared_packets_count_as_whole(store):
    store.put_shared(ONE)
    store.read_shared(ONE.packet_key)
    assert store.bytes_read == BytesRead(whole=5000)


def test_a_miss_counts_nothing(filled):
    with pytest.raises(NotFoundError):
        filled.read_enhancement("n", TWO.packet_key, kv_digest="other")
    with pytest.raises(NotFoundError):
        filled.read_enhancement("n", ONE.packet_key, kv_digest=ONE.kv_digest)
    with pytest.raises(NotFoundError):
        filled.read_base("n", "0" * 64)
    assert filled.bytes_read == BytesRead()


def test_bytes_that_are_found_damaged_were_read(filled, behind_its_back):
    def spoil(txn, tables):
        key = packet_row_key(1, TWO.packet_key) + (2).to_bytes(4, "big")
        value = txn.get(key, db=tables[Table.CHUNKS])
        txn.put(key, bytes(len(value)), db=tables[Table.CHUNKS])

    filled.close()
    behind_its_back(filled.path, spoil)
    with PacketStore.open(filled.path) as store:
        with pytest.raises(CorruptRecordError):
            read_enhancement(store)
        assert store.bytes_read == BytesRead(enhancement=300_000)


def test_each_handle_counts_by_itself(filled):
    with PacketStore.open(filled.path) as other:
        read_enhancement(other)
        assert other.bytes_read == BytesRead(enhancement=300_000)
    assert filled.bytes_read == BytesRead()


def test_many_threads_lose_no_count(filled):
    def work():
        for _ in range(50):
            filled.read_base("n", ONE.packet_key)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert filled.bytes_read == BytesRead(whole=8 * 50 * 5000)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_counts_from_nothing_whoever_held_the_lock(filled):
    filled.read_base("n", ONE.packet_key)
    with filled._reads._counts().lock:
        child = os.fork()
        if child == 0:  # pragma: no cover - in another process
            filled.read_base("n", TWO.packet_key)
            os._exit(filled.bytes_read != BytesRead(base=200_000))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert filled.bytes_read == BytesRead(whole=5000)
