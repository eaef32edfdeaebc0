"""Where documents are cut, and what a segment holds."""

from __future__ import annotations

import pytest

from kvpacket_store.errors import DocumentError, ModelError, UsageError
from kvpacket_store.text import segment_document
from kvpacket_store.text.segment import MIN_MAX_TOKENS
from kvpacket_store.types import Document, Segment

PARAGRAPH = "The quick brown fox jumps over the lazy dog. It does so every day. Nobody knows why."


class CharacterTokenizer:
    """One token a character, and a note of all that was tokenized."""

    digest = ""
    special_ids = frozenset([0x110000])

    def __init__(self) -> None:
        self.num_calls = 0
        self.num_chars = 0
        self.longest_chars = 0

    def tokenize(self, text: str) -> tuple[int, ...]:
        self.num_calls += 1
        self.num_chars += len(text)
        self.longest_chars = max(self.longest_chars, len(text))
        return tuple(map(ord, text))

    def detokenize(self, token_ids) -> str:
        return "".join(map(chr, token_ids))


def cut(text: str, max_tokens: int, media_type: str = "text/plain", **metadata) -> list[Segment]:
    document = Document("d", text, {"media_type": media_type, **metadata})
    return segment_document(document, CharacterTokenizer(), max_tokens)


def spans(text: str, segments: list[Segment]) -> list[str]:
    return [text[segment.start_char : segment.end_char] for segment in segments]


def assert_lawful(document: Document, tokenizer, max_tokens: int) -> list[Segment]:
    """The laws of ``segment_document``, for any document; return the segments."""
    segments = segment_document(document, tokenizer, max_tokens)
    text, position = document.text, 0
    for segment in segments:
        assert text[position : segment.start_char].strip() == "", "only whitespace between spans"
        assert position <= segment.start_char < segment.end_char
        position = segment.end_char
        assert 1 <= len(segment.token_ids) <= max_tokens
        assert segment.token_ids == tokenizer.tokenize(segment.text)
        assert tokenizer.special_ids.isdisjoint(segment.token_ids)
        assert segment.text.endswith(f"{text[segment.start_char : position]}\n")
    assert text[position:].strip() == ""
    return segments


def test_a_document_that_fits_is_one_segment(tokenizer):
    for text in ["x", PARAGRAPH, f"  {PARAGRAPH}\n\n{PARAGRAPH}\n", "한", "😀"]:
        (segment,) = assert_lawful(Document("d", text), tokenizer, 512)
        assert segment.text == text.strip() + "\n"


def test_the_title_stands_before_every_segment(tokenizer):
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
def test_a_long_title_is_cut_off_at_a_quarter(byte_bpe, title):
    text = "\n\n".join([PARAGRAPH] * 5)

    segments = assert_lawful(Document("d", text, {"title": title}), byte_bpe, 64)

    title_line, _ = segments[0].text.split("\n", maxsplit=1)
    assert title.startswith(title_line)
    assert 12 <= len(byte_bpe.tokenize(f"{title_line}\n")) <= 16


@pytest.mark.parametrize("title", ["", "  \n", None])
def test_an_empty_title_is_none(title):
    (segment,) = cut("text", 100, title=title)

    assert segment.text == "text\n"


def test_paragraphs_are_filled_greedily():
    text = "\n\n".join(["a" * 30, "b" * 30, "c" * 30, "d" * 60])

    assert spans(text, cut(text, 100)) == [
        "a" * 30 + "\n\n" + "b" * 30 + "\n\n" + "c" * 30,
        "d" * 60,
    ]


def test_a_long_paragraph_is_cut_at_sentence_ends():
    text = " ".join(f"Sentence number {number} is here." for number in range(10, 30))

    parts = spans(text, cut(text, 100))

    assert len(parts) > 3
    assert all(part.startswith("Sentence") and part.endswith("here.") for part in parts)


def test_chinese_is_cut_at_its_own_sentence_ends():
    text = "".join(f"这是第{number}个句子。" for number in range(10, 60))

    assert all(part.endswith("句子。") for part in spans(text, cut(text, 50)))


def test_a_long_sentence_is_cut_between_words():
    words = [f"word{number}" for number in range(300)]
    text = " ".join(words)

    parts = spans(text, cut(text, 64))

    assert " ".join(parts).split() == words
    assert all(len(part) >= 48 for part in parts[:-1])


def test_a_long_word_is_cut_between_characters():
    text = "x" * 1000

    parts = spans(text, cut(text, 64))

    assert "".join(parts) == text
    assert all(len(part) >= 48 for part in parts[:-1])


def test_no_segment_is_left_half_empty_for_a_better_cut():
    text = "a" * 10 + "\n\n" + " ".join(["Sentence one is here."] * 20)

    parts = spans(text, cut(text, 100))

    assert parts[0].startswith("a" * 10 + "\n\nSentence")
    assert all(50 <= len(part) <= 99 for part in parts[:-1])


def test_markdown_is_cut_at_headings_first():
    section = "{} {}\n\nSome text that fills.\n\nAnd some more of that text.\n\n"
    text = "".join(section.format("##" if number % 3 else "#", number) for number in range(12))

    parts = spans(text, cut(text, 130, "text/markdown"))

    assert all(part.startswith("#") for part in parts)


def test_fenced_code_in_markdown_is_kept_together():
    fence = "```\nfirst = 1\n\nsecond = 2\n```"
    text = "\n\n".join(["A paragraph of forty characters is here.", fence] * 6)

    parts = spans(text, cut(text, 100, "text/markdown"))

    assert all(part.count("```") % 2 == 0 for part in parts)


def test_python_is_cut_at_definitions():
    function = "def f{}(x):\n    a = x + 1\n\n    return a\n\n\n"
    text = "".join(function.format(number) for number in range(12))

    parts = spans(text, cut(text, 120, "text/x-python"))

    assert len(parts) > 3
    assert all(part.startswith("def f") for part in parts)


def test_methods_keep_their_indentation():
    method = "    def f{}(self):\n        return self.value + 1\n\n"
    text = "class A:\n" + "".join(method.format(number) for number in range(12))

    parts = spans(text, cut(text, 150, "text/x-python"))

    assert len(parts) > 3
    assert all(part.startswith("    def f") for part in parts[1:])


def test_other_code_is_cut_before_unindented_lines():
    function = "int f{}() {{\n  int a = 1;\n\n  return a;\n}}\n\n"
    text = "".join(function.format(number) for number in range(12))

    parts = spans(text, cut(text, 100, "text/x-c"))

    assert all(part.startswith("int f") and part.endswith("}") for part in parts)


@pytest.mark.parametrize(
    "media_type",
    ["text/plain", "TEXT/Markdown; charset=utf-8", "text/x-python", "text/x-go", "x", ""],
)
def test_every_media_type_is_lawful(tokenizer, novel, media_type):
    document = Document("d", novel[:20_000], {"media_type": media_type, "title": "Alice"})

    assert len(assert_lawful(document, tokenizer, 128)) > 20


@pytest.mark.parametrize("text", ["", " ", "\n\t\u3000"])
def test_an_empty_document_is_refused(tokenizer, text):
    with pytest.raises(DocumentError, match="is empty"):
        segment_document(Document("d", text, {"title": "T"}), tokenizer)


def test_text_that_the_tokenizer_drops_altogether_is_refused(wordpiece):
    assert wordpiece.tokenize("\u200b\u200b") == ()

    with pytest.raises(DocumentError, match="is empty"):
        segment_document(Document("d", "\u200b\u200b"), wordpiece)


def test_every_control_token_in_a_text_stays_text(tokenizer):
    text = " ".join(tokenizer.control_tokens) + "".join(tokenizer.control_tokens) * 50

    for max_tokens in (MIN_MAX_TOKENS, 64, 4096):
        assert_lawful(Document("d", text, {"title": text}), tokenizer, max_tokens)


def test_a_tokenizer_that_makes_control_tokens_of_text_is_refused(byte_bpe):
    class Careless(type(byte_bpe)):
        def __init__(self):
            self.special_ids = byte_bpe.special_ids

        def tokenize(self, text):
            return tuple(3 if c == "<" else 7 for c in text)

    with pytest.raises(ModelError, match="control tokens"):
        segment_document(Document("d", "a < b"), Careless())


def test_lone_surrogates_become_replacement_characters(tokenizer):
    document = Document("d", "one \ud800 two \udfff three", {"title": "\udc00 title"})

    (segment,) = segment_document(document, tokenizer)

    assert segment.text == "\ufffd title\none \ufffd two \ufffd three\n"
    assert (segment.start_char, segment.end_char) == (0, len(document.text))


@pytest.mark.parametrize("metadata", [{"title": 7}, {"media_type": ["text/plain"]}])
def test_metadata_of_another_type_is_an_error_of_the_document(metadata):
    with pytest.raises(DocumentError, match="no string"):
        segment_document(Document("d", "x", metadata), CharacterTokenizer())


@pytest.mark.parametrize("max_tokens", [15, 0, -1])
def test_segments_cannot_be_shorter_than_a_character_needs(max_tokens):
    with pytest.raises(UsageError, match="16 or more"):
        cut("text", max_tokens)


def test_a_character_that_fits_nowhere_is_an_error_of_the_document():
    class Verbose(CharacterTokenizer):
        def tokenize(self, text):
            return super().tokenize(text) * 20

    with pytest.raises(DocumentError, match="longer segments"):
        segment_document(Document("d", "abc"), Verbose(), 16)


def test_pieces_that_have_more_tokens_together_are_shrunk():
    class Superadditive(CharacterTokenizer):
        def tokenize(self, text):
            return super().tokenize(text) + (1,) * (len(text) // 10)

    text = "\n\n".join([PARAGRAPH] * 10)

    assert_lawful(Document("d", text), Superadditive(), 100)


@pytest.mark.parametrize("kind", ["byte_bpe", "sentencepiece", "wordpiece"])
@pytest.mark.parametrize("max_tokens", [MIN_MAX_TOKENS, 64])
@pytest.mark.parametrize(
    "text",
    [
        "שלום עולם. " * 200,
        "مرحبا بالعالم! " * 200,
        "你好世界" * 300,
        "こんにちは。" * 200,
        "👩‍👩‍👧‍👦" * 200,
        "é" * 500,
        "\u200b" * 500 + "x",
        "a\x00b" * 300,
        "\t\r\n \u2028" * 300 + "end",
        "." * 2000,
        "word" * 2000,
    ],
    ids=[
        "hebrew",
        "arabic",
        "chinese",
        "japanese",
        "joined emoji",
        "accents",
        "zero width",
        "nul",
        "spaces",
        "dots",
        "one word",
    ],
)
def test_scripts_and_oddities_are_lawful(request, kind, max_tokens, text):
    assert_lawful(Document("d", text, {"title": "T"}), request.getfixturevalue(kind), max_tokens)


@pytest.mark.parametrize(
    "text",
    ["x" * 10**6, "x y " * 250_000, "1\n" * 500_000, "\n" * 10**6 + "x"],
    ids=["one word", "short words", "short lines", "newlines"],
)
@pytest.mark.parametrize("media_type", ["text/plain", "text/x-go"])
def test_every_character_is_tokenized_a_few_times_only(text, media_type):
    tokenizer = CharacterTokenizer()
    document = Document("d", text, {"media_type": media_type})

    assert_lawful(document, tokenizer, 512)

    # Once in its piece, once more where that is split, once in its segment, once by this test.
    assert tokenizer.num_chars < 8 * len(text)
    assert tokenizer.longest_chars <= 16 * 512 + 1
    assert tokenizer.num_calls < len(text) / 20, "small pieces are counted together"


def test_a_line_of_a_million_characters_is_cut(byte_bpe):
    assert_lawful(Document("d", "x" * 10**6), byte_bpe, 512)


def test_a_longer_end_leaves_the_earlier_segments_alone(tokenizer, novel):
    text = novel[:30_000]
    before = segment_document(Document("d", text), tokenizer, 128)
    after = segment_document(Document("d", text + " And then some more."), tokenizer, 128)

    assert len(before) > 50
    assert after[: len(before) - 2] == before[:-2]


def test_a_syntax_error_at_the_end_leaves_the_earlier_segments_alone(byte_bpe):
    text = "\n\n".join(f"def f{number}(x):\n    return x + {number}" for number in range(100))
    before = segment_document(Document("d", text, {"media_type": "text/x-python"}), byte_bpe, 64)
    broken = Document("d", text + "\n\ndef broken(:\n", {"media_type": "text/x-python"})

    assert segment_document(broken, byte_bpe, 64)[: len(before) - 2] == before[:-2]


@pytest.mark.slow
def test_twenty_megabytes_are_cut(byte_bpe, novel):
    text = novel * (20_000_000 // len(novel) + 1)

    segments = segment_document(Document("d", text), byte_bpe, 512)

    assert all(1 <= len(segment.token_ids) <= 512 for segment in segments)
    ends = [0, *(segment.end_char for segment in segments)]
    starts = [*(segment.start_char for segment in segments), len(text)]
    assert all(text[end:start].strip() == "" for end, start in zip(ends, starts, strict=True))
