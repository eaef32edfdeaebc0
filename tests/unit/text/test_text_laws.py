"""Laws of segments, for any document and tokenizers of three kinds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvpacket_store.text import segment_document
from kvpacket_store.types import Document

pytestmark = pytest.mark.property
laws = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

MEDIA_TYPES = ["text/plain", "text/markdown", "text/x-python", "text/x-rust", "text/html"]
BUILDING_BLOCKS = [
    "\n\n", "\n", " ", "  ", "\t", "\r\n", ". ", "。", "! ", "# ", "## ", "```\n", "- ", "> ",
    "---\n", "def f(x):\n", "class A:\n", "    ", "@x\n", '"""', "(", "}", "<|im_start|>", "</s>",
    "[CLS]", "<0x0A>", "▁", "\ufeff", "\x00", "\u200b", "\ufffd", "😀", "👩\u200d👧", "שלום",
    "漢字", "é", "word", "antidisestablishmentarianism", "Mr. X", "3.14", "x" * 90, " " * 50,
    "=" * 40, "long sentence " * 6,
]  # fmt: skip
characters = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
texts = st.lists(st.sampled_from(BUILDING_BLOCKS) | characters, max_size=60).map("".join)
titles = st.none() | st.text(max_size=60)


@laws
@given(
    text=texts,
    title=titles,
    media_type=st.sampled_from(MEDIA_TYPES),
    max_tokens=st.integers(16, 80),
)
def test_segments_tile_the_text_within_the_limit(tokenizer, text, title, media_type, max_tokens):
    text = text + "end"  # never empty
    document = Document("d", text, {"title": title, "media_type": media_type})

    segments = segment_document(document, tokenizer, max_tokens)

    position = 0
    for segment in segments:
        assert text[position : segment.start_char].strip() == ""
        assert position <= segment.start_char < segment.end_char
        position = segment.end_char
        assert 1 <= len(segment.token_ids) <= max_tokens
        assert segment.token_ids == tokenizer.tokenize(segment.text)
        assert segment.text.endswith(text[segment.start_char : position] + "\n")
        assert tokenizer.special_ids.isdisjoint(segment.token_ids)
    assert text[position:].strip() == ""
    assert segments == segment_document(document, tokenizer, max_tokens), "deterministic"


@laws
@given(text=texts, media_type=st.sampled_from(MEDIA_TYPES))
def test_a_document_that_fits_is_one_segment(tokenizer, text, media_type):
    text = text + "end"
    # Markdown and code keep the indentation of their first line.
    num_tokens = max(len(tokenizer.tokenize(f"{t}\n")) for t in (text.strip(), text))
    max_tokens = max(num_tokens, len(text) // 16 + 1, 16)
    document = Document("d", text, {"media_type": media_type})

    assert len(segment_document(document, tokenizer, max_tokens)) == 1


@laws
@given(
    text=texts,
    ends=st.tuples(texts, texts),
    # Not Python: there, an end can close a string that was opened far above.
    media_type=st.sampled_from([kind for kind in MEDIA_TYPES if kind != "text/x-python"]),
)
def test_what_comes_later_does_not_move_earlier_cuts(tokenizer, text, ends, media_type):
    stem = "A stem that is long enough to be cut. " * 20 + "\n\n" + text + "\n\n"
    settled = []
    for end in ends:
        document = Document("d", stem + end + "end", {"media_type": media_type})
        segments = segment_document(document, tokenizer, 24)
        # A cut may depend on the piece behind it, and that on what follows: three segments at most.
        settled.append([segment for segment in segments if segment.end_char < len(stem)][:-3])

    num_settled = min(map(len, settled))
    assert num_settled > 3
    assert settled[0][:num_settled] == settled[1][:num_settled]
