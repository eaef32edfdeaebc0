"""Bytes to text: every damage is repaired and said, or refused with a remedy."""

from __future__ import annotations

import codecs

import pytest

from kvpacket_store.errors import DocumentError
from kvpacket_store.text.plain import clean_text, looks_binary, read_text, replace_surrogates

TEXT = "Wärme, 熱 and 😀.\n"


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_byte_order_marks_choose_the_encoding_and_are_no_text(mark, encoding):
    assert read_text("a", mark + TEXT.encode(encoding)) == (TEXT, [])


@pytest.mark.parametrize("newline", ["\r\n", "\r", "\n"])
def test_line_ends_become_newlines(newline):
    assert read_text("a", newline.join(["one", "two", "", "three"]).encode())[0] == (
        "one\ntwo\n\nthree"
    )


def test_broken_utf8_is_replaced_with_a_warning():
    text, warnings = read_text("a", "Größe und Wärme".encode("latin-1"))

    assert text == "Gr\ufffd\ufffde und W\ufffdrme"
    assert warnings == ["3 invalid utf-8 sequences were replaced by U+FFFD"]


def test_a_genuine_replacement_character_is_no_damage():
    assert read_text("a", "a \ufffd b".encode()) == ("a \ufffd b", [])


def test_text_in_another_encoding_is_refused_with_a_remedy():
    data = "Все счастливые семьи похожи друг на друга.".encode("cp1251")

    with pytest.raises(DocumentError, match=r"document 'tolstoi'.*iconv"):
        read_text("tolstoi", data)


def test_odd_utf16_is_replaced_with_a_warning():
    text, warnings = read_text("a", codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le") + b"x")

    assert text == TEXT + "\ufffd"
    assert len(warnings) == 1


def test_nul_characters_are_removed_with_a_warning():
    assert read_text("a", b"one\x00two\x00") == ("onetwo", ["2 NUL characters were removed"])


def test_lone_surrogates_are_replaced_and_pairs_are_too():
    text, warnings = clean_text("a\ud800b\udfffc")

    assert text == "a\ufffdb\ufffdc"
    assert warnings == ["lone surrogates were replaced by U+FFFD"]
    assert len(replace_surrogates("\ud83d\ude00")) == 2, "spans must keep their meaning"


@pytest.mark.parametrize(
    ("data", "is_named_text", "expected"),
    [
        (b"plain text", False, False),
        (b"one NUL\x00 in a file of unknown kind", False, True),
        (b"one NUL\x00 in a file that is named text", True, False),
        (b"\x7fELF\x02\x01\x01" + bytes(57), True, True),
        ("UTF-16 without a mark is not text".encode("utf-16-le"), True, True),
        (codecs.BOM_UTF16_LE + "with a mark".encode("utf-16-le"), False, False),
        (b"", False, False),
    ],
)
def test_binary_is_told_from_text(data, is_named_text, expected):
    assert looks_binary(data, is_named_text) is expected
