"""A whole novel and a source tree, from files to answers."""

import gzip
import json
from pathlib import Path

import pytest

from kvpacket_store.api import Engine
from kvpacket_store.text import read_documents
from kvpacket_store.types import Document

NOVEL = Path(__file__).resolve().parents[2] / "data" / "alice.txt.gz"


@pytest.fixture
def store(new_store):
    return new_store("qwen2", segment_tokens=512)


def test_a_novel_is_ingested_and_answers_from_its_middle(store):
    text = gzip.decompress(NOVEL.read_bytes()).decode()
    report = store.ingest([Document("alice", text, {"title": "Alice"})])
    entry = store.list().documents[0]
    assert report.documents.added == 1
    assert len(entry.packets) > 250
    assert entry.tokens == report.tokens >= len(text.encode())  # a token a byte, and titles
    answer = Engine(store).generate(
        "What did the Mad Hatter say at the tea party?", top_k=2, max_new_tokens=4, ignore_eos=True
    )
    assert [d.id for d in answer.documents] == ["alice"]
    assert len(answer.documents[0].packets) == 2
    assert store.packets.check() == []


def test_a_source_tree_is_ingested(store):
    folder = Path(json.__file__).parent
    files = sorted(p.name for p in folder.glob("*.py"))
    report = store.ingest(read_documents([str(folder)]))
    assert report.documents.failed == 0
    assert [d.id for d in store.list().documents] == files
    decoder = store.show("decoder.py")
    assert decoder["text"] == (folder / "decoder.py").read_text()
    assert decoder["metadata"]["media_type"] == "text/x-python"
    again = store.ingest(read_documents([str(folder)]))
    assert again.documents.unchanged == len(files)
