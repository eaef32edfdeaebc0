"""Ingest: what is new is prefilled, what is there costs a hash, what fails stops nobody else."""

import numpy as np
import pytest

from kvpacket_store.api import Store
from kvpacket_store.errors import DocumentError, LevelUnavailableError, NotFoundError, UsageError
from kvpacket_store.types import Document

DOCS = [
    Document(
        "rhine", "The Rhine rises in the Alps. It flows to the North Sea.", {"title": "Rhine"}
    ),
    Document("oxygen", "Oxygen is a gas. Plants give it off.", {"year": 1774}),
    Document("long", "\n\n".join(f"Paragraph {i} says something of its own." for i in range(60))),
]


@pytest.fixture
def store(new_store):
    return new_store(segment_tokens=128)


def test_the_second_ingest_of_the_same_documents_prefills_nothing(store, monkeypatch):
    first = store.ingest(DOCS)
    assert first.documents.to_dict() == {"added": 3, "updated": 0, "unchanged": 0, "failed": 0}
    assert first.packets.added == store.stats().packets > 10
    assert first.raw_bytes > first.stored_bytes > 0
    monkeypatch.setattr(store.prefiller, "segment", lambda ids: pytest.fail("prefilled again"))
    again = store.ingest(DOCS)
    assert again.documents.to_dict() == {"added": 0, "updated": 0, "unchanged": 3, "failed": 0}
    assert (again.packets.added, again.packets.reused) == (0, first.packets.added)


def test_new_metadata_alone_prefills_nothing(store, monkeypatch):
    store.ingest(DOCS)
    monkeypatch.setattr(store.prefiller, "segment", lambda ids: pytest.fail("prefilled again"))
    report = store.ingest([Document("oxygen", DOCS[1].text, {"year": 1775})])
    assert report.documents.updated == 1
    assert store.show("oxygen")["metadata"] == {"year": 1775}


def test_an_updated_document_keeps_the_packets_of_unchanged_segments(store):
    store.ingest(DOCS)
    before = [p["packet_key"] for p in store.show("long")["packets"]]
    report = store.ingest([Document("long", DOCS[2].text + "\n\nOne more paragraph at the end.")])
    after = [p["packet_key"] for p in store.show("long")["packets"]]
    assert report.documents.updated == 1
    assert report.packets.added <= 2
    assert after[:-2] == before[: len(after) - 2]


def test_equal_texts_share_packets_and_deleting_one_keeps_the_other(store):
    twin = Document("twin", DOCS[0].text, {"title": "Rhine"})
    report = store.ingest([DOCS[0], twin])
    assert (report.packets.added, report.packets.reused) == (1, 1)
    store.delete("rhine")
    assert store.packet("twin").token_ids
    store.delete("twin")
    assert store.stats().packets == 0


def test_a_bad_document_fails_alone(store):
    bad = [
        DocumentError("broken.pdf", "is encrypted"),
        Document("", "text"),
        Document("no-text", 5),
        Document("empty", "  \n "),
        Document("odd", "text", {"x": float("nan")}),
        Document("odder", "text", {"x": object()}),
        Document("surrogate\ud800", "text"),
    ]
    report = store.ingest([DOCS[0], *bad, DOCS[1]])
    assert report.documents.added == 2
    assert report.documents.failed == len(bad) == len(report.errors)
    assert "encrypted" in report.errors[0].error


def test_a_dry_run_counts_and_changes_nothing(store):
    report = store.ingest(DOCS, dry_run=True)
    assert report.documents.added == 3
    assert report.packets.added > 10
    assert store.list().documents == []
    assert store.stats().packets == 0


def test_a_packet_deleted_behind_the_manifests_back_is_made_again(store):
    store.ingest(DOCS[:1])
    key = store.list().documents[0].packets[0].packet_key
    _remove_packet(store, key)
    assert not store.packets.has_packet("default", key)
    report = store.ingest(DOCS[:1])
    assert report.packets.added == 1
    assert store.packets.has_packet("default", key)
    assert store.packets.check() == []


def _remove_packet(store, key):
    """Take a packet's rows out of the database itself, as an accident would."""
    environment = store.packets._environment

    def action(tx):
        from kvpacket_store.store.namespaces import find_namespace
        from kvpacket_store.store.schema import Table, packet_row_key

        row = packet_row_key(find_namespace(tx, "default").id, key)
        tx.delete(Table.MANIFESTS, row)

    environment.write(action)


def test_namespaces_share_nothing(store):
    store.ingest(DOCS[:1], namespace="a")
    report = store.ingest(DOCS[:1], namespace="b")
    assert (report.packets.added, report.packets.reused) == (1, 0)
    with pytest.raises(NotFoundError):
        store.show("rhine")
    store.delete("rhine", namespace="a")
    assert store.packet("rhine", namespace="b").token_ids


def test_a_stored_packet_is_what_the_prefiller_gives(new_store):
    store = new_store(segment_tokens=128, kv_dtype="bf16", adapter=_soft())
    store.ingest(DOCS[:1])
    packet = store.packet("rhine")
    header, body = store.prefiller.header(), store.prefiller.segment(packet.token_ids)
    assert np.array_equal(packet.k, np.concatenate([header.k, body.k], axis=2))
    assert np.array_equal(packet.v, np.concatenate([header.v, body.v], axis=2))
    assert packet.num_positions == 4 + len(packet.token_ids) + 4
    assert packet.k.dtype == np.uint16


def _soft():
    from kvpacket_store.adapters import Adapter

    table = np.random.default_rng(0).normal(0, 0.3, (50, 64))
    return Adapter.untrained(table, num_tokens=4)


def test_memory_in_flight_is_bounded(new_store, monkeypatch):
    """Groups are handed over by tokens: what waits never exceeds a few groups."""
    from kvpacket_store.api import ingest as room

    monkeypatch.setattr(room, "_GROUP_TOKENS", 256)
    store = new_store(segment_tokens=64)
    sizes = []
    original = room.IngestWriter.put

    def put(self, work):
        if isinstance(work, room.StageWork):
            sizes.append(sum(len(p.token_ids) for p in work.packets))
        original(self, work)

    monkeypatch.setattr(room.IngestWriter, "put", put)
    text = "\n\n".join(f"Paragraph {i} is different from the others." for i in range(200))
    store.ingest([Document("novel", text), *DOCS])
    assert len(sizes) > 20
    assert max(sizes) <= 256 + 64
    assert len(store.show("novel")["packets"]) > 100


def test_a_store_remembers_what_it_was_made_for(new_store, tmp_path, tiny_model):
    new_store(adapter=_soft(), kv_dtype="fp16", segment_tokens=100).close()
    with Store.open(tmp_path / "store.kvps", model=tiny_model("llama")) as store:
        assert store.meta.codec == "fast"
        assert store.kv_dtype == "fp16"
        assert store.adapter.digest == _soft().digest
        assert store.meta.segment_tokens == 100


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"codec": "linear"}, LevelUnavailableError),
        ({"codec": "zip"}, UsageError),
        ({"layers": 2}, UsageError),
        ({"kv_dtype": "int8"}, UsageError),
        ({"segment_tokens": 3}, UsageError),
        ({"max_bytes": 10}, UsageError),
    ],
)
def test_what_a_store_cannot_be_is_refused_and_leaves_nothing(new_store, tmp_path, options, error):
    with pytest.raises(error):
        new_store(**options)
    assert list(tmp_path.iterdir()) == []


def test_listing_is_paged(store):
    store.ingest([Document(f"d{i}", f"Text number {i}.") for i in range(7)])
    page = store.list(limit=3)
    seen = [d.id for d in page.documents]
    while page.next:
        page = store.list(limit=3, after=page.next)
        seen += [d.id for d in page.documents]
    assert seen == [f"d{i}" for i in range(7)]


def test_statistics_add_up(store):
    store.ingest(DOCS)
    stats = store.stats()
    entries = store.list().documents
    assert stats.documents == 3
    assert stats.tokens == sum(d.tokens for d in entries)
    assert stats.raw_bytes == stats.tokens * store.layout.bytes_per_token(store.kv_dtype)
    assert 0 < stats.bits_per_scalar["k"] <= 33
    assert len(stats.layers) == 4


def test_listing_and_deleting_need_no_torch():
    import subprocess
    import sys

    code = (
        "import sys; from kvpacket_store.api import Store; import kvpacket_store.cli.main; "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
