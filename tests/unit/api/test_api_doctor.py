"""`kvps doctor` names what differs, how many packets that costs, and what to change."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from kvpacket_store.adapters import Adapter, save_adapter
from kvpacket_store.api import Store
from kvpacket_store.api.doctor import examine
from kvpacket_store.errors import NotFoundError
from kvpacket_store.models import load_model
from kvpacket_store.store.rows import json_bytes, pack
from kvpacket_store.store.schema import META_STORE, Table
from kvpacket_store.types import Document

DOCS = [Document(name, f"The {name} flows to the sea.") for name in ("Rhine", "Elbe", "Oder")]


def soft(seed):
    return Adapter.untrained(np.random.default_rng(seed).normal(0, 0.3, (50, 64)), num_tokens=2)


@pytest.fixture
def folder(model, tmp_path):
    """A model folder, as a store names it: what lies there may change."""
    path = tmp_path / "model"
    model.hf.save_pretrained(path)
    model.tokenizer.hf.save_pretrained(path)
    return path


@pytest.fixture
def path(folder, tmp_path, word_embedder, monkeypatch):
    """A store with three packets, closed."""
    monkeypatch.setattr("kvpacket_store.retrieve.MiniLMEmbedder", lambda: word_embedder)
    store = Store.create(
        tmp_path / "s.kvps", model=str(folder), adapter=soft(0), embedder=word_embedder
    )
    with store:
        store.ingest(DOCS)
    return tmp_path / "s.kvps"


def failing(path):
    """The checks that are not well, by name; that no quality was measured here is known."""
    found = (check for check in examine(path) if not check.ok and check.name != "quality")
    return {check.name: check for check in found}


def describe(path, **changes):
    """Change what the store says of itself."""
    with Store.open(path) as store:
        row = pack(json_bytes(replace(store.meta, **changes).to_dict()))
        store.packets._environment.write(lambda tx: tx.put(Table.META, META_STORE, row))


def other_weights(folder):
    hf = load_model(str(folder)).hf
    with torch.no_grad():
        hf.model.layers[0].mlp.up_proj.weight[0, 0] += 1
    hf.save_pretrained(folder)


def other_tokenizer(folder):
    tokenizer = load_model(str(folder)).tokenizer.hf
    tokenizer.add_tokens(["newword"])
    tokenizer.save_pretrained(folder)


def other_template(folder):
    tokenizer = load_model(str(folder)).tokenizer.hf
    tokenizer.chat_template = tokenizer.chat_template.replace("<|im_end|>\n", "<|im_end|>")
    tokenizer.save_pretrained(folder)


def other_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_sound_store_is_well(path):
    assert failing(path) == {}
    names = [check.name for check in examine(path)]
    for name in (
        *("format", "weights", "tokenizer", "config", "rope", "chat_template"),
        *("kv_dtype", "adapter", "recipe", "embedder", "packet keys"),
    ):
        assert names.count(name) == 1


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({"weights"}, other_weights),
        ({"tokenizer"}, other_tokenizer),
        ({"config"}, lambda folder: other_config(folder, rms_norm_eps=1e-3)),
        (
            {"weights", "config", "rope"},  # its frequencies are a buffer
            lambda folder: other_config(
                folder, rope_parameters={"rope_type": "default", "rope_theta": 500.0}
            ),
        ),
    ],
)
def test_a_field_of_the_model_that_differs_is_named(path, folder, fields, change):
    change(folder)
    found = failing(path)
    assert found.keys() == fields
    for check in found.values():
        assert (check.level, check.exit_code) == ("error", 5)
        assert "all 3 packets are misses" in check.detail
        assert "original" in check.remedy


def test_another_chat_template_is_a_warning_that_costs_no_packet(path, folder):
    other_template(folder)
    found = failing(path)
    assert found.keys() == {"chat_template"}
    assert (found["chat_template"].level, found["chat_template"].exit_code) == ("warning", 0)
    assert "packets stay valid" in found["chat_template"].detail


def test_an_adapter_file_swapped_in_place_is_named(path):
    save_adapter(soft(1), path / "adapter.safetensors")
    found = failing(path)
    assert found.keys() == {"adapter"}
    assert "all 3 packets are misses" in found["adapter"].detail
    (path / "adapter.safetensors").unlink()
    assert "not there" in failing(path)["adapter"].detail


def test_another_recipe_is_named(path, monkeypatch):
    monkeypatch.setattr("kvpacket_store.prefill.PREFILL_RECIPE", "alone-2")
    found = failing(path)
    assert found.keys() == {"recipe"}
    assert "alone-2 here, alone-1 in the store: all 3 packets" in found["recipe"].detail


def test_packets_of_another_identity_are_counted(path, monkeypatch):
    monkeypatch.setattr("kvpacket_store.prefill.prefiller.PACKET_FORMAT_VERSION", 2)
    found = failing(path)
    assert found.keys() == {"packet keys"}
    assert "3 of 3" in found["packet keys"].detail


def test_records_of_another_kv_dtype_are_named(path):
    describe(path, kv_dtype="bf16")
    found = failing(path)
    assert found.keys() == {"packet keys", "kv_dtype"}
    assert "records hold fp32, the store says bf16" in found["kv_dtype"].detail


def test_another_embedder_is_a_warning(path, word_embedder):
    word_embedder.digest = "6" * 64
    found = failing(path)
    assert found.keys() == {"embedder"}
    assert found["embedder"].level == "warning"
    assert "no packet is affected" in found["embedder"].detail


def test_a_later_format_is_named(path):
    describe(path, format_version=99)
    found = failing(path)
    assert found.keys() == {"format"}
    assert "99" in found["format"].detail
    assert found["format"].exit_code == 4


def test_a_model_that_is_gone_is_named(path, folder):
    folder.rename(folder.with_name("elsewhere"))
    assert failing(path).keys() == {"model"}


def test_a_long_reader_is_a_warning(path):
    with Store.open(path) as store, store.packets._environment.read():
        for i in range(60):
            store.packets.update_metadata("default", "Rhine", {"version": i}, str(i))
        found = failing(path)
        assert found.keys() == {"readers"}
        assert "60 commits old" in found["readers"].detail
        assert found["readers"].exit_code == 0


def test_a_store_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(NotFoundError):
        examine(tmp_path / "absent.kvps")


def test_a_damaged_file_is_named_not_raised(path):
    data = path / "data.mdb"
    with data.open("r+b") as file:
        file.truncate(data.stat().st_size // 2)
    found = failing(path)
    assert found.keys() == {"store"}
    assert "cut" in found["store"].detail


def test_it_says_how_exact_verifying_is_here(path):
    (check,) = [check for check in examine(path) if check.name == "exactness"]
    assert (check.ok, check.level) == (True, "info")
    assert "bit and guarded are both exact" in check.detail
