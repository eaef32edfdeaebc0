"""Prompts as a model leaves them: before RoPE, a key's channels have their own mean and size."""

import pytest
import torch

from kvpacket_store.compress import HalfSplitRope, PromptKV

LAYERS, HEADS, QUERY_HEADS, DIM = 3, 2, 6, 16


@pytest.fixture
def new_prompt():
    """A function: a seeded prompt of so many slots."""

    def make(num_slots=120, dtype=torch.float32, *, first=4, recent=6, dim=DIM, seed=0):
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(shape, generator=generator)

        size = normal(LAYERS, HEADS, 1, dim).exp()
        mean = 3 * normal(LAYERS, HEADS, 1, dim)
        bare = mean + size * normal(LAYERS, HEADS, num_slots, dim)
        rope = HalfSplitRope([10_000.0 ** -(torch.arange(0, dim, 2) / dim)] * LAYERS)
        slots = torch.arange(num_slots).expand(HEADS, num_slots)
        k = torch.stack([rope.apply(layer, slots, index) for index, layer in enumerate(bare)])
        rows = min(max(recent, 1), num_slots)
        return PromptKV(
            k.to(dtype),
            normal(LAYERS, HEADS, num_slots, dim).to(dtype),
            scaling=dim**-0.5,
            queries=normal(LAYERS, QUERY_HEADS, rows, dim).to(dtype),
            rope=rope,
            importance=normal(LAYERS, HEADS, num_slots).exp(),
            first=first,
            recent=recent,
        )

    return make
