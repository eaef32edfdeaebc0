"""Where documents are cut, and what a segment holds."""

from __future__ import annotations

import pytest

from kvpacket_store.text import segment_document
from kvpacket_store.types import Document, Segment

PARAGRAPH = "The quick brown fox jumps over the lazy dog. It does so every day. Nobody knows why."


@pytest.fixture
def cut(character_tokenizer):
    """A function: text → segments of so many characters."""

    def segments_of(text, max_tokens, media_type="text/plain", **metadata):
        document = Document("d", text, {"media_type": media_type, **metadata})
        return segment_document(document, character_tokenizer(), max_tokens)

    return segments_of


def spans(text: str, segments: list[Segment]) -> list[str]:
    return [text[segment.start_char : segment.end_char] for segment in segments]


def test_a_document_that_fits_is_one_segment(tokenizer, assert_lawful):
    for text in ["x", PARAGRAPH, f"  {PARAGRAPH}\n\n{PARAGRAPH}\n", "한", "😀"]:
        (segment,) = assert_lawful(Document("d", text), tokenizer, 512)
        assert segment.text == text.strip() + "\n"


def test_the_title_stands_before_every_segment(tokenizer, assert_lawful):
    text = "\n\n".join([PARAGRAPH] * 20)
    document = Document("d", text, {"title": " A  fox\nstory "})

    segments = assert_lawful(document, tokenizer, 100)

    assert len(segments) > 3
    assert all(segment.text.startswith("A fox story\nThe quick") for segment in segments)


@pytest.mark.parametrize(
    "title",
    ["word " * 200, "x" * 100_000, "😀" * 100],
    ids=["words", "one word", "emoji"],
)
def test_a_long_title_is_cut_off_at_a_quarter(byte_bpe, title, assert_lawful):
    text = "\n\n".join([PARAGRAPH] * 5)

    segments = assert_lawful(Document("d", text, {"title": title}), byte_bpe, 64)

    title_line, _ = segments[0].text.split("\n", maxsplit=1)
    assert title.startswith(title_line)
    assert 12 <= len(byte_bpe.tokenize(f"{title_line}\n")) <= 16


@pytest.mark.parametrize("title", ["", "  \n", None])
def test_an_empty_title_is_none(title, cut):
    (segment,) = cut("text", 100, title=title)

    assert segment.text == "text\n"


def test_paragraphs_are_filled_greedily(cut):
    text = "\n\n".join(["a" * 30, "b" * 30, "c" * 30, "d" * 60])

    assert spans(text, cut(text, 100)) == [
        "a" * 30 + "\n\n" + "b" * 30 + "\n\n" + "c" * 30,
        "d" * 60,
    ]


def test_a_long_paragraph_is_cut_at_sentence_ends(cut):
    text = " ".join(f"Sentence number {number} is here." for number in range(10, 30))

    parts = spans(text, cut(text, 100))

    assert len(parts) > 3
    assert all(part.startswith("Sentence") and part.endswith("here.") for part in parts)


def test_chinese_is_cut_at_its_own_sentence_ends(cut):
    text = "".join(f"这是第{number}个句子。" for number in range(10, 60))

    assert all(part.endswith("句子。") for part in spans(text, cut(text, 50)))


def test_a_long_sentence_is_cut_between_words(cut):
    words = [f"word{number}" for number in range(300)]
    text = " ".join(words)

    parts = spans(text, cut(text, 64))

    assert " ".join(parts).split() == words
    assert all(len(part) >= 48 for part in parts[:-1])


def test_a_long_word_is_cut_between_characters(cut):
    text = "x" * 1000

    parts = spans(text, cut(text, 64))

    assert "".join(parts) == text
    assert all(len(part) >= 48 for part in parts[:-1])


def test_no_segment_is_left_half_empty_for_a_better_cut(cut):
    text = "a" * 10 + "\n\n" + " ".join(["Sentence one is here."] * 20)

    parts = spans(text, cut(text, 100))

    assert parts[0].startswith("a" * 10 + "\n\nSentence")
    assert all(50 <= len(part) <= 99 for part in parts[:-1])


def test_markdown_is_cut_at_headings_first(cut):
    section = "{} {}\n\nSome text that fills.\n\nAnd some more of that text.\n\n"
    text = "".join(section.format("##" if number % 3 else "#", number) for number in range(12))

    parts = spans(text, cut(text, 130, "text/markdown"))

    assert all(part.startswith("#") for part in parts)


def test_fenced_code_in_markdown_is_kept_together(cut):
    fence = "```\nfirst = 1\n\nsecond = 2\n```"
    text = "\n\n".join(["A paragraph of forty characters is here.", fence] * 6)

    parts = spans(text, cut(text, 100, "text/markdown"))

    assert all(part.count("```") % 2 == 0 for part in parts)


def test_python_is_cut_at_definitions(cut):
    function = "def f{}(x):\n    a = x + 1\n\n    return a\n\n\n"
    text = "".join(function.format(number) for number in range(12))

    parts = spans(text, cut(text, 120, "text/x-python"))

    assert len(parts) > 3
    assert all(part.startswith("def f") for part in parts)


def test_methods_keep_their_indentation(cut):
    method = "    def f{}(self):\n        return self.value + 1\n\n"
    text = "class A:\n" + "".join(method.format(number) for number in range(12))

    parts = spans(text, cut(text, 150, "text/x-python"))

    assert len(parts) > 3
    assert all(part.startswith("    def f") for part in parts[1:])


def test_other_code_is_cut_before_unindented_lines(cut):
    function = "int f{}() {{\n  int a = 1;\n\n  return a;\n}}\n\n"
    text = "".join(function.format(number) for number in range(12))

    parts = spans(text, cut(text, 100, "text/x-c"))

    assert all(part.startswith("int f") and part.endswith("}") for part in parts)


@pytest.mark.parametrize(
    "media_type",
    ["text/plain", "TEXT/Markdown; charset=utf-8", "text/x-python", "text/x-go", "x", ""],
)
def test_every_media_type_is_lawful(tokenizer, novel, media_type, assert_lawful):
    document = Document("d", novel[:20_000], {"media_type": media_type, "title": "Alice"})

    assert len(assert_lawful(document, tokenizer, 128)) > 20
