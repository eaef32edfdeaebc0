"""Drafted text is shown where it was asked for, says so, and is never part of the answer."""

import threading

import pytest

from kvpacket_store.api import Engine
from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.api.text_answer import ProvisionalText
from kvpacket_store.types import Document

QUESTION = "Where does the Rhine rise?"
DOCS = [Document("rhine", "The Rhine rises in the Alps. " * 8)]
ASKED = {"documents": ["rhine"], "max_new_tokens": 20, "ignore_eos": True}


@pytest.fixture
def store(new_store):
    store = new_store(segment_tokens=64)
    store.ingest(DOCS)
    return store


@pytest.fixture
def layered(new_store, pack_of):
    """A store with bases, which are drafted on while the exact K and V are on their way."""
    store = new_store(
        codec="linear", layers=2, kv_dtype="bf16", codec_pack=pack_of(), segment_tokens=64
    )
    store.ingest(DOCS)
    return store


@pytest.mark.parametrize("compressor", ["exact", "snapkv:0.25*int4", "noise:1"])
@pytest.mark.parametrize("sampled", [{}, {"temperature": 1.2, "seed": 5}])
def test_final_pieces_are_those_of_plain_decoding(store, compressor, sampled):
    engine = Engine(store)
    plain = engine.generate(QUESTION, decode="full", **ASKED, **sampled)
    drafted = {"decode": "verified", "compressor": compressor, "draft_tokens": 3}
    pieces = [*engine.stream(QUESTION, provisional=True, **ASKED, **sampled, **drafted)]
    assert "".join(piece.text for piece in pieces if not piece.provisional) == plain.text
    assert pieces[-1].answer.token_ids == plain.token_ids
    shown = [piece for piece in pieces if piece.provisional]
    assert shown
    assert all(piece.text and piece.answer is None for piece in shown)


def test_a_draft_that_is_right_is_said_before_the_final_text(store):
    drafted = {"decode": "verified", "compressor": "exact", "draft_tokens": 3}
    pieces = [*Engine(store).stream(QUESTION, provisional=True, **ASKED, **drafted)]
    first = next(i for i, piece in enumerate(pieces) if piece.provisional)
    run = []
    while pieces[first + len(run)].provisional:
        run.append(pieces[first + len(run)].text)
    final = "".join(p.text for p in pieces[first:] if not p.provisional)
    assert final.startswith("".join(run))


def test_drafts_on_a_base_are_shown_before_the_first_final_token(layered):
    engine = Engine(layered)
    exact = engine.generate(QUESTION, decode="full", **ASKED)
    is_open = threading.Event()
    engine.decoder.policy = SwapPolicy(link=lambda _: is_open.wait(60))
    asked = {**ASKED, "decode": "verified", "compressor": "base"}
    pieces = []
    for piece in engine.stream(QUESTION, provisional=True, **asked):
        pieces.append(piece)
        is_open.set()  # the exact K and V arrive once something was shown
    answer = pieces[-1].answer
    assert answer.token_ids == exact.token_ids
    assert answer.timings_ms.first_draft <= answer.timings_ms.first_token
    assert pieces[0].provisional


def test_without_being_asked_for_none_comes(store):
    pieces = Engine(store).stream(QUESTION, decode="verified", compressor="int8", **ASKED)
    assert not any(piece.provisional for piece in pieces)


def test_text_of_a_draft_has_whole_characters_and_begins_anew(model):
    text = ProvisionalText(model.tokenizer)
    assert [text.push(token_id) for token_id in model.tokenizer.tokenize("né")] == ["n", "", "é"]
    text.push(model.tokenizer.tokenize("é")[0])
    text.forget()
    assert text.push(model.tokenizer.tokenize("a")[0]) == "a"
