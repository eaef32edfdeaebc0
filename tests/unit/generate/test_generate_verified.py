"""Whatever a draft proposes, what comes out is what the target alone gives, bit for bit."""

import itertools
import random
import threading

import pytest
import torch

from kvpacket_store.errors import CancelledError
from kvpacket_store.generate import (
    Answering,
    BlockTarget,
    Costs,
    Failed,
    Final,
    Finished,
    GenerationOptions,
    Horizon,
    KVDraft,
    NoDraft,
    RowTarget,
    Sampler,
    Together,
    VerifiedCounts,
    decode_alone,
    plain_decoding,
    slots_for,
    verified_decoding,
)

PROMPT = tuple(range(40, 70))
NEW = 37
TARGETS = ["rows", "blocks"]


class Knowing(NoDraft):
    """Knows the answer; says something else in a share of cases."""

    def __init__(self, answer, wrong=0.0, vocabulary=200, talks=1):
        self.answer, self.wrong, self.vocabulary, self.talks = answer, wrong, vocabulary, talks
        self.rng, self.asked, self.seen = random.Random(5), [], []

    def propose(self, answering, fresh, count, target):
        self.seen += fresh
        first = len(answering.token_ids)
        self.asked.append((first, count))
        yield from ()
        return [
            self.rng.randrange(self.vocabulary) if self.rng.random() < self.wrong else token
            for token in self.answer[first : first + self.talks * max(count, 0)]
        ]


def decode_together(requests, run):
    """All join at once; yield what they give."""
    together = Together(run)
    for index, request in enumerate(requests):
        together.join(index, request.answering, request.decoding)
    while len(together):
        yield from together.step()


class Request:
    """One request on one model: its tokens, its counts, its cache."""

    def __init__(self, model, draft, kind="rows", eos_ids=frozenset(), cancel=None, **options):
        self.options = GenerationOptions(**{"max_new_tokens": NEW} | options)
        self.counts = VerifiedCounts()
        self.model = model
        self.cache = model.new_cache(slots_for(len(PROMPT), self.options.max_new_tokens))
        logits = model.forward(PROMPT, self.cache)[-1]
        sampler = Sampler.of(self.options)
        self.answering = answering = Answering(sampler, self.options, PROMPT, eos_ids, cancel)
        if draft is None and kind == "rows":
            self.decoding = plain_decoding(answering, self.cache, logits)
            return
        if kind == "rows":
            target = RowTarget(self.cache, logits, self.counts)
        else:
            target = BlockTarget(self.cache, logits)
        self.decoding = verified_decoding(answering, target, draft or NoDraft(), self.counts)

    def events(self):
        return decode_alone(self.decoding, self.model.row_forward())

    def tokens(self):
        return [event.token_id for event in self.events() if isinstance(event, Final)]


def kinds_of(model):
    return TARGETS if model.rows_are_alike else ["blocks"]


@pytest.mark.parametrize(
    ("wrong", "temperature"), [(0.0, 0.0), (0.15, 0.0), (0.15, 0.9), (1.0, 0.9)]
)
def test_any_draft_gives_the_reference(any_model, wrong, temperature):
    sampled = {"temperature": temperature, "seed": 3}
    for kind in kinds_of(any_model):
        reference = Request(any_model, None, kind, **sampled).tokens()
        assert len(reference) == NEW
        request = Request(any_model, Knowing(reference, wrong), kind, **sampled)
        assert request.tokens() == reference
        assert request.counts.rounds <= NEW - 1


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3},
        {"temperature": 0.8, "seed": 1, "sampling_top_k": 20, "top_p": 0.9},
        {"temperature": 0.8, "seed": 2, "repetition_penalty": 1.2},
    ],
    ids=["penalty", "cuts", "both"],
)
def test_every_way_to_sample_gives_the_reference(model, options):
    reference = Request(model, None, **options).tokens()
    for wrong in (0.0, 0.3):
        assert Request(model, Knowing(reference, wrong), **options).tokens() == reference


def test_a_draft_that_is_always_right_is_verified_at_once(model):
    reference = Request(model, None).tokens()
    draft = Knowing(reference)
    request = Request(model, draft)
    assert request.tokens() == reference
    assert (request.counts.rounds, request.counts.rejected) == (1, 0)
    assert request.counts.accepted == NEW - 2  # the first and the last are the target's own
    in_blocks = Request(model, Knowing(Request(model, None, "blocks").tokens()), "blocks")
    in_blocks.tokens()
    # 37 tokens: the prompt's own, then blocks of 16, 16 and what is left
    assert (in_blocks.counts.rounds, in_blocks.counts.rejected) == (3, 0)


@pytest.mark.parametrize("kind", TARGETS)
def test_the_cache_holds_the_targets_rows(model, kind):
    """After wrong drafts, K and V are those of one-token decoding, bit for bit."""
    reference = Request(model, None, kind)
    tokens = reference.tokens()
    drafted = Request(model, Knowing(tokens, wrong=0.3), kind)
    assert drafted.tokens() == tokens
    end = len(PROMPT) + NEW - 1
    assert torch.equal(drafted.cache.k_slots[:, :, :end], reference.cache.k_slots[:, :, :end])
    assert torch.equal(drafted.cache.v_slots[:, :, :end], reference.cache.v_slots[:, :, :end])


def test_proposals_stay_inside_their_block_and_the_limit(model):
    draft = Knowing(Request(model, None, "blocks").tokens(), wrong=0.3)
    Request(model, draft, "blocks").tokens()
    for first, count in draft.asked:
        assert (first - 1) % 16 + 1 + count <= 16
        assert first + count < NEW


@pytest.mark.parametrize("kind", TARGETS)
def test_a_draft_that_says_too_much_is_cut(model, kind):
    reference = Request(model, None, kind).tokens()
    assert Request(model, Knowing(reference, talks=3), kind).tokens() == reference


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("limit", [1, 2, 15, 16, 17, 18, 33])
def test_the_limit_is_kept_inside_a_draft(model, kind, limit):
    reference = Request(model, None, kind).tokens()
    request = Request(model, Knowing(reference), kind, max_new_tokens=limit)
    assert request.tokens() == reference[:limit]


@pytest.mark.parametrize("at", [0, 1, 7, 16, 20])
def test_the_end_of_sequence_inside_a_draft_ends(model, at):
    reference = Request(model, None).tokens()
    eos = frozenset({reference[at]})
    cut = reference.index(reference[at])
    for draft in (NoDraft(), Knowing(reference)):
        assert Request(model, draft, eos_ids=eos).tokens() == reference[:cut]
        assert Request(model, draft, eos_ids=eos, ignore_eos=True).tokens() == reference


def test_cancelling_stops_within_a_round(model):
    reference = Request(model, None).tokens()
    cancel = threading.Event()
    request = Request(model, Knowing(reference, wrong=1.0), cancel=cancel)
    tokens = request.events()
    first = [event.token_id for event in itertools.islice(tokens, 2)]
    assert first == reference[:2]
    cancel.set()
    with pytest.raises(CancelledError):
        list(tokens)
    assert request.counts.rounds == 1


def test_rows_near_a_tie_are_decided_alone(model):
    """With a guard of 100 logits, every row is."""
    reference = Request(model, None).tokens()
    request = Request(model, Knowing(reference))
    logits = model.forward(PROMPT, cache := model.new_cache(len(PROMPT) + NEW))[-1]
    target = RowTarget(cache, logits, request.counts, guard_logits=100.0)
    answering = Answering(Sampler(0.0), request.options, PROMPT, frozenset())
    decoding = verified_decoding(answering, target, Knowing(reference), request.counts)
    found = [e.token_id for e in decode_alone(decoding, model.row_forward())]
    assert found == reference
    assert request.counts.guarded == NEW - 1


def copied(cache, model, noise=0.0):
    own = model.new_cache(cache.num_slots)
    generator = torch.Generator().manual_seed(0)
    for mine, theirs in ((own.k_slots, cache.k_slots), (own.v_slots, cache.v_slots)):
        mine.copy_(theirs)
        mine[:, :, : len(PROMPT)] += noise * torch.randn(
            mine[:, :, : len(PROMPT)].shape, generator=generator
        )
    own.set_length(len(PROMPT))
    return own


def drafted(model, noise, **options):
    request = Request(model, NoDraft(), **options)
    cache = copied(request.cache, model, noise)
    draft = KVDraft(cache, Horizon(Costs(draft=0.1, row=0.05), always=True))
    logits = model.forward(PROMPT, exact := model.new_cache(len(PROMPT) + NEW))[-1]
    target = RowTarget(exact, logits, request.counts)
    answering = Answering(Sampler.of(request.options), request.options, PROMPT, frozenset())
    request.decoding = verified_decoding(answering, target, draft, request.counts)
    return request


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_draft_on_the_same_kv_is_accepted_whole(model, temperature):
    options = {"temperature": temperature, "seed": 5}
    request = drafted(model, 0.0, **options)
    assert request.tokens() == Request(model, None, **options).tokens()
    assert request.counts.rejected == 0
    assert request.counts.accepted > NEW // 4  # drafts end where two choices are near


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_draft_on_noise_gives_the_same_answer(model, temperature):
    options = {"temperature": temperature, "seed": 5}
    request = drafted(model, 3.0, **options)
    assert request.tokens() == Request(model, None, **options).tokens()
    assert request.counts.rejected > 0


def test_many_together_give_what_each_gives_alone(any_model):
    """Neighbours of other lengths, some that end early, one that is cancelled."""
    model, cancel = any_model, threading.Event()
    lengths = [NEW, 3, 20, 1]
    kind = kinds_of(model)[0]
    reference = Request(model, None, kind).tokens()
    requests = [
        Request(model, Knowing(reference, wrong), kind, max_new_tokens=length)
        for wrong, length in zip((0.0, 0.2, 1.0, 0.0), lengths, strict=True)
    ]
    requests.append(Request(model, Knowing(reference, 1.0), kind, cancel=cancel))
    found, ends = [[] for _ in requests], {}
    for index, event in decode_together(requests, model.row_forward()):
        if isinstance(event, Final):
            found[index].append(event.token_id)
            if len(found[4]) == 3:
                cancel.set()
        elif isinstance(event, Finished | Failed):
            ends[index] = event
    assert found[:4] == [reference[:length] for length in lengths]
    assert found[4] == reference[: len(found[4])]
    assert len(found[4]) in {3, 4}  # one step was under way
    assert isinstance(ends[4].error, CancelledError)
    assert [ends[i] for i in range(4)] == [Finished()] * 4


def test_together_forwards_are_shared(model):
    reference = Request(model, None).tokens()
    requests = [Request(model, Knowing(reference, 0.2)) for _ in range(3)]
    run, sizes = model.row_forward(), []

    def counted(works):
        sizes.append(len(works))
        return run(works)

    list(decode_together(requests, counted))
    assert set(sizes) == {3}


def test_drafts_hear_how_many_share_forwards(model):
    class Listening(NoDraft):
        def propose(self, answering, fresh, count, target):
            heard[answering.options.max_new_tokens].append(answering.company)
            return (yield from super().propose(answering, fresh, count, target))

    heard = {3: [], 6: [], 9: []}
    requests = [Request(model, Listening(), max_new_tokens=length) for length in heard]
    list(decode_together(requests, model.row_forward()))
    assert heard == {3: [3, 3], 6: [3, 3, 2, 2, 2], 9: [3, 3, 2, 2, 2, 1, 1, 1]}
