"""Items, and prompts of them on tiny models."""

import numpy as np
import pytest
import torch

from kvpacket_store.adapters import Adapter
from kvpacket_store.benchmarks.paragraphs import QuestionItem
from kvpacket_store.quality.prompt import tokenize_item
from kvpacket_store.types import Document


@pytest.fixture
def item():
    texts = ("The river ends in the sea.", "Copper melts late.", "Owls hunt at night, it is said.")
    documents = [Document(str(i), text) for i, text in enumerate(texts)]
    return QuestionItem("When do owls hunt?", ["at night", "night"], documents)


@pytest.fixture
def prompt_of(item):
    """A function: model → the item's tokens."""
    return lambda model: tokenize_item(model, item, answer_tokens=6)


@pytest.fixture
def adapter_of():
    """A function: model → three soft tokens before a segment and two behind it."""

    def make(model):
        random = np.random.default_rng(3)
        width = int(model.embedding.weight.shape[1])
        spread = float(model.embedding.weight.detach().std())
        return Adapter(
            "tiny",
            random.normal(0, spread, (3, width)).astype(np.float32),
            random.normal(0, spread, (2, width)).astype(np.float32),
        )

    return make


@pytest.fixture
def logits_of():
    """A function: model, start of an arm → logits of the question's last row."""
    from kvpacket_store.models import attending

    def run(model, start):
        ready = start()
        with torch.inference_mode(), attending(ready.rule):
            return model.forward(ready.input_ids, ready.cache)[-1]

    return run
