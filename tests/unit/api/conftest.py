"""Codec packs that fit the tiny models."""

import dataclasses

import pytest

from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_pack


@pytest.fixture
def pack_of(model):
    """A function: KV dtype, seed, changes → a codec pack of the tiny model."""
    layout = model.layout
    shape = PackShape(layout.num_layers, layout.num_kv_heads, layout.head_dim, 2)

    def make(kv_dtype="bf16", seed=0, **changes):
        pack = make_pack(shape, kv_dtype, seed)
        return dataclasses.replace(pack, **{"weights": model.fingerprint.weights} | changes)

    return make


@pytest.fixture
def pack(pack_of):
    """One of them, for bf16."""
    return pack_of()
