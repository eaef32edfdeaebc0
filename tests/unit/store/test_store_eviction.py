"""At the byte cap packets give way, the least recently used first; what is known of them stays."""

import contextlib
import dataclasses

import pytest

from kvpacket_store.errors import CapReachedError, NotFoundError, UsageError
from kvpacket_store.store import PacketStore, now_ms, usage
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

CAP_BYTES = 6 << 20
RECORD_BYTES = 300_000


@pytest.fixture
def clock(monkeypatch):
    """Time that stands still until it is moved."""

    class Clock:
        ms = 1_000_000

    moved = Clock()
    monkeypatch.setattr(usage, "now_ms", lambda: moved.ms)
    return moved


@pytest.fixture
def capped(tmp_path, clock):
    meta = make_meta(max_bytes=CAP_BYTES)
    with PacketStore.create(tmp_path / "s.kvps", meta, map_bytes=1 << 20) as store:
        yield store


def put(store, clock, name, num_bytes=RECORD_BYTES, **options):
    """Put a document of one packet, a second after the one before."""
    clock.ms += 1000
    record = make_record(name, num_bytes)
    store.put_documents("n", [make_write(name, [record])], **options)
    assert store.stats().file_bytes <= CAP_BYTES
    return record


def fill(store, clock, name="old"):
    """Put documents until the first is evicted; return all records."""
    records = []
    while not store.stats().evicted_packets:
        records.append(put(store, clock, f"{name} {len(records)}"))
    return records


def held(store, records):
    return [store.has_packet("n", record.packet_key) for record in records]


def test_a_full_store_evicts_what_was_used_least_recently(capped, clock):
    records = fill(capped, clock)
    num_evicted = capped.stats().evicted_packets
    assert held(capped, records) == [False] * num_evicted + [True] * (len(records) - num_evicted)
    sizes = capped.stats("n")
    assert sizes.packets == len(records) - num_evicted
    assert sizes.documents == len(records)
    assert sizes.tokens == 8 * sizes.packets
    assert capped.check(deep=True) == []


def test_an_evicted_packet_is_a_miss_that_says_why(capped, clock):
    record = fill(capped, clock)[0]
    assert not capped.has_packet("n", record.packet_key)
    with pytest.raises(NotFoundError, match="evicted"):
        capped.read_record("n", record.packet_key)
    with pytest.raises(NotFoundError, match="evicted"):
        capped.read_document("n", "old 0")
    manifest = capped.get_manifest("n", record.packet_key)
    assert manifest.is_evicted
    assert manifest.token_ids == record.token_ids
    assert manifest.kv_digest == record.kv_digest
    assert capped.document_text("n", "old 0").startswith("old 0")
    assert capped.has_embeddings("n", capped.get_document("n", "old 0"))


def test_an_evicted_packet_comes_back(capped, clock):
    records = fill(capped, clock)
    clock.ms += 1000
    capped.replace_record("n", records[0])
    assert capped.read_record("n", records[0].packet_key) == records[0].record
    assert not capped.get_manifest("n", records[0].packet_key).is_evicted
    capped.stage_packets("n", {"": records[1]})
    assert capped.read_record("n", records[1].packet_key) == records[1].record
    assert capped.check(deep=True) == []


def test_an_evicted_packet_keeps_its_tokens(capped, clock):
    record = fill(capped, clock)[0]
    other = dataclasses.replace(record, token_ids=(1, 2, 3))
    with pytest.raises(UsageError, match="other tokens"):
        capped.replace_record("n", other)
    with pytest.raises(UsageError, match="other tokens"):
        capped.stage_packets("n", {"": other})


def test_a_document_may_refer_to_an_evicted_packet(capped, clock):
    record = fill(capped, clock)[0]
    write = make_write("another", [record])
    capped.put_documents("n", [dataclasses.replace(write, records={})])
    capped.delete_document("n", "old 0")
    assert capped.get_manifest("n", record.packet_key).is_evicted
    capped.delete_document("n", "another")
    with pytest.raises(NotFoundError, match="no packet"):
        capped.get_manifest("n", record.packet_key)
    assert capped.check(deep=True) == []


def test_what_was_read_stays(capped, clock):
    records = [put(capped, clock, f"old {i}") for i in range(10)]
    clock.ms += 1000
    capped.touch("n", [records[0].packet_key, records[3].packet_key, "00" * 32])
    more = fill(capped, clock, "more")
    kept = held(capped, records)
    assert kept[0]
    assert kept[3]
    assert not kept[1]
    assert held(capped, more)[-1]


def test_notes_of_uses_are_kept_over_reopening(capped, clock):
    records = [put(capped, clock, f"old {i}") for i in range(10)]
    clock.ms += 1000
    capped.touch("n", [records[0].packet_key])
    capped.close()
    with PacketStore.open(capped.path) as store:
        fill(store, clock, "more")
        assert held(store, records[:2]) == [True, False]


def test_notes_are_written_when_they_are_many_or_old(capped, clock):
    record = put(capped, clock, "a")
    other = PacketStore.open(capped.path)

    def last_use():
        with other._environment.read() as tx:
            [(_, row)] = tx.scan(usage.Table.USAGE)
            return usage.parse_usage(row)[0]

    clock.ms += 1000
    capped.touch("n", [record.packet_key])
    assert last_use() == clock.ms - 1000
    for _ in range(10_000):
        capped._writer._notes.add("n", [record.packet_key])
    assert len(capped._writer._notes._notes) <= 4096
    capped.touch("n", [record.packet_key])
    assert last_use() == clock.ms
    capped.touch("n", [record.packet_key])
    clock.ms += 40_000
    capped.touch("n", [record.packet_key])
    assert last_use() == clock.ms
    other.close()


def test_packets_of_pinned_documents_are_never_evicted(capped, clock):
    pinned = put(capped, clock, "pinned")
    capped.pin_document("n", "pinned")
    assert capped.get_document("n", "pinned").is_pinned
    capped.update_metadata("n", "pinned", {"a": 1}, "h")
    put(capped, clock, "pinned")
    for turn in range(3):
        for i in range(30):
            put(capped, clock, f"{turn} {i}")
    assert held(capped, [pinned]) == [True]
    assert capped.get_document("n", "pinned").is_pinned
    assert [d.id for d in capped.list_documents("n", 200)[0] if d.is_pinned] == ["pinned"]
    capped.unpin_document("n", "pinned")
    assert not capped.get_document("n", "pinned").is_pinned
    fill_again = [put(capped, clock, f"again {i}") for i in range(30)]
    assert held(capped, [pinned, fill_again[-1]]) == [False, True]
    assert capped.check(deep=True) == []


def test_a_pin_does_not_keep_a_document_from_being_deleted(capped, clock):
    put(capped, clock, "d")
    capped.pin_document("n", "d")
    capped.delete_document("n", "d")
    put(capped, clock, "d")
    assert not capped.get_document("n", "d").is_pinned
    with pytest.raises(NotFoundError):
        capped.pin_document("n", "absent")
    with pytest.raises(NotFoundError):
        capped.unpin_document("absent", "d")
    assert capped.check(deep=True) == []


def test_an_ingest_does_not_evict_what_it_has_filed(capped, clock):
    before = [put(capped, clock, f"before {i}") for i in range(5)]
    clock.ms += 1000
    start_ms, filed = clock.ms, []
    with contextlib.suppress(CapReachedError):
        while len(filed) < 100:
            filed.append(put(capped, clock, f"mine {len(filed)}", keep_since_ms=start_ms))
    assert 10 < len(filed) < 100
    assert not any(held(capped, before))
    assert all(held(capped, filed))
    assert capped.check(deep=True) == []
    evicted = capped.stats().evicted_packets
    with pytest.raises(CapReachedError):
        capped.stage_packets("n", {"": make_record("more", 10**6)}, keep_since_ms=start_ms)
    assert capped.stats().evicted_packets == evicted
    capped.replace_record("n", before[0])
    assert held(capped, before[:1]) == [True]


def test_what_can_never_fit_evicts_nothing(capped, clock):
    put(capped, clock, "pinned", 3_000_000)
    capped.pin_document("n", "pinned")
    records = [put(capped, clock, f"old {i}") for i in range(3)]
    for num_bytes in (2 * CAP_BYTES, 4_000_000):
        with pytest.raises(CapReachedError, match="byte cap"):
            put(capped, clock, "large", num_bytes)
    assert all(held(capped, records))


def test_shared_packets_are_never_evicted(capped, clock):
    header = make_record("header", RECORD_BYTES)
    capped.put_shared(header)
    for i in range(60):
        put(capped, clock, f"{i}")
    assert capped.read_shared(header.packet_key) == header.record


def test_staged_packets_are_evicted_like_others(capped, clock):
    staged = make_record("staged", RECORD_BYTES)
    capped.stage_packets("n", {"": staged})
    fill(capped, clock)
    assert held(capped, [staged]) == [False]
    write = dataclasses.replace(make_write("d", [staged]), records={})
    capped.put_documents("n", [write])
    assert capped.get_manifest("n", staged.packet_key).refcount == 1


def test_room_in_small_pieces_is_put_together_by_compaction(capped, clock):
    """A chunk needs 32 pages side by side; between small packets there may be none."""
    small = [make_record(f"{i}", 9_000) for i in range(700)]
    for record in small:
        clock.ms += 1000
        capped.put_documents("n", [make_write(record.packet_key, [record])])
    large = make_record("large", 2_000_000)
    for _ in range(2):
        with contextlib.suppress(CapReachedError):
            capped.put_documents("n", [make_write("large", [large])])
            break
        capped.compact()
    assert capped.read_record("n", large.packet_key) == large.record
    assert capped.check(deep=True) == []


def test_now_is_in_milliseconds():
    assert 1_700_000_000_000 < now_ms() < 10_000_000_000_000
