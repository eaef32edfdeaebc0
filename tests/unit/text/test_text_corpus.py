"""Whole corpora: the shipped examples, a novel, a source tree."""

from __future__ import annotations

import email
import gzip
import json
import statistics
from pathlib import Path

from kvpacket_store.errors import DocumentError
from kvpacket_store.text import read_documents, segment_document
from kvpacket_store.text.definitions import python_definitions
from kvpacket_store.types import Document

EXAMPLES = Path(__file__).parents[3] / "examples"


def example_corpus() -> dict[str, Document]:
    return {document.id: document for document in read_documents([str(EXAMPLES / "corpus")])}


def test_the_example_corpus_is_a_hundred_paragraphs_and_nothing_else():
    results = list(read_documents([str(EXAMPLES / "corpus")]))

    assert len(results) == 100
    assert all(isinstance(result, Document) for result in results)
    assert len({document.metadata["title"] for document in results}) == 20
    assert results[0].id == "civil-disobedience-1"
    assert results[0].metadata["title"] == "Civil disobedience"


def test_example_questions_are_answered_by_their_documents():
    documents = example_corpus()
    lines = (EXAMPLES / "questions.jsonl").read_text("utf-8").splitlines()
    questions = [json.loads(line) for line in lines]

    assert len(questions) == 60
    assert len({documents[question["document"]].metadata["title"] for question in questions}) == 20
    for question in questions:
        assert question["question"]
        assert question["answers"]
        text = documents[question["document"]].text
        assert all(answer in text for answer in question["answers"])


def test_an_example_paragraph_is_one_segment(tokenizer):
    num_segments = [len(segment_document(d, tokenizer)) for d in example_corpus().values()]

    assert statistics.mode(num_segments) == 1
    assert sum(num_segments) < 115


def test_a_novel_is_segmented_at_paragraphs(tmp_path, tokenizer, novel):
    (tmp_path / "alice.txt").write_text(novel, encoding="utf-8")

    (document,) = read_documents([str(tmp_path)])
    segments = segment_document(document, tokenizer)

    num_tokens = [len(segment.token_ids) for segment in segments]
    assert max(num_tokens) <= 512
    assert min(num_tokens[:-1]) >= 250, "at least half full"
    followed_by = [novel[segment.end_char : segment.end_char + 2] for segment in segments[:-1]]
    assert followed_by.count("\n\n") > 0.9 * len(segments)
    words = [word for segment in segments for word in segment.text.split()]
    assert words == novel.split()


def test_a_source_tree_is_segmented_at_definitions(tokenizer):
    folder = Path(email.__file__).parent

    results = list(read_documents([str(folder)]))

    errors = [result for result in results if isinstance(result, DocumentError)]
    assert all("is empty" in error.reason for error in errors)
    documents = [result for result in results if isinstance(result, Document)]
    python = [document for document in documents if document.id.endswith(".py")]
    assert "mime/text.py" in {document.id for document in python}
    num_cuts = num_at_definitions = 0
    for document in python:
        assert document.metadata["media_type"] == "text/x-python"
        _, definitions = python_definitions(document.text)
        segments = segment_document(document, tokenizer)
        assert all(segment.text.startswith(f"{document.id}\n") for segment in segments)
        starts = [segment.start_char for segment in segments[1:]]
        num_cuts += len(starts)
        num_at_definitions += len(set(starts) & set(definitions))
    assert num_at_definitions > num_cuts / 3 > 25, "the others are inside long functions"


def test_an_archive_is_no_text(tmp_path, novel):
    (tmp_path / "novel.gz").write_bytes(gzip.compress(novel.encode()))
    (tmp_path / "novel.txt").write_text("kept")

    assert [document.id for document in read_documents([str(tmp_path)])] == ["novel.txt"]
