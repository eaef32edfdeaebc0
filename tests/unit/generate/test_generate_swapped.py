"""Blocks on exact K and V that get lost: what was not verified is verified again, from the start.

Models whose rows are not alike; `SwapTarget` around `BlockTarget`.
"""

import math
import random

import pytest
import torch

from kvpacket_store.errors import SwapFailedError
from kvpacket_store.generate import (
    Answering,
    BlockTarget,
    Final,
    GenerationOptions,
    NoDraft,
    Sampler,
    SwapTarget,
    VerifiedCounts,
    decode_alone,
    slots_for,
    verified_decoding,
)
from kvpacket_store.models import SwapCache

DOCUMENT, QUESTION = tuple(range(40, 70)), (7, 8, 9, 10)
PROMPT = (*DOCUMENT, *QUESTION)
NEW = 37
LOST_AT = 2  # layers 0 and 1 have the rows of a verification by then
UNLIKE = [("mistral", torch.float32), ("gemma3", torch.float32), ("llama", torch.float16)]


class Losing(SwapCache):
    """Loses what it holds of the prompt, amid a forward, when it is told to."""

    loses_next = False

    def layer_slots(self, layer):
        if layer == LOST_AT and self.loses_next:
            self.loses_next = False
            self.k_slots[:, :, : len(DOCUMENT)] = math.nan
            self.v_slots[:, :, : len(DOCUMENT)] = math.nan
            self.fail()
        return super().layer_slots(layer)


class Filling:
    """Fills the slots again from another cache."""

    def __init__(self, cache, exact, *, keep):
        self.cache, self.exact, self.keep, self.repairs = cache, exact, keep, 0

    def fetch(self):
        if not self.cache.is_allocated:
            self.cache.allocate()
            self._fill()

    def may_begin(self):
        return self.cache.is_here

    def wait(self):
        pass

    def repair(self):
        self.repairs += 1
        self._fill()

    def release(self):
        if not self.keep:
            self.cache.drop()

    def _fill(self):
        self.cache.write_rows(0, *self.exact.rows(0, len(DOCUMENT)))
        self.cache.all_is_here()


class Guessing(NoDraft):
    """Knows the answer but for a share of it."""

    def __init__(self, answer, wrong):
        self.answer, self.wrong, self.rng = answer, wrong, random.Random(3)

    def propose(self, answering, fresh, count, target):
        yield from ()
        first = len(answering.token_ids)
        known = self.answer[first : first + max(count, 0)]
        return [token ^ (self.rng.random() < self.wrong) for token in known]


class Request:
    """One request, whose forwards of these numbers lose the K and V."""

    def __init__(self, model, draft, *, lost=(), keep=True):
        options = GenerationOptions(max_new_tokens=NEW)
        exact = model.new_cache(len(DOCUMENT))
        model.forward(DOCUMENT, exact)
        shape = model.layout.shape(slots_for(len(PROMPT), NEW))
        self.cache = Losing(shape, model.slot_dtype, model.device, kept_from=len(DOCUMENT))
        self.cache.set_length(len(DOCUMENT))
        self.swap = Filling(self.cache, exact, keep=keep)
        self.counts, self.lost, self.forwards = VerifiedCounts(), lost, 0
        self._run = model.row_forward()
        answering = Answering(Sampler.of(options), options, PROMPT, frozenset())
        target = SwapTarget(self.cache, self.swap, QUESTION, BlockTarget)
        self.decoding = verified_decoding(answering, target, draft, self.counts)
        self.final = []

    def run(self, works):
        self.cache.loses_next = self.forwards in self.lost
        self.forwards += 1
        before = list(self.final)
        try:
            return self._run(works)
        except SwapFailedError:
            assert self.final == before
            raise

    def tokens(self):
        for event in decode_alone(self.decoding, self.run):
            assert isinstance(event, Final)
            self.final.append(event.token_id)
        return self.final


@pytest.mark.parametrize(("kind", "dtype"), UNLIKE)
@pytest.mark.parametrize("keep", [True, False])
def test_a_block_whose_kv_is_lost_is_verified_again(tiny_model, kind, dtype, keep):
    """Lost at the question, at a first block, amid blocks, and twice in a row."""
    model = tiny_model(kind, dtype)
    assert not model.rows_are_alike
    reference = Request(model, NoDraft()).tokens()
    assert len(reference) == NEW
    for wrong in (0.0, 0.3):
        for lost in ((0,), (1,), (2, 3), (1, 4, 6), tuple(range(0, 12, 2))):
            request = Request(model, Guessing(reference, wrong), lost=lost, keep=keep)
            assert request.tokens() == reference
            assert request.swap.repairs == sum(n < request.forwards for n in lost)
            assert (request.counts.rejected > 0) == (wrong > 0)


@pytest.mark.parametrize(("kind", "dtype"), UNLIKE)
def test_the_cache_holds_the_targets_rows_afterwards(tiny_model, kind, dtype):
    model = tiny_model(kind, dtype)
    reference = Request(model, NoDraft())
    tokens = reference.tokens()
    request = Request(model, Guessing(tokens, 0.3), lost=(1, 2, 5))
    request.tokens()
    end = len(PROMPT) + NEW - 1
    assert request.swap.repairs == 3
    for ours, theirs in zip(request.cache.rows(0, end), reference.cache.rows(0, end), strict=True):
        assert torch.equal(ours, theirs)
