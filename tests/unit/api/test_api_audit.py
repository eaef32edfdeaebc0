"""The live measure of packets: a share of answers beside a joint prefill."""

import json

import numpy as np
import pytest

from kvpacket_store.adapters import Adapter
from kvpacket_store.api import Engine
from kvpacket_store.api.answer import Timings
from kvpacket_store.api.audit_totals import AUDIT_FILE, AuditTotals, read_audit
from kvpacket_store.errors import UsageError
from kvpacket_store.types import Document

DOCS = [Document("rhine", "The Rhine rises in the Alps. " * 4, {})]
ASKED = {"documents": ["rhine"], "max_new_tokens": 8, "ignore_eos": True}


@pytest.fixture
def store(new_store):
    rows = np.random.default_rng(0).normal(0, 0.3, (50, 64))
    made = new_store(segment_tokens=64, adapter=Adapter.untrained(rows, num_tokens=4))
    made.ingest(DOCS)
    return made


def test_half_of_the_answers_are_audited_and_add_up(store):
    engine = Engine(store, audit=0.5)
    answers = [engine.generate("Where?", **ASKED) for _ in range(4)]
    totals = engine.auditor.totals
    assert (totals.requests, totals.tokens) == (2, 16)
    assert totals.kl_nats > 0
    found = store.stats().audit
    assert found["requests"] == 2
    assert 0 <= found["agreement"] <= 1
    assert found["kl_nats"] == pytest.approx(totals.kl_nats / 16)
    plain = Engine(store).generate("Where?", **ASKED)
    assert {tuple(a.token_ids) for a in answers} == {tuple(plain.token_ids)}


def test_what_the_joint_prefill_itself_answers_agrees_with_it(store):
    """The measure of no difference: an audit of packets against themselves is 0."""
    engine = Engine(store, audit=1.0)

    def same(query, selected, **_):
        return engine._assembler.assemble(query, selected, max_new_tokens=8, timings=Timings())

    engine._assembler.joint = same

    engine.generate("Where?", **ASKED)
    assert engine.auditor.totals.agreed == 8
    assert engine.auditor.totals.kl_nats < 1e-6


def test_nothing_is_audited_unless_asked_for(store):
    Engine(store).generate("Where?", **ASKED)
    assert store.stats().audit is None
    assert not (store.path / AUDIT_FILE).exists()


def test_a_joint_prefill_is_not_audited_against_itself(store):
    engine = Engine(store, audit=1.0)
    engine.generate("Where?", **ASKED, consistency="recompute")
    assert engine.auditor.totals == AuditTotals()


def test_a_torn_line_counts_nothing(store):
    Engine(store, audit=1.0).generate("Where?", **ASKED)
    path = store.path / AUDIT_FILE
    path.write_text(path.read_text() + '{"requests": 1, "tok\n[1]\n{"other": 2}\n')
    assert read_audit(store.path).requests == 1


def test_a_long_file_becomes_one_line(store, monkeypatch):
    from kvpacket_store.api import audit_totals as audit

    engine = Engine(store, audit=1.0)
    monkeypatch.setattr(audit, "_MOST_FILE_BYTES", 10)
    for _ in range(3):
        engine.generate("Where?", **ASKED)
    lines = (store.path / AUDIT_FILE).read_text().splitlines()
    assert len(lines) == 2
    assert sum(json.loads(line)["requests"] for line in lines) == 3


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_is_checked(store, share):
    with pytest.raises(UsageError, match="audit"):
        Engine(store, audit=share)
