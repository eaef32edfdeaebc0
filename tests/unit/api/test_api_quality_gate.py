"""The quality gate: a pair without a report of its own warns, or is refused."""

import logging

import numpy as np
import pytest

from kvpacket_store.adapters import Adapter
from kvpacket_store.api import Engine, Store, quality_gate
from kvpacket_store.api.doctor import examine
from kvpacket_store.api.quality_gate import check_verified, record_quality, why_unverified
from kvpacket_store.errors import QualityError, ReadOnlyError
from kvpacket_store.types import Document


@pytest.fixture(autouse=True)
def nothing_said():
    quality_gate._warned.clear()
    yield
    quality_gate._warned.clear()


def adapter(seed=0):
    random = np.random.default_rng(seed)
    part = random.normal(0, 0.3, (2, 64)).astype(np.float32)
    return Adapter("soft", part, part.copy())


def report_of(store, share=0.7, **changed):
    figures = {"kl": 0.1, "gold_nll": 2.0, "f1": 0.5, "em": 0.2, "n": 9, "ttft_ms": 3.0}
    report = {
        "version": 1,
        "model_fingerprint": store.model.fingerprint.to_dict(),
        "adapter_digest": store.meta.adapter_digest,
        "sane": True,
        "arms": {"full": figures, "packet": figures},
        "gap_closed": {"packet": {"kl": {"share": share, "interval": (0.6, 0.8)}}},
        "datasets": [{"name": "needles", "domain": "held-out", "n": 9, "arms": {}}],
    }
    return report | changed


def test_a_pair_is_verified_by_a_report_of_its_own(new_store, tmp_path, model, word_embedder):
    store = new_store(adapter=adapter())
    assert "no quality report" in why_unverified(store)
    kept = record_quality(store, report_of(store))
    assert "ttft_ms" not in kept["arms"]["packet"]
    assert why_unverified(store) is None
    assert check_verified(store, required=True)
    Engine(store, require_verified=True)
    store.close()
    with Store.open(tmp_path / "store.kvps", model=model, embedder=word_embedder) as again:
        assert check_verified(again, required=True)


def test_the_report_that_ships_with_an_adapter_verifies_its_pair(new_store, monkeypatch):
    store = new_store(adapter=adapter())
    kept = quality_gate.kept_report(report_of(store))
    monkeypatch.setattr(quality_gate, "shipped_report", {store.meta.adapter_digest: kept}.get)
    assert check_verified(store, required=True)
    record_quality(store, report_of(store, sane=False))  # its own counts before that
    assert "forced" in why_unverified(store)


def test_an_unverified_pair_is_refused_where_that_is_required(new_store):
    for store in (new_store(adapter=adapter()), new_store(name="plain.kvps")):
        with pytest.raises(QualityError, match="kvps adapter eval --store") as refused:
            Engine(store, require_verified=True)
        assert refused.value.exit_code == 5


def test_an_unverified_pair_with_an_adapter_warns_once(new_store, caplog):
    with caplog.at_level(logging.WARNING, logger="kvpacket_store"):
        plain = new_store(name="plain.kvps")
        Engine(plain)
        assert caplog.records == []
        store = new_store(adapter=adapter())
        Engine(store)
        Engine(store)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "'soft' is unverified: no quality report" in caplog.text
    store.ingest([Document("a", "The river ends in the sea.")])
    assert Engine(store).generate("Where?", documents=["a"], max_new_tokens=2).token_ids


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"sane": False}, "forced"),
        ({"gap_closed": {"packet": {"kl": {"share": 0.4, "interval": None}}}}, "not surely"),
        ({"gap_closed": {"packet": {"kl": {"share": 0.4, "interval": (-0.1, 0.9)}}}}, "not surely"),
        ({"gap_closed": {"packet": {"kl": None}}}, "nothing of packets"),
        ({"gap_closed": {}}, "nothing of packets"),
    ],
)
def test_a_report_that_says_nothing_good_verifies_nothing(new_store, changed, why):
    store = new_store(adapter=adapter())
    record_quality(store, report_of(store, **changed))
    assert why in why_unverified(store)
    with pytest.raises(QualityError, match=why):
        check_verified(store, required=True)


def test_without_an_adapter_a_sane_report_is_enough(new_store):
    store = new_store()
    record_quality(store, report_of(store, gap_closed={"packet": {"kl": None}}))
    assert why_unverified(store) is None


def test_a_report_of_another_pair_is_not_taken(new_store):
    store, other = new_store(adapter=adapter()), new_store(name="o.kvps", adapter=adapter(1))
    for foreign in (new_store("qwen3", name="q.kvps"), other):
        with pytest.raises(QualityError, match="not of the model and adapter"):
            record_quality(store, report_of(foreign))
    record_quality(other, report_of(other))
    store.packets.put_quality(other.packets.get_quality())
    assert "another model or adapter" in why_unverified(store)


def test_a_damaged_report_verifies_nothing(new_store, behind_its_back):
    store = new_store(adapter=adapter())
    record_quality(store, report_of(store))
    path = store.path
    store.close()

    def spoil(txn, tables):
        row = bytearray(txn.get(b"quality", db=tables["meta"]))
        row[-1] ^= 1
        txn.put(b"quality", bytes(row), db=tables["meta"])

    behind_its_back(path, spoil)
    with Store.open(path) as again:
        assert "no quality report" in why_unverified(again)
        assert again.packets.check(deep=True) == []


def test_a_store_open_for_reading_takes_no_report(new_store, model):
    store = new_store()
    report = report_of(store)
    with (
        Store.open(store.path, model=model, read_only=True) as reading,
        pytest.raises(ReadOnlyError),
    ):
        record_quality(reading, report)


def test_doctor_names_an_unverified_adapter(new_store):
    plain, soft = new_store(name="plain.kvps"), new_store(adapter=adapter())
    record_quality(plain, report_of(plain, gap_closed={"packet": {"kl": None}}))
    for store, ok in ((plain, True), (soft, False)):
        check = next(c for c in examine(store.path) if c.name == "quality")
        assert (check.ok, check.level) == ((True, "info") if ok else (False, "warning"))
        assert ok or "kvps adapter eval" in check.remedy


def test_a_compaction_keeps_the_report(new_store):
    store = new_store(adapter=adapter())
    record_quality(store, report_of(store))
    store.packets.compact()
    assert why_unverified(store) is None
