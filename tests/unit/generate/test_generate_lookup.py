"""Prompt lookup: every proposal followed what the request's own tokens end in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpacket_store.generate import (
    Answering,
    BlockTarget,
    Costs,
    FixedHorizon,
    GenerationOptions,
    Horizon,
    LookupDraft,
    NGramIndex,
    NoDraft,
    Sampler,
    VerifiedCounts,
    decode_alone,
    slots_for,
    verified_decoding,
)
from kvpacket_store.generate import lookup as module
from kvpacket_store.generate.lookup import Match

OPTIONS = GenerationOptions(max_new_tokens=40)
PROMPT = (*range(40, 70), *range(50, 60))
few_tokens = st.lists(st.integers(0, 3), max_size=40)


def after_match(index, count):
    match = index.match()
    return None if match is None else index.after(match, count)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        pytest.param([1, 2, 3, 4, 7, 9, 3, 4, 8, 1, 2, 3, 4], [7, 9], id="longest-before-recent"),
        pytest.param([1, 2, 7, 5, 1, 2, 8, 5, 1, 2], [8, 5], id="recent-of-equal"),
        pytest.param([5, 1, 2, 3, 1, 2, 3], [1, 2], id="repetition"),
    ],
)
def test_what_followed_is_proposed(tokens, expected):
    assert after_match(NGramIndex(tokens), 2) == expected


def test_a_repetition_goes_on_over_the_end():
    assert after_match(NGramIndex([5, 1, 2, 3, 1, 2, 3]), 7) == [1, 2, 3, 1, 2, 3, 1]


@pytest.mark.parametrize("prompt", [(), (1,), (1, 2), (1, 2, 3, 4, 5, 6)])
def test_nothing_is_proposed_where_nothing_matches(prompt):
    assert NGramIndex([*prompt, 7]).match() is None


def longest_suffix_match(tokens, lengths):
    """The definition, by hand: where the most recent occurrence of the longest n-gram ends."""
    for length in sorted(lengths, reverse=True):
        gram = tokens[len(tokens) - length :]
        for end in range(len(tokens) - 1, length - 1, -1):
            if length <= len(tokens) and tokens[end - length : end] == gram:
                return Match(length, end)
    return None


@pytest.mark.property
@given(
    few_tokens,
    st.lists(few_tokens, max_size=4),
    st.integers(0, 12),
    st.sets(st.integers(1, 6), min_size=1),
)
def test_every_proposal_follows_the_matching_tokens(prompt, rounds, count, lengths):
    index, tokens = NGramIndex(prompt, lengths), [*prompt]
    for fresh in rounds:
        tokens += fresh
        index.extend(fresh)
        match = longest_suffix_match(tokens, lengths)
        assert index.match() == match
        if match is not None:
            proposed = index.after(match, count)
            assert proposed == [*tokens, *proposed][match.end : match.end + count]


def test_the_index_keeps_what_is_recent(monkeypatch):
    monkeypatch.setattr(module, "_MOST_ENTRIES", 40)
    index = NGramIndex(range(1000))
    assert len(index._ends) <= 40
    index.extend([992, 993, 994])
    assert after_match(index, 2) == [995, 996]
    index.extend([3, 4, 5])
    assert index.match() is None
    index.extend(range(5000, 6000))
    assert len(index._ends) == 40
    index.extend([5996, 5997])
    assert after_match(index, 2) == [5998, 5999]


@pytest.mark.parametrize("lengths", [(), (2, 0)])
def test_lengths_are_checked(lengths):
    with pytest.raises(ValueError, match="one at least"):
        NGramIndex([1], lengths)


def drafting(index):
    return LookupDraft(index, Costs(row=0.01))


def proposals(draft, fresh, company=1):
    answering = Answering(Sampler.of(OPTIONS), OPTIONS, PROMPT, frozenset(), company=company)
    part = draft.propose(answering, fresh, 32, None)
    with pytest.raises(StopIteration) as end:
        next(part)
    return end.value.value


def test_among_many_only_long_matches_are_worth_their_rows():
    costs = Costs(row=0.127, shared=0.81)  # SmolLM2 at 2,100 slots
    prompt = [1, 2, *range(100, 110), 5, *range(20, 28), *range(200, 210), 5]
    short, long = [1, 2], [*range(20, 28)]
    alone = [len(proposals(LookupDraft(NGramIndex(prompt), costs), last)) for last in (short, long)]
    among = [
        len(proposals(LookupDraft(NGramIndex(prompt), costs), last, company=8))
        for last in (short, long)
    ]
    assert alone[0] > 0
    assert alone[1] >= among[1] > 0 == among[0]


def test_each_length_follows_what_becomes_of_its_own_matches():
    costs = Costs(row=0.127)
    prompt = [1, 2, 9, *range(20, 28), 50, 6]
    draft = LookupDraft(NGramIndex(prompt), costs)
    long = [*range(20, 28)]
    expected = len(proposals(LookupDraft(NGramIndex(prompt), costs), long))
    counts = []
    for unseen in range(1000, 1040):
        counts.append(len(proposals(draft, [unseen, 1, 2])))
        draft.learn(counts[-1], 0)
    assert counts[0] > 0
    assert sum(counts[-16:]) <= 1  # it looks again now and then
    assert len(proposals(draft, long)) == expected > 0


def test_it_gives_way_where_more_is_expected_of_what_comes_after_it():
    costs = Costs(draft=0.3, row=0.127)
    prompt = [1, 2, 9, *range(20, 28), 50, 6]
    good, bad = Horizon(costs, start=0.98), Horizon(costs, start=0.1)
    for rival, length, is_proposed in [
        (good, 2, False), (bad, 2, True), (good, 8, True), (FixedHorizon(4), 2, True)
    ]:  # fmt: skip
        draft = LookupDraft(NGramIndex(prompt), costs, rival)
        fresh = [1, 2] if length == 2 else [*range(20, 28)]
        assert bool(proposals(draft, fresh)) == is_proposed
        draft.learn(0, 0)  # of a round that another draft made


def test_it_looks_again_now_and_then_where_it_gives_way():
    costs = Costs(draft=0.3, row=0.127)
    draft = LookupDraft(NGramIndex([1, 2, 9, 5]), costs, Horizon(costs, start=0.98))
    counts = [len(proposals(draft, [unseen, 1, 2])) for unseen in range(1000, 1032)]
    assert sum(map(bool, counts)) == 2


def answer(model, draft, **options):
    options = GenerationOptions(max_new_tokens=60, **options)
    cache = model.new_cache(slots_for(len(PROMPT), options.max_new_tokens))
    logits = model.forward(PROMPT, cache)[-1]
    counts = VerifiedCounts()
    answering = Answering(Sampler.of(options), options, PROMPT, frozenset())
    decoding = verified_decoding(answering, BlockTarget(cache, logits), draft, counts)
    return [e.token_id for e in decode_alone(decoding, model.row_forward())], counts


@pytest.mark.parametrize("sampled", [{}, {"temperature": 0.3, "seed": 1, "sampling_top_k": 3}])
def test_verified_with_it_gives_the_reference(any_model, sampled):
    reference, _ = answer(any_model, NoDraft(), **sampled)
    assert answer(any_model, drafting(NGramIndex(PROMPT)), **sampled)[0] == reference
    quoting = NGramIndex([*PROMPT[-4:], *reference, *PROMPT])  # the answer stands in a document
    found, counts = answer(any_model, drafting(quoting), **sampled)
    assert found == reference
    assert counts.accepted > 30
