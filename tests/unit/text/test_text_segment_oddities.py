"""Documents that are hard to cut: refused, or cut by the same laws, at a bounded cost."""

from __future__ import annotations

import pytest

from kvpacket_store.errors import DocumentError, ModelError, UsageError
from kvpacket_store.text import segment_document
from kvpacket_store.text.segment import MIN_MAX_TOKENS
from kvpacket_store.types import Document

PARAGRAPH = "The quick brown fox jumps over the lazy dog. It does so every day. Nobody knows why."


@pytest.mark.parametrize("text", ["", " ", "\n\t\u3000"])
def test_an_empty_document_is_refused(tokenizer, text):
    with pytest.raises(DocumentError, match="is empty"):
        segment_document(Document("d", text, {"title": "T"}), tokenizer)


def test_text_that_the_tokenizer_drops_altogether_is_refused(wordpiece):
    assert wordpiece.tokenize("\u200b\u200b") == ()

    with pytest.raises(DocumentError, match="is empty"):
        segment_document(Document("d", "\u200b\u200b"), wordpiece)


def test_every_control_token_in_a_text_stays_text(tokenizer, assert_lawful):
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
def test_metadata_of_another_type_is_an_error_of_the_document(metadata, character_tokenizer):
    with pytest.raises(DocumentError, match="no string"):
        segment_document(Document("d", "x", metadata), character_tokenizer())


@pytest.mark.parametrize("max_tokens", [15, 0, -1])
def test_segments_cannot_be_shorter_than_a_character_needs(max_tokens, character_tokenizer):
    with pytest.raises(UsageError, match="16 or more"):
        segment_document(Document("d", "text"), character_tokenizer(), max_tokens)


def test_a_character_that_fits_nowhere_is_an_error_of_the_document(character_tokenizer):
    class Verbose(character_tokenizer):
        def tokenize(self, text):
            return super().tokenize(text) * 20

    with pytest.raises(DocumentError, match="longer segments"):
        segment_document(Document("d", "abc"), Verbose(), 16)


def test_pieces_that_have_more_tokens_together_are_shrunk(assert_lawful, character_tokenizer):
    class Superadditive(character_tokenizer):
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
def test_scripts_and_oddities_are_lawful(request, kind, max_tokens, text, assert_lawful):
    assert_lawful(Document("d", text, {"title": "T"}), request.getfixturevalue(kind), max_tokens)


@pytest.mark.parametrize(
    "text",
    ["x" * 10**6, "x y " * 250_000, "1\n" * 500_000, "\n" * 10**6 + "x"],
    ids=["one word", "short words", "short lines", "newlines"],
)
@pytest.mark.parametrize("media_type", ["text/plain", "text/x-go"])
def test_every_character_is_tokenized_a_few_times_only(
    text, media_type, assert_lawful, character_tokenizer
):
    tokenizer = character_tokenizer()
    document = Document("d", text, {"media_type": media_type})

    assert_lawful(document, tokenizer, 512)

    # Once in its piece, once more where that is split, once in its segment, once by this test.
    assert tokenizer.num_chars < 8 * len(text)
    assert tokenizer.longest_chars <= 16 * 512 + 1
    assert tokenizer.num_calls < len(text) / 20, "small pieces are counted together"


def test_a_line_of_a_million_characters_is_cut(byte_bpe, assert_lawful):
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
