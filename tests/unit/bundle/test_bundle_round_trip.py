"""From one store to another, bit for bit."""

import zipfile

import pytest

from kvpacket_store.bundle import import_bundle, read_bundle, write_bundle
from kvpacket_store.errors import BundleError, NotFoundError, StoreFullError, UsageError
from kvpacket_store.store.schema import Table, chunk_key, document_key, packet_row_key
from kvpacket_store.store.synthetic import make_record, make_write


def accept(record):
    """A check that takes everything."""


def everything(store, namespace):
    """All that a namespace holds, in plain values."""
    documents = {}
    for manifest in store.list_documents(namespace)[0]:
        packets = {
            key: (
                store.read_packet(namespace, key)[1:],
                described(store.get_manifest(namespace, key)),
            )
            for key in manifest.packet_keys
        }
        text = store.document_text(namespace, manifest.id)
        documents[manifest.id] = (manifest.to_json(), text, packets)
    return documents, list(store.iter_embeddings(namespace))


def described(manifest):
    fields = ("token_ids", "positions", "raw_bytes", "kv_digest", "engine", "refcount")
    return {field: getattr(manifest, field) for field in fields}


def test_what_arrives_is_what_was_sent(source, new_packet_store, bundle_path):
    target = new_packet_store("target.kvps")
    with read_bundle(bundle_path) as bundle:
        report = import_bundle(target, bundle, namespace="elsewhere", check=accept)
    assert report.to_dict() == {
        "added": 3,
        "updated": 0,
        "unchanged": 0,
        "packets_added": 4,
        "packets_reused": 1,
        "missing_embeddings": 0,
        "errors": [],
    }
    assert everything(target, "elsewhere") == everything(source, "n")
    assert target.check(deep=True) == []
    assert target.namespaces() == ["elsewhere"]


def test_base_and_enhancement_travel_as_members_of_their_own(bundle_path, imported, target):
    record = make_record("r3", 53, enhancement_bytes=70)
    with zipfile.ZipFile(bundle_path) as members:
        assert members.read(f"packets/{record.packet_key}.kvr") == record.record
        assert members.read(f"packets/{record.packet_key}.kve") == record.enhancement
    with read_bundle(bundle_path) as bundle:
        [packets] = [
            packets for _, packets, _ in bundle.documents() if record.packet_key in packets
        ]
        assert packets[record.packet_key] == record
        assert packets.record_bytes(record.packet_key) == record.stored_bytes == 123
        assert bundle.num_packets == 4
    imported(target, bundle_path)
    assert target.read_packet("n", record.packet_key).enhancement == record.enhancement


@pytest.mark.parametrize("enhancement", [None, b"of another packet"])
def test_an_enhancement_that_is_not_the_packets_is_refused(
    target, bundle_path, reseal, imported, counts, enhancement
):
    name = f"packets/{make_record('r3').packet_key}.kve"

    def change(members):
        if enhancement is None:
            members.pop(name.replace(".kve", ".kvr"))
        else:
            members[name] = enhancement

    reseal(bundle_path, change)
    if enhancement is None:
        with pytest.raises(BundleError, match="completes nothing"):
            read_bundle(bundle_path)
    else:
        assert counts(imported(target, bundle_path)) == (2, 0, 0, 1)
    assert target.check(deep=True) == []


def test_the_same_documents_give_the_same_bytes(source, new_packet_store, bundle_path, tmp_path):
    target = new_packet_store("target.kvps")
    with read_bundle(bundle_path) as bundle:
        import_bundle(target, bundle, namespace="m", check=accept)
    again, chosen = tmp_path / "again", tmp_path / "chosen"
    write_bundle(target, again, namespace="m")
    write_bundle(source, chosen, namespace="n", document_ids=["é \ud800", "empty", "a/b.md"])
    assert again.read_bytes() == chosen.read_bytes() == bundle_path.read_bytes()


def test_the_report_and_the_bundle_say_what_is_inside(source, tmp_path):
    seen = []
    path = tmp_path / "x"
    report = write_bundle(
        source, path, namespace="n", progress=lambda done, total: seen.append((done, total))
    )
    assert (report.documents, report.packets) == (3, 4)
    assert (report.missing_packets, report.missing_embeddings) == (0, 0)
    assert report.bytes == path.stat().st_size
    assert seen == [(1, 3), (2, 3), (3, 3)]
    with read_bundle(path) as bundle:
        assert (bundle.num_documents, bundle.num_packets) == (3, 4)
        ids = [manifest.id for manifest, _, _ in bundle.documents()]
    assert ids == ["a/b.md", "empty", "é \ud800"]


def test_a_bundle_is_a_zip_file_that_others_open(bundle_path):
    with zipfile.ZipFile(bundle_path) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[0] == "bundle.json"
    assert bundle_path.stat().st_mode & 0o777 == 0o600


def test_records_are_read_when_they_are_asked_for(bundle_path):
    with read_bundle(bundle_path) as bundle:
        _, packets, embeddings = next(bundle.documents())
        key = make_record("r0").packet_key
        assert dict(packets).keys() == {key, make_record("r1").packet_key}
        assert packets[key].record == make_record("r0", 50).record
        assert packets.record_bytes(key) == 50
        assert len(embeddings) == len(packets) == 2
        with pytest.raises(KeyError):
            packets["0" * 64]
    with pytest.raises(UsageError, match="closed"):
        packets[key]


def test_a_namespace_of_nothing_is_a_bundle_of_nothing(source, new_packet_store, tmp_path):
    write_bundle(source, tmp_path / "x", namespace="nobody")
    with read_bundle(tmp_path / "x") as bundle:
        target = new_packet_store("target.kvps")
        report = import_bundle(target, bundle, namespace="n", check=accept)
    assert report.added == 0
    assert target.namespaces() == []


def test_some_documents_only(source, tmp_path):
    report = write_bundle(source, tmp_path / "x", namespace="n", document_ids=["a/b.md"])
    assert (report.documents, report.packets) == (1, 2)
    with pytest.raises(NotFoundError, match="nosuch"):
        write_bundle(source, tmp_path / "y", namespace="n", document_ids=["a/b.md", "nosuch"])
    assert not (tmp_path / "y").exists()


def test_a_file_is_overwritten_only_when_asked(source, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"mine")
    with pytest.raises(UsageError, match="is there already"):
        write_bundle(source, path, namespace="n")
    assert path.read_bytes() == b"mine"
    write_bundle(source, path, namespace="n", overwrite=True)
    with read_bundle(path) as bundle:
        assert bundle.num_documents == 3
    assert [p.name for p in tmp_path.iterdir() if "tmp" in p.name] == []


def test_a_file_that_came_meanwhile_is_not_overwritten(source, tmp_path):
    path = tmp_path / "x"
    with pytest.raises(UsageError, match="is there already"):
        write_bundle(source, path, namespace="n", progress=lambda *_: path.write_bytes(b"mine"))
    assert path.read_bytes() == b"mine"
    assert [p.name for p in tmp_path.iterdir() if "tmp" in p.name] == []


def test_a_folder_that_is_not_there(source, tmp_path):
    with pytest.raises(UsageError, match="cannot be written"):
        write_bundle(source, tmp_path / "no" / "x", namespace="n")


def test_a_full_disk_leaves_nothing(source, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kvpacket_store.bundle.target.os.fsync", full)
    with pytest.raises(StoreFullError, match="no room"):
        write_bundle(source, tmp_path / "x", namespace="n")
    assert [p.name for p in tmp_path.iterdir()] == ["source.kvps"]


def spoil(store, table, key):
    def action(tx):
        value = bytearray(tx.get(table, key))
        value[-1] ^= 1
        tx.put(table, key, bytes(value))

    store._environment.write(action)


def test_damaged_packets_stay_behind_and_are_counted(source, tmp_path):
    record = make_record("r0")
    spoil(source, Table.CHUNKS, chunk_key(packet_row_key(1, record.packet_key), 0))
    other = make_record("r2")
    spoil(source, Table.MANIFESTS, packet_row_key(1, other.packet_key))
    report = write_bundle(source, tmp_path / "x", namespace="n")
    assert (report.packets, report.missing_packets) == (2, 2)
    with read_bundle(tmp_path / "x") as bundle:
        first, _, third = bundle.documents()
    assert first[0].text.startswith("a/b.md 0 ")
    assert record.packet_key not in first[1]
    with read_bundle(tmp_path / "x") as bundle:
        first, _, third = bundle.documents()
        assert first[1].token_ids(record.packet_key) == record.token_ids
        assert third[1].token_ids(other.packet_key) is None


@pytest.mark.parametrize("table", [Table.DOCUMENTS, Table.TEXTS])
def test_damaged_documents_are_named(source, tmp_path, table):
    spoil(source, table, document_key(1, "a/b.md"))
    for ids in (None, ["a/b.md", "empty"]):
        with pytest.raises(BundleError, match=r"damaged: 'a/b\.md'; ingest"):
            write_bundle(source, tmp_path / "x", namespace="n", document_ids=ids)
        assert not (tmp_path / "x").exists()


def test_a_document_without_all_its_embeddings_travels_without(source, new_packet_store, tmp_path):
    spoil(source, Table.EMBEDDINGS, document_key(1, "a/b.md") + bytes(4))
    assert write_bundle(source, tmp_path / "x", namespace="n").missing_embeddings == 1
    target = new_packet_store("target.kvps")
    with read_bundle(tmp_path / "x") as bundle:
        report = import_bundle(target, bundle, namespace="n", check=accept)
    assert (report.added, report.missing_embeddings) == (3, 1)
    assert not target.has_embeddings("n", target.get_document("n", "a/b.md"))


def test_a_document_that_changes_meanwhile_is_read_again(source, monkeypatch, tmp_path):
    true_text = source.document_text
    changed = []

    def text(namespace, document_id):
        if not changed:
            changed.append(document_id)
            source.put_documents("n", [make_write("a/b.md", [make_record("new", 30)], version=2)])
        return true_text(namespace, document_id)

    monkeypatch.setattr(source, "document_text", text)
    write_bundle(source, tmp_path / "x", namespace="n", document_ids=["a/b.md"])
    with read_bundle(tmp_path / "x") as bundle:
        [(manifest, packets, _)] = bundle.documents()
        assert manifest.metadata == {"version": 2}
        assert manifest.text.startswith("a/b.md 2 ")
        assert len(packets) == 1
