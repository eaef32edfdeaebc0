"""Codec packs that fit the tiny models."""

import dataclasses

import numpy as np
import pytest
from verified_requests import DOCS

from kvpacket_store.adapters import Adapter
from kvpacket_store.api import Engine
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


@pytest.fixture
def layered_store(new_store, pack_of):
    rows = np.random.default_rng(0).normal(0, 0.3, (50, 64))
    adapter = Adapter.untrained(rows, num_tokens=4)
    made = new_store(
        codec="linear",
        layers=None,
        kv_dtype="bf16",
        codec_pack=pack_of(),
        segment_tokens=64,
        adapter=adapter,
    )
    made.ingest(DOCS)
    return made


@pytest.fixture
def layered_engine(layered_store):
    return Engine(layered_store, memory_bytes=0)
