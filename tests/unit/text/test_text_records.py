"""JSONL: good lines become documents, bad ones errors that name file and line."""

from __future__ import annotations

import io
import json

import pytest

from kvpacket_store.errors import DocumentError
from kvpacket_store.text import document_from_record, records
from kvpacket_store.types import Document


def read(*lines: str | bytes) -> list[Document | DocumentError]:
    data = b"\n".join(line.encode() if isinstance(line, str) else line for line in lines)
    stream = records.read_lines(io.BytesIO(data))
    return list(records.read_jsonl(stream, "a.jsonl", "data/a.jsonl"))


def test_a_line_becomes_a_document():
    line = {"id": "n-1", "text": "They gave their name.", "metadata": {"title": "Normans", "n": 1}}

    (document,) = read(json.dumps(line))

    assert document.id == "n-1"
    assert document.text == "They gave their name."
    assert document.metadata == {
        "source": "data/a.jsonl",
        "media_type": "text/plain",
        "title": "Normans",
        "n": 1,
    }


def test_what_a_line_says_of_itself_counts():
    (document,) = read(
        '{"id": "a", "text": "# T", "metadata": {"source": "x", "media_type": "text/markdown"}}'
    )

    assert document.metadata == {"source": "x", "media_type": "text/markdown"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("not json at all", "not JSON"),
        ("[1, 2]", "not an object"),
        ("null", "not an object"),
        ('"text"', "not an object"),
        ('{"text": "x"}', "no id"),
        ('{"id": "", "text": "x"}', "id of 0 characters"),
        ('{"id": "%s", "text": "x"}' % ("i" * 1001), "id of 1001 characters"),
        ('{"id": true, "text": "x"}', "no id"),
        ('{"id": 1.5, "text": "x"}', "no id"),
        ('{"id": null, "text": "x"}', "no id"),
        ('{"id": "a"}', "no text"),
        ('{"id": "a", "text": 7}', "no text"),
        ('{"id": "a", "text": ["x"]}', "no text"),
        ('{"id": "a", "text": ""}', "is empty"),
        ('{"id": "a", "text": " \\n\\t\\u3000"}', "is empty"),
        ('{"id": "a", "text": "\\u0000"}', "is empty"),
        ('{"id": "a", "text": "x", "metadata": []}', "metadata"),
        ('{"id": "a", "text": "x", "metadata": "m"}', "metadata"),
        ('{"id": "a", "text": "x", "metadata": {"title": 1}}', "title"),
        ('{"id": "a", "text": "x", "metadata": {"media_type": null}}', "media_type"),
        ('{"id": "a", "text": "x", "metadata": {"n": NaN}}', "not JSON"),
        ('{"id": "a", "text": "x", "metadata": {"n": -Infinity}}', "not JSON"),
        ('{"id": "a", "text": "x", "metadata": {"n": %s}}' % ("9" * 5000), "not JSON"),
        ("[" * 100_000, "deeply"),
        ('{"id": "a", "text": "x", "metadata": {"n": %s}}' % ("[" * 5000 + "]" * 5000), "deeply"),
    ],
)
def test_a_bad_line_is_named_and_the_rest_goes_on(line, reason):
    first, error, last = read('{"id": "1", "text": "x"}', line, '{"id": "2", "text": "y"}')

    assert (first.id, last.id) == ("1", "2")
    assert isinstance(error, DocumentError)
    assert error.document_id == "a.jsonl:2"
    assert reason in str(error)


def test_integer_ids_become_strings():
    assert [document.id for document in read('{"id": 7, "text": "x"}')] == ["7"]


def test_blank_lines_and_a_byte_order_mark_are_no_documents():
    documents = read(
        b"\xef\xbb\xbf" + b'{"id": "a", "text": "x"}', "", "  \r", '{"id": "b", "text": "y"}'
    )

    assert [document.id for document in documents] == ["a", "b"]


def test_lone_surrogates_are_replaced_everywhere_and_pairs_are_kept():
    (document,) = read(
        r'{"id": "\ud800", "text": "a\udfffb \ud83d\ude00", "metadata": {"\ud800": ["\udc00"]}}'
    )

    assert document.id == "\ufffd"
    assert document.text == "a\ufffdb 😀"
    assert document.metadata["\ufffd"] == ["\ufffd"]
    assert document.metadata["warnings"] == ["lone surrogates were replaced by U+FFFD"]


def test_broken_utf8_in_a_line_is_replaced_with_a_warning():
    (document,) = read(b'{"id": "a", "text": "caf\xe9 au lait, and more of it"}')

    assert document.text == "caf\ufffd au lait, and more of it"
    assert len(document.metadata["warnings"]) == 1


def test_utf16_is_refused_once():
    errors = read("\ufeff{}\n{}\n{}".encode("utf-16-le"))

    assert [error.document_id for error in errors] == ["a.jsonl"]


def test_a_line_that_is_too_long_is_skipped_without_being_held(monkeypatch):
    monkeypatch.setattr(records, "MAX_DOCUMENT_BYTES", 100)
    long_line = '{"id": "long", "text": "%s"}' % ("x" * 1000)

    first, error, last = read('{"id": "1", "text": "x"}', long_line, '{"id": "2", "text": "y"}')

    assert (first.id, last.id) == ("1", "2")
    assert error.document_id == "a.jsonl:2"
    assert "longer than 100 bytes" in str(error)


def test_a_record_of_a_request_is_checked_in_the_same_way():
    document = document_from_record({"id": "a", "text": "x\x00y"}, "documents[0]", "request")

    assert document.text == "xy"
    assert document.metadata["source"] == "request"
    with pytest.raises(DocumentError, match=r"documents\[1\]"):
        document_from_record({"id": "a"}, "documents[1]", "request")
