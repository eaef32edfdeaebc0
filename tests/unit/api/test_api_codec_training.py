"""A codec pack is fitted to packets spread over all documents, and judged on unseen ones."""

import json

import numpy as np
import pytest

from kvpacket_store.api.codec_samples import Sample, held_out_apart, store_samples
from kvpacket_store.api.codec_training import train_codec_pack
from kvpacket_store.api.recode import recode
from kvpacket_store.api.store import Store
from kvpacket_store.codec import decode, encode
from kvpacket_store.codec.linear.pack import CodecPack
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.errors import (
    CapReachedError,
    NotFoundError,
    ReadOnlyError,
    UsageError,
)
from kvpacket_store.store.schema import Table
from kvpacket_store.types import Document


def documents(count, words=30):
    return [
        Document(id=f"d{i:02}", text=f"Number {i} of many. " + f"word{i} " * words)
        for i in range(count)
    ]


def test_a_pack_fits_its_store_and_says_what_it_is_worth(new_store):
    store = new_store()
    store.ingest(documents(12))
    stages = []
    report = train_codec_pack(
        store, tokens=9000, back=1, progress=lambda stage, share: stages.append((stage, share))
    )
    pack = CodecPack.from_bytes((store.path / "codec-packs" / f"{report.digest}.kvc").read_bytes())
    assert store.pack_need.misfit(pack) is None
    assert dict(pack.about)["held_out_bits_per_scalar"] == report.bits_per_scalar
    assert (report.documents, report.held_out_packets) == (12, 1)
    assert list(dict.fromkeys(stage for stage, _ in stages)) == ["gather", "fit", "measure"]
    assert stages[-1] == ("measure", 1.0)
    for stage in ("gather", "fit", "measure"):
        shares = [share for name, share in stages if name == stage]
        assert shares == sorted(shares)
        assert shares[-1] <= 1.0
    packet = store.packet("d03")
    record = encode(packet.k, packet.v, kv_dtype="fp32", level="linear", pack=pack)
    assert np.array_equal(decode(record, packs=[pack])[0], packet.k)


def test_a_corpus_is_prefilled_and_named_in_the_pack(new_store, tmp_path):
    store = new_store()
    corpus = tmp_path / "corpus.jsonl"
    rows = [{"id": d.id, "text": d.text} for d in documents(12)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = train_codec_pack(store, tokens=600, corpus=corpus, back=1, out=tmp_path / "x.kvc")
    assert report.corpus == "corpus.jsonl"
    assert 2 <= report.documents <= 12
    assert report.tokens + report.held_out_tokens >= 600
    assert (tmp_path / "x.kvc").stat().st_size == report.pack_bytes
    assert store.packets.count() == 0


def test_samples_come_from_all_documents_evenly(new_store):
    store = new_store(segment_tokens=32)
    store.ingest([*documents(9, words=4), Document(id="novel", text="Line of it.\n\n" * 300)])
    found = list(store_samples(store, 400))
    by_document = {n: sum(s.tokens for s in found if s.document == n) for n in range(10)}
    assert 400 <= sum(by_document.values()) <= 400 + 2 * 32
    assert all(0 < tokens <= 3 * 40 for tokens in by_document.values())


def test_a_text_that_two_documents_share_is_taken_once(new_store):
    store = new_store()
    text = documents(1)[0].text
    store.ingest([Document(id="a", text=text), Document(id="b", text=text)])
    assert len(list(store_samples(store, 10_000))) == 1


def test_a_damaged_packet_is_prefilled(new_store, behind_its_back):
    store = new_store()
    store.ingest(documents(3))
    whole = [s.k for s in store_samples(store, 10_000)]
    path, model, embedder = store.path, store.model, store.embedder
    store.close()

    def spoil(txn, tables):
        with txn.cursor(db=tables[Table.CHUNKS]) as cursor:
            assert cursor.first()
            txn.put(bytes(cursor.key()), b"x" * len(cursor.value()), db=tables[Table.CHUNKS])

    behind_its_back(path, spoil)
    with Store.open(path, model=model, embedder=embedder) as again:
        found = [s.k for s in store_samples(again, 10_000)]
    assert all(map(np.array_equal, whole, found))
    assert len(found) == 3


def test_a_tenth_is_held_out_of_whole_documents_where_there_are_ten():
    one = np.zeros((1, 1, 8, 2), np.uint16)
    trained, held_out = held_out_apart([Sample(i // 3, one, one) for i in range(60)])
    assert {s.document for s in held_out} == {9, 19}
    assert not {s.document for s in held_out} & {s.document for s in trained}
    trained, held_out = held_out_apart([Sample(0, one, one) for _ in range(2)])
    assert (len(trained), len(held_out)) == (1, 1)


def test_an_interruption_leaves_nothing(new_store):
    store = new_store()
    store.ingest(documents(3))

    def interrupt(stage, share):
        if stage == "measure" and share == 1.0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_codec_pack(store, tokens=600, back=1, progress=interrupt)
    assert not (store.path / "codec-packs").exists()


def test_what_cannot_work_is_refused_before_any_work(new_store, tmp_path):
    store = new_store()
    store.ingest(documents(2))
    (empty := tmp_path / "empty").mkdir()

    def worked(stage, share):
        raise AssertionError(stage)

    for error, options in (
        (UsageError, {"tokens": 5}),
        (UsageError, {"back": 4}),
        (UsageError, {"back": 1.0}),
        (UsageError, {"back": True}),
        (UsageError, {"corpus": tmp_path / "absent"}),
        (UsageError, {"corpus": empty}),
        (UsageError, {"out": tmp_path / "absent" / "x.kvc"}),
        (NotFoundError, {"namespace": "nobody"}),
    ):
        with pytest.raises(error):
            train_codec_pack(store, progress=worked, **options)
    with (
        Store.open(store.path, read_only=True, model=store.model) as reading,
        pytest.raises(ReadOnlyError, match="reading alone"),
    ):
        train_codec_pack(reading, progress=worked)


def test_one_packet_is_too_few(new_store):
    store = new_store()
    store.ingest(documents(1))
    with pytest.raises(UsageError, match="1 packets to train on"):
        train_codec_pack(store, tokens=600)


def test_a_model_too_wide_for_a_pack_is_refused(new_store, monkeypatch):
    monkeypatch.setattr("kvpacket_store.codec.linear.shapes.MAX_WEIGHTS", 1000)
    with pytest.raises(UsageError, match="look back fewer layers"):
        train_codec_pack(new_store())


@pytest.mark.parametrize("most", [0, 1])
def test_a_wide_model_is_looked_back_on_by_fewer_layers(new_store, monkeypatch, most):
    store = new_store(kv_dtype="bf16")
    store.ingest(documents(6))
    layout = store.layout
    sizes = layout.num_layers, layout.num_kv_heads, layout.head_dim
    limit = PackShape(*sizes, most).num_weights
    assert limit >= layout.num_layers * (layout.num_kv_heads * layout.head_dim) ** 2
    before = store.packet("d00").k
    with monkeypatch.context() as patch:
        patch.setattr("kvpacket_store.codec.linear.shapes.MAX_WEIGHTS", limit)
        assert train_codec_pack(store, tokens=600).back == most
        with pytest.raises(UsageError, match="look back fewer layers"):
            train_codec_pack(store, tokens=600, back=most + 1)
    recode(store, "linear")
    assert np.array_equal(store.packet("d00").k, before)
    assert store.verify(deep=True).damaged == []


def test_the_cap_holds(new_store, monkeypatch):
    store = new_store(max_bytes=2 << 20)
    store.ingest(documents(2))
    monkeypatch.setattr(CodecPack, "to_bytes", lambda self: bytes(2 << 20))
    with pytest.raises(CapReachedError, match="no room for the codec pack"):
        train_codec_pack(store, tokens=256, back=1)
    assert not list(store.codec_packs.kept())
