"""Samples: limits, variety, the split, and that numbers alone decide what is in them."""

import pytest

from kvpacket_store.errors import UsageError
from kvpacket_store.models import PromptFormat
from kvpacket_store.text import QuestionItem
from kvpacket_store.training.samples import Sampler
from kvpacket_store.training.sources import Pool, split
from kvpacket_store.types import Document


@pytest.fixture
def make_sampler(model, corpus, tiny_options):
    """A function: options that differ → a sampler of all documents."""

    def make(**given):
        pool = Pool(tuple(corpus.documents), tuple(corpus.questions))
        return Sampler(pool, model.tokenizer, tiny_options(**given), "train")

    return make


def test_a_sample_follows_from_its_number_alone(make_sampler):
    first = [make_sampler().sample(i) for i in range(8)]
    again = make_sampler()
    assert [again.sample(i) for i in reversed(range(8))] == first[::-1]
    assert len({sample.digest for sample in first}) == 8
    assert make_sampler(seed=1).sample(0) != first[0]


def test_number_order_and_length_of_packets_vary(make_sampler):
    samples = [make_sampler(max_packets=4, sample_tokens=1500).sample(i) for i in range(40)]
    assert {len(sample.segments) for sample in samples} == {1, 2, 3, 4}
    assert len({len(segment) for sample in samples for segment in sample.segments}) > 5
    assert len({kind for sample in samples for kind in sample.kinds}) >= 6


@pytest.mark.parametrize("sample_tokens", [520, 560, 700, 1500])
def test_no_sample_is_longer_than_asked(make_sampler, tiny_options, sample_tokens):
    options = tiny_options(sample_tokens=sample_tokens)
    sampler = make_sampler(sample_tokens=sample_tokens)
    for sample in map(sampler.sample, range(30)):
        packets = sum(len(s) + 2 * options.num_tokens for s in sample.segments)
        asked = sum(len(q) + options.answer_tokens for q in sample.questions)
        assert len(sample.preamble) + packets + asked <= sample_tokens
        assert len(sample.questions) == len(sample.kinds) >= 1


def test_tokens_are_those_that_the_engine_assembles(make_sampler, model, new_store, documents):
    """Segments as a store cuts them, preamble and question as the prompt has them."""
    store = new_store()
    prompt = PromptFormat(model.tokenizer)
    known = {s.token_ids for document in documents for s in store.segments(document)}
    sampler = make_sampler(max_packets=2)
    samples = [sampler.sample(i) for i in range(12)]
    whole = [s for s in samples if "lookup" not in s.kinds]
    assert any(segment in known for sample in whole for segment in sample.segments)
    for sample in samples:
        assert sample.preamble == prompt.preamble_ids
        for question, kind in zip(sample.questions, sample.kinds, strict=True):
            if kind == "question":
                text = model.tokenizer.detokenize(question)
                name = text.partition("How long is the ")[2].partition("?")[0]
                assert question == prompt.question_ids(f"How long is the {name}?")


def test_what_is_looked_up_is_in_a_packet(make_sampler, model):
    sampler = make_sampler(sample_tokens=1800, questions=3)
    found = 0
    for sample in map(sampler.sample, range(60)):
        texts = "".join(model.tokenizer.detokenize(segment) for segment in sample.segments)
        planted = ("code", "worth", "meeting", "special", "keeper")
        if "lookup" in sample.kinds:
            found += 1
            assert any(word in texts for word in planted) or any(c in texts for c in ":=|")
    assert found > 5


def test_no_sample_without_room_is_an_error(make_sampler):
    with pytest.raises(UsageError, match="raise sample_tokens"):
        make_sampler(sample_tokens=200).sample(0)


def test_a_text_is_on_one_side_only(corpus):
    copies = [Document(f"copy-{d.id}", d.text, d.metadata) for d in corpus.documents]
    train, held_out = split([*corpus.documents, *copies], corpus.questions)
    sides = [{d.text for d in pool.documents} for pool in (train, held_out)]
    assert sides[0].isdisjoint(sides[1])
    assert len(sides[0] | sides[1]) == len(corpus.documents)
    assert len(sides[1]) == 1
    assert len(train.questions) + len(held_out.questions) == len(corpus.questions)
    for pool, texts in zip((train, held_out), sides, strict=True):
        for item in pool.questions:
            assert {d.text for d in item.documents} <= texts


def test_a_question_goes_where_its_answer_is(documents):
    items = [QuestionItem("?", ["107 km"], documents) for _ in range(3)]
    for seed in range(6):
        train, held_out = split([], items, seed)
        sides = [pool for pool in (train, held_out) if pool.questions]
        assert len(sides) == 1
        assert all(any("107 km" in d.text for d in i.documents) for i in sides[0].questions)


@pytest.mark.parametrize("texts", [[], ["x" * 50], ["short", "x" * 50], ["x" * 50, "x" * 50]])
def test_too_little_text_is_refused(texts):
    documents = [Document(str(i), text) for i, text in enumerate(texts)]
    with pytest.raises(UsageError, match="2 are the least"):
        split(documents, [])
