"""Whatever a draft proposes, what comes out is what the target alone gives, bit for bit."""

import itertools
import random
import threading

import pytest
import torch

from kvpacket_store.errors import CancelledError
from kvpacket_store.generate import GenerationOptions, Sampler
from kvpacket_store.generate.blocks import AlignedBlocks, slots_for
from kvpacket_store.generate.verified_loop import VerifiedCounts, verified_tokens

PROMPT = tuple(range(40, 70))
NEW = 37


class Nothing:
    """The reference: no draft, so each block is run for one row of it."""

    def propose(self, token_ids, position, count):
        return []


class Knowing:
    """Knows the answer; says something else in a share of cases."""

    def __init__(self, answer, wrong=0.0, vocabulary=200):
        self.answer, self.wrong, self.vocabulary = answer, wrong, vocabulary
        self.rng, self.asked, self.seen = random.Random(5), [], []

    def propose(self, token_ids, position, count):
        self.seen += token_ids
        self.asked.append((position, count))
        first = position + 1 - len(PROMPT)
        right = self.answer[first : first + count]
        return [
            self.rng.randrange(self.vocabulary) if self.rng.random() < self.wrong else token
            for token in right
        ]


def prompted(model, new_tokens=NEW):
    cache = model.new_cache(slots_for(len(PROMPT), new_tokens))
    logits = model.forward(PROMPT, cache)[-1]
    return AlignedBlocks(model, cache), logits, cache


def run(model, draft, cancel=None, eos_ids=frozenset(), **options):
    options = GenerationOptions(**{"max_new_tokens": NEW} | options)
    target, logits, _ = prompted(model, options.max_new_tokens)
    counts = VerifiedCounts()
    sampler = Sampler(options.temperature, options.seed)
    tokens = verified_tokens(
        target, draft, logits, sampler, options, eos_ids=eos_ids, counts=counts, cancel=cancel
    )
    return tokens, counts


def answer(model, draft, **options):
    tokens, counts = run(model, draft, **options)
    return list(tokens), counts


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("wrong", [0.0, 0.15, 1.0])
def test_any_draft_gives_the_reference(any_model, wrong, temperature):
    sampled = {"temperature": temperature, "seed": 3}
    reference, none = answer(any_model, Nothing(), **sampled)
    assert len(reference) == NEW
    assert (none.accepted, none.rejected) == (0, 0)
    found, counts = answer(any_model, Knowing(reference, wrong), **sampled)
    assert found == reference
    assert counts.verifications <= none.verifications == NEW - 1


def test_a_row_does_not_depend_on_what_stands_behind_it(any_model):
    """The premise of blocks: logits, K and V, for every number of known rows."""
    target, _, cache = prompted(any_model)
    start, rows = target.first_slot, target.block_rows
    tokens = [random.Random(1).randrange(200) for _ in range(rows)]
    whole = target.run(start, tokens)
    k, v = cache.k_slots.clone(), cache.v_slots.clone()
    for known in range(1, rows):
        assert torch.equal(target.run(start, tokens[:known]), whole[:known])
        end = start + known
        assert cache.length == end
        assert torch.equal(cache.k_slots[:, :, :end], k[:, :, :end])
        assert torch.equal(cache.v_slots[:, :, :end], v[:, :, :end])


def test_a_draft_that_is_always_right_is_verified_a_block_at_a_time(model):
    reference, _ = answer(model, Nothing())
    draft = Knowing(reference)
    found, counts = answer(model, draft)
    assert found == reference
    # 37 tokens: the prompt's own, then blocks of 16, 16 and what is left
    assert (counts.verifications, counts.rejected) == (3, 0)
    assert draft.asked[0] == (len(PROMPT), 15)
    assert draft.seen == reference[: len(draft.seen)]
    assert all(count >= 1 for _, count in draft.asked)


def test_proposals_stay_inside_their_block_and_the_limit(model):
    reference, _ = answer(model, Nothing())
    draft = Knowing(reference, wrong=0.3)
    answer(model, draft)
    for position, count in draft.asked:
        slot = position + 1
        assert (slot - len(PROMPT)) % 16 + count <= 16
        assert slot - len(PROMPT) + count < NEW


def test_a_draft_that_says_too_much_is_cut(model):
    class Talkative(Knowing):
        def propose(self, token_ids, position, count):
            return super().propose(token_ids, position, 3 * count)

    reference, _ = answer(model, Nothing())
    assert answer(model, Talkative(reference))[0] == reference


@pytest.mark.parametrize("limit", [1, 2, 15, 16, 17, 18, 33])
def test_the_limit_is_kept_inside_a_draft(model, limit):
    reference, _ = answer(model, Nothing())
    found, _ = answer(model, Knowing(reference), max_new_tokens=limit)
    assert found == reference[:limit]


@pytest.mark.parametrize("at", [0, 1, 7, 16, 20])
def test_the_end_of_sequence_inside_a_draft_ends(model, at):
    reference, _ = answer(model, Nothing())
    eos = frozenset({reference[at]})
    cut = reference.index(reference[at])
    for draft in (Nothing(), Knowing(reference)):
        assert answer(model, draft, eos_ids=eos)[0] == reference[:cut]
        assert answer(model, draft, eos_ids=eos, ignore_eos=True)[0] == reference


def test_cancelling_stops_within_a_round(model):
    reference, _ = answer(model, Nothing())
    cancel = threading.Event()
    tokens, counts = run(model, Knowing(reference), cancel)
    first = list(itertools.islice(tokens, 2))
    assert first == reference[:2]
    cancel.set()
    with pytest.raises(CancelledError):
        list(tokens)
    assert counts.verifications == 1
