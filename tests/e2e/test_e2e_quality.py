"""The baselines on a real model: in their limits they choose full recompute's tokens."""

import pytest
import torch

from kvpacket_store.adapters import Adapter
from kvpacket_store.benchmarks.scores import mean_kl
from kvpacket_store.models import load_model
from kvpacket_store.quality.arm import ArmSettings
from kvpacket_store.quality.arms import Arms
from kvpacket_store.quality.datasets import DataOptions, load_datasets
from kvpacket_store.quality.prompt import tokenize_item
from kvpacket_store.quality.run import hear
from kvpacket_store.types import KVDtype

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def heard():
    """A function: arm, settings → what SmolLM2 gives to one short question."""
    model = load_model("smollm2", compute=torch.float32)  # other shapes round otherwise in bf16
    found, _ = load_datasets(["biographies"], DataOptions(limit=1, packets=2))
    prompt = tokenize_item(model, found[0].items[0], answer_tokens=8)
    width = int(model.embedding.weight.shape[1])

    def hear_arm(name, teacher=None, **settings):
        # in fp32, so that rounding of packets is not what is measured
        arms = Arms(model, Adapter.none(width), ArmSettings(**settings), KVDtype.FP32)
        return hear(model, prompt, arms.start(name, prompt), teacher)

    return hear_arm


def test_smollm2_recomputed_whole_answers_as_full(heard):
    full = heard("full")
    limits = (("cacheblend", {"cacheblend_share": 1.0}), ("epic", {"epic_tokens": 10_000}))
    for name, settings in limits:
        mended = heard(name, full.answer, **settings)
        assert mended.answer == full.answer
        assert torch.equal(mended.on_answer.argmax(-1), full.on_answer.argmax(-1))
        assert mean_kl(full.on_answer, mended.on_answer) < 1e-3
    naive = heard("naive", full.answer)
    assert mean_kl(full.on_answer, naive.on_answer) > 0.01


def test_smollm2_with_neutral_ape_answers_as_naive(heard):
    naive = heard("naive")
    neutral = heard("ape", naive.answer, ape_prefix=False, ape_temperature=1.0, ape_scale=1.0)
    assert neutral.answer == naive.answer
    assert mean_kl(naive.on_answer, neutral.on_answer) < 1e-3
