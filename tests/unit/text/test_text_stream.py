"""What a user sees while tokens arrive: whole characters, and all of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpacket_store.text import TextStream

TEXTS = [
    "Plain words, a comma.",
    "naïve café — “quoted”",
    "你好，世界。これは日本語です。",
    "emoji 😀👩‍👩‍👧‍👦🇩🇪 done",
    "שלום עולם, مرحبا بالعالم",
    "line\n\n  indented\tand tabs   spaces ",
    "a genuine \ufffd in the text",
]


def streamed(tokenizer, token_ids) -> list[str]:
    stream = TextStream(tokenizer)
    return [*(stream.push(token_id) for token_id in token_ids), stream.finish()]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["byte_bpe", "sentencepiece"])
def test_streamed_text_is_the_detokenized_text(request, kind, text):
    tokenizer = request.getfixturevalue(kind)

    pieces = streamed(tokenizer, tokenizer.tokenize(text))

    assert "".join(pieces) == text


@pytest.mark.parametrize("kind", ["byte_bpe", "sentencepiece"])
def test_no_piece_holds_a_part_of_a_character(request, kind):
    tokenizer = request.getfixturevalue(kind)
    text = "a中b😀c한국어"
    assert len(tokenizer.tokenize("😀")) >= 4, "the emoji must arrive over several tokens"

    for piece in streamed(tokenizer, tokenizer.tokenize(text)):
        assert "\ufffd" not in piece


def test_every_space_between_words_is_kept(sentencepiece):
    text = "one two  three   four"

    pieces = streamed(sentencepiece, sentencepiece.tokenize(text))

    assert "".join(pieces) == text


def test_an_unfinished_character_is_held_until_the_end(byte_bpe):
    *first, _last = byte_bpe.tokenize("😀")
    stream = TextStream(byte_bpe)

    assert [stream.push(token_id) for token_id in first] == [""] * len(first)
    assert stream.finish() == "\ufffd"
    assert stream.finish() == ""


def test_endless_invalid_bytes_are_let_go_in_bounded_steps(byte_bpe):
    calls = []
    lone_byte = byte_bpe.tokenize("😀")[-1]

    class Counting:
        special_ids, digest = byte_bpe.special_ids, byte_bpe.digest

        def detokenize(self, token_ids):
            calls.append(len(token_ids))
            return byte_bpe.detokenize(token_ids)

    token_ids = [lone_byte] * 1000 + list(byte_bpe.tokenize("the end 中"))
    pieces = streamed(Counting(), token_ids)

    assert "".join(pieces) == byte_bpe.detokenize(token_ids)
    assert max(calls) <= 64, "the window must not grow with the text"


def test_a_character_behind_invalid_bytes_is_not_split(byte_bpe):
    lone_byte = byte_bpe.tokenize("😀")[-1]
    for num_invalid in range(28, 40):
        token_ids = [lone_byte] * num_invalid + list(byte_bpe.tokenize("😀中"))
        assert "".join(streamed(byte_bpe, token_ids)) == "\ufffd" * num_invalid + "😀中"


@pytest.mark.property
@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")))
def test_any_text_streams_losslessly(byte_bpe, text):
    assert "".join(streamed(byte_bpe, byte_bpe.tokenize(text))) == text


@pytest.mark.property
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_ids_stream_to_what_they_detokenize_to(byte_bpe, data):
    token_ids = data.draw(st.lists(st.integers(0, byte_bpe.backend.get_vocab_size() - 1)))

    assert "".join(streamed(byte_bpe, token_ids)) == byte_bpe.detokenize(token_ids)
