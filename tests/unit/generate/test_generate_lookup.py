"""Prompt lookup: every proposal followed what the request's own tokens end in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpacket_store.generate import (
    Answering,
    BlockTarget,
    Costs,
    GenerationOptions,
    Horizon,
    LookupDraft,
    NoDraft,
    Sampler,
    TokenDraft,
    VerifiedCounts,
    decode_alone,
    slots_for,
    verified_decoding,
)
from kvpacket_store.generate import lookup as module

PROMPT = (*range(40, 70), *range(50, 60))
few_tokens = st.lists(st.integers(0, 3), max_size=40)


def test_the_longest_match_comes_before_the_most_recent():
    draft = LookupDraft([1, 2, 3, 4, 7, 9, 3, 4, 8, 1, 2, 3])
    assert draft.propose([4], 12, 2) == [7, 9]


def test_of_equal_matches_the_most_recent_wins():
    draft = LookupDraft([1, 2, 7, 5, 1, 2, 8, 5, 1])
    assert draft.propose([2], 9, 1) == [8]


def test_a_repetition_goes_on_over_the_end():
    draft = LookupDraft([5, 1, 2, 3, 1, 2])
    assert draft.propose([3], 6, 7) == [1, 2, 3, 1, 2, 3, 1]


@pytest.mark.parametrize("prompt", [(), (1,), (1, 2), (1, 2, 3, 4, 5, 6)])
def test_nothing_is_proposed_where_nothing_matches(prompt):
    assert list(LookupDraft(prompt).propose([7], len(prompt), 8)) == []


def test_what_was_handed_over_is_known_later():
    draft = LookupDraft([9])
    assert draft.propose([1, 2, 3], 3, 4) == []
    assert draft.propose([4, 1, 2], 6, 2) == [3, 4]
    assert draft.propose([], 6, 0) == []


def longest_suffix_match(tokens, longest, shortest):
    """The definition, by hand: where the most recent occurrence of the longest n-gram ends."""
    for length in range(longest, shortest - 1, -1):
        gram = tokens[len(tokens) - length :]
        for end in range(len(tokens) - 1, length - 1, -1):
            if length <= len(tokens) and tokens[end - length : end] == gram:
                return end
    return None


@pytest.mark.property
@given(few_tokens, st.lists(few_tokens, max_size=4), st.integers(0, 12), st.data())
def test_every_proposal_follows_the_matching_tokens(prompt, rounds, count, data):
    shortest = data.draw(st.integers(1, 3))
    longest = data.draw(st.integers(shortest, 4))
    draft, tokens = LookupDraft(prompt, longest=longest, shortest=shortest), [*prompt]
    for fresh in rounds:
        tokens += fresh
        proposed = draft.propose(fresh, len(tokens) - 1, count)
        end = longest_suffix_match(tokens, longest, shortest)
        assert len(proposed) == (0 if end is None else count)
        if end is not None:
            assert proposed == [*tokens, *proposed][end : end + count]


def test_the_index_keeps_what_is_recent(monkeypatch):
    monkeypatch.setattr(module, "_MOST_ENTRIES", 30)
    draft = LookupDraft(range(1000))
    assert len(draft._ends) <= 30
    assert draft.propose([992, 993, 994], 1002, 2) == [995, 996]
    assert draft.propose([3, 4, 5], 1005, 2) == []
    draft.propose(range(5000, 6000), 2005, 1)
    assert len(draft._ends) == 30
    assert draft.propose([5996, 5997], 2007, 2) == [5998, 5999]


@pytest.mark.parametrize(("longest", "shortest"), [(1, 2), (2, 0)])
def test_lengths_are_checked(longest, shortest):
    with pytest.raises(ValueError, match="shortest"):
        LookupDraft([1], longest=longest, shortest=shortest)


def drafting(lookup):
    return TokenDraft(lookup, Horizon(Costs(draft=0.0, row=0.01), most=10))


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
    assert answer(any_model, drafting(LookupDraft(PROMPT)), **sampled)[0] == reference
    quoting = LookupDraft([*PROMPT[-4:], *reference, *PROMPT])  # the answer stands in a document
    found, counts = answer(any_model, drafting(quoting), **sampled)
    assert found == reference
    assert counts.accepted > 30
