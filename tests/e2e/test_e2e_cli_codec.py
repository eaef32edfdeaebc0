"""Codec packs as commands, on a store of a tiny random model of a real architecture."""

import re

import numpy as np
import pytest

from kvpacket_store.api import Store
from kvpacket_store.codec.linear.pack import CodecPack
from kvpacket_store.models import load_model
from kvpacket_store.types import Document

pytestmark = pytest.mark.e2e
TEXTS = {
    "rhine": "The Rhine rises in the Swiss Alps and ends in the North Sea. " * 4,
    "elbe": "The Elbe rises in the Giant Mountains of Bohemia, in the north. " * 4,
}


@pytest.fixture
def store(tmp_path, tiny_model, word_embedder):
    """Two packets; the model lies in a folder, as commands need it."""
    model, folder = tiny_model("llama"), tmp_path / "tiny"
    model.hf.save_pretrained(folder)
    model.tokenizer.hf.save_pretrained(folder)
    path = tmp_path / "s.kvps"
    with Store.create(path, model=load_model(str(folder)), embedder=word_embedder) as made:
        made.ingest([Document(id=name, text=text) for name, text in TEXTS.items()])
    return path


def packets_of(path):
    with Store.open(path) as opened:
        return [opened.packet(name) for name in TEXTS]


def test_a_store_goes_over_to_a_pack_of_its_own(kvps, store, tmp_path):
    before = packets_of(store)
    mine = tmp_path / "mine.kvc"
    trained = kvps.json("codec", "train", store, "--tokens", "600", "--back", "1", "--out", mine)
    assert (trained["packets"], trained["held_out_packets"]) == (1, 1)
    assert trained["pack_bytes"] == mine.stat().st_size
    bits = trained["bits_per_scalar"]
    assert set(bits["layers"]) == {"sigma/8", "sigma/4", "sigma/2"}
    assert all(0 < of["base"] < of["total"] for of in bits["layers"].values())
    pack = CodecPack.from_bytes(mine.read_bytes())
    assert (pack.digest, pack.shape.back) == (trained["digest"], 1)
    assert pack.about["held_out_bits_per_scalar"] == bits

    listed = [p for p in kvps.json("codec", "list", store)["packs"] if p["where"] == "store"]
    [found] = listed
    assert (found["digest"], found["fits"], found["in_use"]) == (pack.digest, True, False)
    assert found["bytes"] == trained["pack_bytes"]
    recoded = kvps.json("codec", "recode", store, "--codec", "linear", "--pack", pack.digest[:8])
    assert (recoded["recoded"], recoded["skipped"]) == (2, [])
    [found] = [p for p in kvps.json("codec", "list", store)["packs"] if p["where"] == "store"]
    assert found["in_use"]
    for old, new in zip(before, packets_of(store), strict=True):
        assert np.array_equal(old.k, new.k)
        assert np.array_equal(old.v, new.v)

    page = tmp_path / "stats.html"
    stats = kvps.json("stats", store, "--html", page)
    assert 0 < stats["bits_per_scalar"]["base"] < stats["bits_per_scalar"]["k"]
    assert stats["pack_bytes"] >= trained["pack_bytes"]
    assert stats["sampled_packets"] == 2
    assert all(0 < layer["v_base"] < layer["v"] for layer in stats["layers"])
    assert len(re.findall("<rect", page.read_text())) == 4 * len(stats["layers"])
