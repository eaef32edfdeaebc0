"""The command in processes of its own: JSON alone on stdout, exit codes, and a reader's journey."""

import json

import pytest

pytestmark = pytest.mark.e2e
PARAGRAPHS = [
    {"id": "rhine", "text": "The Rhine rises in the Swiss Alps.", "metadata": {"title": "Rhine"}},
    {"id": "elbe", "text": "The Elbe rises in the Giant Mountains of Bohemia."},
]


def test_a_readers_journey(kvps, kvps_here, tmp_path):
    store = tmp_path / "s.kvps"
    made = kvps.json("init", store, "--model", "smollm2")
    assert made["model"] == "smollm2"
    assert (made["codec"], made["layers"], made["kv_dtype"]) == ("fast", 1, "bf16")
    assert set(made["model_fingerprint"]) >= {"weights", "tokenizer", "config", "rope"}

    corpus = tmp_path / "docs.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in PARAGRAPHS))
    first = kvps.json("ingest", store, corpus)
    assert first["documents"] == {"added": 2, "updated": 0, "unchanged": 0, "failed": 0}
    assert first["ratio"] > 1.2
    piped = kvps.json("ingest", store, "-", stdin="The Oder flows to the Baltic Sea.\n")
    assert piped["documents"]["added"] == 1
    again = kvps_here.json("ingest", store, corpus)
    assert again["documents"]["unchanged"] == 2
    assert again["packets"]["added"] == 0

    ask = ("ask", store, "Where does the Rhine rise?", "--docs", "rhine,elbe")
    answer = kvps.json(*ask, "--max-new-tokens", "12")
    assert "Alps" in answer["answer"] or "Swiss" in answer["answer"]
    assert [d["id"] for d in answer["documents"]] == ["rhine", "elbe"]
    assert answer["decode"]["mode"] == "full"
    assert answer["timings_ms"]["first_draft"] is None
    code, out, err = kvps(*ask, "--max-new-tokens", "12")
    assert code == 0
    assert out.strip() == answer["answer"].strip()
    assert "cached" in err

    page = kvps_here.json("list", store, "--limit", "2")
    assert len(page["documents"]) == 2
    assert page["next"] is not None
    rest = kvps_here.json("list", store, "--after", page["next"])
    assert len(rest["documents"]) == 1
    assert kvps_here.json("show", store, "rhine")["text"] == PARAGRAPHS[0]["text"]
    assert kvps_here.json("delete", store, "elbe") == {"deleted": ["elbe"], "absent": []}
    stats = kvps_here.json("stats", store)
    assert stats["documents"] == stats["packets"] == 2
    assert stats["file_bytes"] >= stats["live_bytes"] > 0
    checks = kvps.json("doctor", store)["checks"]
    assert all(check["ok"] for check in checks), checks


def test_exit_codes_say_whose_turn_it_is(kvps, kvps_here, tmp_path, smollm2_store):
    store = smollm2_store.path
    for expected, *arguments in (
        (1, "ask", tmp_path / "absent.kvps", "x"),
        (1, "ask", store, "x", "--docs", "no-such-document"),
        (2, "ingest", store, tmp_path / "absent"),
        (2, "frobnicate"),
        (2, "ask", store, "x", "--temperature", "warm"),
        (2, "ask", store, "x", "--docs", "civil-disobedience-1", "--decode", "never"),
        (2, "init", tmp_path / "n.kvps", "--codec", "fast", "--layers", "2"),
        (5, "init", tmp_path / "n.kvps", "--model", str(tmp_path)),
    ):
        code, out, err = kvps_here(*arguments, "--json")
        assert (code, out) == (expected, ""), (arguments, err)
        assert err
        assert "Traceback" not in err
    code, out, err = kvps("ask", tmp_path / "absent.kvps", "x", "--json")
    assert (code, out) == (1, "")
    assert err


def test_one_bad_document_makes_the_exit_code_1_and_names_itself(
    kvps_here, tmp_path, smollm2_store
):
    corpus = tmp_path / "docs.jsonl"
    corpus.write_text('{"id": "ok", "text": "Fine."}\n{"id": "bad"}\nnot json\n')
    space = ("--namespace", "bad-lines")
    code, out, _ = kvps_here("ingest", smollm2_store.path, corpus, *space, "--json")
    report = json.loads(out)
    assert code == 1
    assert report["documents"] == {"added": 1, "updated": 0, "unchanged": 0, "failed": 2}
    assert len(report["errors"]) == 2
