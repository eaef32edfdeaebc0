"""What an import files, keeps, and refuses."""

import dataclasses

import pytest

from kvpacket_store.bundle import read_bundle, write_bundle
from kvpacket_store.errors import (
    StoreFullError,
)
from kvpacket_store.store.synthetic import make_record, make_write


def test_a_second_time_changes_nothing(target, bundle_path, imported, counts):
    assert counts(imported(target, bundle_path)) == (3, 0, 0, 0)
    generation = target.generation("n")
    report = imported(target, bundle_path)
    assert counts(report) == (0, 0, 3, 0)
    assert (report.packets_added, report.packets_reused) == (0, 0)
    assert target.generation("n") == generation


def test_namespaces_do_not_see_each_other(target, bundle_path, imported):
    imported(target, bundle_path, "n")
    report = imported(target, bundle_path, "m")
    assert (report.added, report.packets_added) == (3, 4)
    target.delete_document("n", "a/b.md")
    assert target.has_document("m", "a/b.md")
    assert target.check(deep=True) == []


def test_a_forged_record_never_gets_in(target, bundle_path, reseal, imported, counts):
    forged = make_record("r0").packet_key

    def change(members):
        members[f"packets/{forged}.kvr"] = b"x" * 50

    report = imported(target, reseal(bundle_path, change))
    assert counts(report) == (2, 0, 0, 1)
    assert report.errors[0].id == "a/b.md"
    assert "forged" in report.errors[0].error
    assert not target.has_packet("n", forged)
    assert not target.has_document("n", "a/b.md")
    assert target.check(deep=True) == []


def test_a_forged_record_of_a_long_document_leaves_no_staged_packet(
    target, bundle_path, reseal, monkeypatch, imported, counts
):
    monkeypatch.setattr("kvpacket_store.bundle.importer._GROUP_BYTES", 60)
    forged = make_record("r1").packet_key

    def change(members):
        members[f"packets/{forged}.kvr"] = b"x" * 51

    report = imported(target, reseal(bundle_path, change))
    assert counts(report) == (1, 0, 0, 2)
    assert target.gc(grace_s=0).deleted_packets == 0
    assert target.stats("n").packets == 0


def test_long_documents_are_staged(target, source, bundle_path, monkeypatch, imported):
    monkeypatch.setattr("kvpacket_store.bundle.importer._GROUP_BYTES", 60)
    report = imported(target, bundle_path)
    assert (report.added, report.packets_added, report.packets_reused) == (3, 4, 1)
    assert target.gc(grace_s=0).deleted_packets == 0
    assert target.check(deep=True) == []


def test_many_documents_in_several_commits(
    new_packet_store, target, tmp_path, monkeypatch, imported
):
    monkeypatch.setattr("kvpacket_store.bundle.importer._GROUP_DOCUMENTS", 3)
    source = new_packet_store("source.kvps")
    records = [make_record(f"r{i}", 40) for i in range(5)]
    source.put_documents("n", [make_write(f"d{i}", [records[i % 5]]) for i in range(11)])
    write_bundle(source, tmp_path / "x", namespace="n")
    report = imported(target, tmp_path / "x")
    assert (report.added, report.packets_added, report.packets_reused) == (11, 5, 6)
    assert target.count("n") == 11


def test_changed_documents_are_updated(source, target, bundle_path, tmp_path, imported, counts):
    imported(target, bundle_path)
    source.put_documents("n", [make_write("a/b.md", [make_record("r1", 51), make_record("new")])])
    source.update_metadata("n", "empty", {"version": 9}, "metadata 9")
    write_bundle(source, tmp_path / "y", namespace="n")
    report = imported(target, tmp_path / "y")
    assert counts(report) == (0, 2, 1, 0)
    assert (report.packets_added, report.packets_reused) == (1, 1)
    assert target.get_document("n", "empty").metadata == {"version": 9}
    assert not target.has_packet("n", make_record("r0").packet_key)
    assert target.check(deep=True) == []


def test_documents_that_swap_packets(new_packet_store, target, tmp_path, imported, counts):
    """Each update lets go of what the other one needs."""
    source = new_packet_store("source.kvps")
    one, two = make_record("one"), make_record("two")
    target.put_documents("n", [make_write("a", [one]), make_write("b", [two])])
    source.put_documents("n", [make_write("a", [two]), make_write("b", [one])])
    write_bundle(source, tmp_path / "x", namespace="n")
    assert counts(imported(target, tmp_path / "x")) == (0, 2, 0, 0)
    assert target.check(deep=True) == []
    assert target.read_record("n", one.packet_key) == one.record


def without(*names):
    def change(members):
        for name in names:
            del members[name]

    return change


def test_packets_that_did_not_travel(target, bundle_path, reseal, imported, counts):
    record = make_record("r0", 50)
    reseal(bundle_path, without(f"packets/{record.packet_key}.kvr"))
    report = imported(target, bundle_path)
    assert counts(report) == (2, 0, 0, 1)
    assert report.errors[0].id == "a/b.md"
    assert report.errors[0].error.startswith("prefill needed: 1 of its packets")
    target.stage_packets("n", {record.packet_key: record})  # as the caller may
    assert counts(imported(target, bundle_path)) == (1, 0, 2, 0)


def test_a_packet_of_unknown_tokens_did_not_travel(target, bundle_path, reseal, imported):
    key = make_record("r0").packet_key
    reseal(bundle_path, without(f"packets/{key}.kvr", f"packets/{key}.json"))
    assert imported(target, bundle_path).errors[0].error.startswith("prefill needed")


def test_lost_packets_come_back(target, bundle_path, imported, counts):
    imported(target, bundle_path)
    record = make_record("r0", 50)
    target._environment.write(lambda tx: lose(tx, record.packet_key))
    assert not target.has_packet("n", record.packet_key)
    report = imported(target, bundle_path)
    assert counts(report) == (0, 1, 2, 0)
    assert report.packets_added == 1
    assert target.check(deep=True) == []


def lose(tx, packet_key):
    from kvpacket_store.store.schema import Table, chunk_key, packet_row_key

    tx.delete(Table.CHUNKS, chunk_key(packet_row_key(1, packet_key), 0))


def test_a_damaged_document_is_replaced(target, bundle_path, imported, counts):
    from kvpacket_store.store.schema import Table, document_key

    imported(target, bundle_path)
    target._environment.write(
        lambda tx: tx.put(Table.DOCUMENTS, document_key(1, "empty"), b"x" * 60)
    )
    assert counts(imported(target, bundle_path)) == (0, 1, 2, 0)


def test_another_packet_under_the_same_key_is_not_taken_for_it(
    target, bundle_path, imported, counts
):
    """A collision of keys: token ids are compared."""
    mine = dataclasses.replace(make_record("r0", 50), token_ids=(1, 2, 3))
    target.put_documents("n", [make_write("mine", [mine])])
    report = imported(target, bundle_path)
    assert counts(report) == (2, 0, 0, 1)
    assert "other tokens" in report.errors[0].error
    assert target.get_manifest("n", mine.packet_key).token_ids == (1, 2, 3)


def test_a_damaged_member_costs_its_document_only(target, bundle_path, imported, counts):
    content = bundle_path.read_bytes()
    at = content.index(b"empty 0")
    bundle_path.write_bytes(content[:at] + b"X" + content[at + 1 :])
    report = imported(target, bundle_path)
    assert counts(report) == (2, 0, 0, 1)
    assert report.errors[0].id == "documents/00000001.json"
    assert "damaged" in report.errors[0].error


def test_two_documents_of_one_id(target, bundle_path, reseal, imported, counts):
    def change(members):
        for kind in ("json", "txt"):
            members[f"documents/00000003.{kind}"] = members[f"documents/00000001.{kind}"]

    report = imported(target, reseal(bundle_path, change))
    assert counts(report) == (3, 0, 0, 1)
    assert "earlier document" in report.errors[0].error


def test_a_store_that_is_full_keeps_what_it_took(new_packet_store, tmp_path, imported):
    source = new_packet_store("source.kvps")
    records = [make_record(f"r{i}", 200_000) for i in range(10)]
    source.put_documents("n", [make_write(f"d{i}", [records[i]]) for i in range(10)])
    write_bundle(source, tmp_path / "x", namespace="n")
    capped = new_packet_store("capped.kvps", max_bytes=1 << 20)
    with pytest.raises(StoreFullError):
        imported(capped, tmp_path / "x")
    assert 0 < capped.count("n") < 10
    assert capped.check(deep=True) == []


def evict(store, packet_key):
    """Have a packet evicted as a store at its cap does."""
    from kvpacket_store.store.packets import evict_layers
    from kvpacket_store.store.schema import packet_row_key

    store._environment.write(lambda tx: evict_layers(tx, packet_row_key(1, packet_key)))
    assert store.get_manifest("n", packet_key).is_evicted


def test_evicted_packets_stay_behind_and_come_back(
    source, target, bundle_path, tmp_path, imported, counts
):
    record = make_record("r0", 50)
    evict(source, record.packet_key)
    report = write_bundle(source, tmp_path / "y", namespace="n")
    assert (report.packets, report.missing_packets) == (3, 1)
    with read_bundle(tmp_path / "y") as bundle:
        assert bundle.document(0)[1].token_ids(record.packet_key) == record.token_ids
    assert imported(target, tmp_path / "y").errors[0].error.startswith("prefill needed")
    assert counts(imported(source, bundle_path)) == (0, 1, 2, 0)
    assert source.read_record("n", record.packet_key) == record.record


def test_a_packet_that_the_target_has_evicted_need_not_travel(
    target, bundle_path, reseal, imported, counts
):
    record = make_record("r0", 50)
    target.put_documents("n", [make_write("mine", [record])])
    evict(target, record.packet_key)
    reseal(bundle_path, without(f"packets/{record.packet_key}.kvr"))
    assert counts(imported(target, bundle_path)) == (3, 0, 0, 0)
    assert target.get_manifest("n", record.packet_key).is_evicted
