"""What a user names on the command line, and the documents that come of it."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from kvpacket_store.errors import DocumentError, UsageError
from kvpacket_store.text import read_documents, records
from kvpacket_store.types import Document


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def ids(results) -> list[str]:
    return [result.id if isinstance(result, Document) else f"! {result}" for result in results]


def the_error(results) -> DocumentError:
    (error,) = results
    assert isinstance(error, DocumentError)
    return error


def test_a_folder_is_read_in_the_order_of_names(tmp_path):
    write(
        tmp_path,
        {
            "b.txt": "b",
            "a/z.md": "# Z",
            "a/k/deep.html": "<p>deep",
            "a.py": "x = 1",
            "data.jsonl": '{"id": "one", "text": "1"}\n{"id": "two", "text": "2"}\n',
            "README": "no suffix",
        },
    )

    documents = list(read_documents([str(tmp_path)]))

    assert ids(documents) == [
        "README",
        "a/k/deep.html",
        "a/z.md",
        "a.py",
        "b.txt",
        "one",
        "two",
    ]
    media_types = [document.metadata["media_type"] for document in documents[:5]]
    assert media_types == [
        "text/plain",
        "text/html",
        "text/markdown",
        "text/x-python",
        "text/plain",
    ]
    assert documents[1].metadata["source"] == (tmp_path / "a/k/deep.html").as_posix()


def test_hidden_and_binary_files_of_a_folder_are_left_out_in_silence(tmp_path):
    write(
        tmp_path,
        {
            ".hidden.txt": "x",
            ".git/config": "x",
            "core": b"\x7fELF\x00\x00",
            "noise": bytes(range(1, 256)) * 40,
            "picture.png": b"\x89PNG\r\n\x1a\n\x00\x00",
            "text.txt": "kept",
        },
    )

    assert ids(read_documents([str(tmp_path)])) == ["text.txt"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (".hidden.txt", "x", "hidden"),
        ("core", b"\x7fELF\x00\x00", "binary"),
        ("a.txt", "", "is empty"),
        ("b.txt", " \n\t\u2003\n", "is empty"),
        ("c.md", b"\xef\xbb\xbf", "is empty"),
        ("d.html", "<script>only()</script>", "is empty"),
        ("e.pdf", b"%PDF-1.4 broken", "cannot be read as PDF"),
    ],
)
def test_a_file_that_is_named_itself_is_refused_with_a_reason(tmp_path, name, content, reason):
    write(tmp_path, {name: content})

    error = the_error(read_documents([str(tmp_path / name)]))

    assert error.document_id == name
    assert reason in error.reason


def test_a_file_that_is_named_itself_goes_by_its_name(tmp_path):
    write(tmp_path, {"deep/down/a.txt": "text"})

    (document,) = read_documents([str(tmp_path / "deep/down/a.txt")])

    assert document.id == "a.txt"
    assert document.metadata["source"].endswith("deep/down/a.txt")


def test_one_token_is_a_document(tmp_path):
    write(tmp_path, {"a.txt": "x"})

    assert [document.text for document in read_documents([str(tmp_path)])] == ["x"]


def test_a_missing_path_is_a_usage_error_before_anything_is_read(tmp_path):
    write(tmp_path, {"a.txt": "text"})

    with pytest.raises(UsageError, match=r"nothing was read.*no-such") as raised:
        read_documents([str(tmp_path / "a.txt"), str(tmp_path / "no-such")])
    assert raised.value.exit_code == 2


def test_one_path_must_come_in_a_list(tmp_path):
    with pytest.raises(UsageError):
        read_documents(str(tmp_path))


def test_an_error_in_one_document_leaves_the_others_alone(tmp_path):
    write(tmp_path, {"a.txt": "a", "b.pdf": b"%PDF-", "c.jsonl": '{"id":"c","text":"c"}\nbad\n'})

    results = list(read_documents([str(tmp_path)]))

    assert [type(result) for result in results] == [
        Document,
        DocumentError,
        Document,
        DocumentError,
    ]
    assert results[1].document_id == "b.pdf"
    assert results[3].document_id == "c.jsonl:2"


def test_a_second_document_with_an_id_does_not_replace_the_first(tmp_path):
    write(tmp_path, {"one/README.md": "first", "two/README.md": "second"})

    first, error = read_documents([str(tmp_path / "one"), str(tmp_path / "two")])

    assert first.text == "first"
    assert isinstance(error, DocumentError)
    assert "two/README.md" in error.reason
    assert ids(read_documents([str(tmp_path)])) == ["one/README.md", "two/README.md"]


def test_reading_is_lazy(tmp_path):
    write(tmp_path, {"a.txt": "a", "b.txt": "b"})
    results = read_documents([str(tmp_path)])
    assert next(results).id == "a.txt"
    (tmp_path / "b.txt").write_text("changed meanwhile")

    assert next(results).text == "changed meanwhile"


def test_links_to_folders_are_not_followed_in_a_circle(tmp_path):
    write(tmp_path, {"a/a.txt": "a"})
    (tmp_path / "a/back").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "link.txt").symlink_to(tmp_path / "a/a.txt")
    (tmp_path / "dangling.txt").symlink_to(tmp_path / "nowhere")

    assert ids(read_documents([str(tmp_path)])) == ["a/a.txt", "link.txt"]


def test_a_path_that_is_too_long_for_an_id_is_refused(tmp_path):
    write(tmp_path, {"/".join(["d" * 200] * 5) + "/a.txt": "deep down"})

    error = the_error(read_documents([str(tmp_path)]))

    assert "id of 1010 characters" in error.reason


def test_a_file_name_that_is_not_utf8_becomes_a_clean_id(tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    try:
        with open(path, "w") as file:  # noqa: PTH123
            file.write("text")
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")

    (document,) = read_documents([str(tmp_path)])

    assert document.id == "caf\ufffd.txt"
    assert document.metadata["source"].isprintable()


def test_a_file_that_cannot_be_read_is_an_error_of_its_own(tmp_path, monkeypatch):
    write(tmp_path, {"a.txt": "a", "b.txt": "b"})
    real_open = Path.open

    def forbidden(path, *args, **kwargs):
        if path.name == "a.txt":
            raise PermissionError(13, "Permission denied")
        return real_open(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", forbidden)
    error, document = read_documents([str(tmp_path)])

    assert "Permission denied" in error.reason
    assert document.id == "b.txt"


def test_a_file_that_is_too_large_is_refused_without_being_held(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "MAX_DOCUMENT_BYTES", 1000)
    write(tmp_path, {"large.txt": "x" * 1001, "small.txt": "x" * 1000})

    error, document = read_documents([str(tmp_path)])

    assert "longer than 1000 bytes" in error.reason
    assert document.id == "small.txt"


def test_damaged_text_says_so_in_its_metadata(tmp_path):
    write(tmp_path, {"a.txt": b"one\x00 caf\xe9"})

    (document,) = read_documents([str(tmp_path)])

    assert document.text == "one caf\ufffd"
    assert document.metadata["warnings"] == [
        "1 invalid utf-8 sequence was replaced by U+FFFD",
        "1 NUL character was removed",
    ]


def test_source_code_has_its_path_as_title(tmp_path):
    write(tmp_path, {"pkg/mod.py": "x = 1"})

    (document,) = read_documents([str(tmp_path)])

    assert document.metadata["title"] == "pkg/mod.py"


def test_one_document_is_held_at_a_time(tmp_path):
    num_files, file_bytes = 60, 200_000
    for number in range(num_files):
        (tmp_path / f"{number:03}.txt").write_text("word " * (file_bytes // 5))
    tracemalloc.start()
    total_bytes = sum(len(document.text) for document in read_documents([str(tmp_path)]))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert total_bytes == num_files * file_bytes
    assert peak_bytes < total_bytes / 4


def test_jsonl_lines_are_read_one_by_one(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"id": n, "text": "x"}) + "\n" for n in range(3)))
    results = read_documents([str(path)])

    assert next(results).id == "0"
    with path.open("a") as file:
        file.write('{"id": "late", "text": "x"}\n')
    assert ids(results)[:2] == ["1", "2"]
