"""Documents that come through standard input."""

from __future__ import annotations

import io

import pytest

from kvpacket_store.errors import DocumentError, UsageError
from kvpacket_store.text import read_documents, records


def ids(results) -> list[str]:
    return [result.id for result in results]


def the_error(results) -> DocumentError:
    (error,) = results
    assert isinstance(error, DocumentError)
    return error


def read(data: bytes):
    return list(read_documents(["-"], io.BytesIO(data)))


def test_text_is_one_document():
    (document,) = read(b"\n\nSome text.\nMore.\n")

    assert document.id == "stdin"
    assert document.text.strip() == "Some text.\nMore."
    assert document.metadata["source"] == "-"


def test_jsonl_is_many():
    results = read(b'\n\n{"id": "a", "text": "x"}\nbad\n{"id": "b", "text": "y"}\n')

    assert ids(results[::2]) == ["a", "b"]
    assert results[1].document_id == "stdin:4"


def test_other_json_is_text():
    (document,) = read(b'{"name": "x"}\n{"name": "y"}\n')

    assert document.text == '{"name": "x"}\n{"name": "y"}\n'


def test_nothing_is_empty():
    assert "is empty" in the_error(read(b"")).reason
    assert "is empty" in the_error(read(b" \n \n")).reason


def test_utf16_text_is_read():
    (document,) = read("\ufeffWärme\nund Größe\n".encode("utf-16-le"))

    assert document.text == "Wärme\nund Größe\n"


def test_a_text_stream_is_read_as_well():
    for stream in (io.StringIO("héllo"), io.TextIOWrapper(io.BytesIO("héllo".encode()))):
        (document,) = read_documents(["-"], stream)
        assert document.text == "héllo"


def test_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(records, "MAX_DOCUMENT_BYTES", 100)

    assert "longer than 100 bytes" in the_error(read(b"x" * 60 + b"\n" + b"y" * 60)).reason
    assert "longer than 100 bytes" in the_error(read(b"x" * 1000)).reason


def test_it_can_be_named_once_and_must_be_there():
    with pytest.raises(UsageError):
        read_documents(["-"])
    with pytest.raises(UsageError):
        read_documents(["-", "-"], io.BytesIO(b"x"))


def test_files_may_stand_beside_it(tmp_path):
    (tmp_path / "a.txt").write_text("a")

    assert ids(read_documents([str(tmp_path), "-"], io.BytesIO(b"x"))) == ["a.txt", "stdin"]
