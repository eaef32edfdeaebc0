"""Promise: an encoder that is damaged or of another kind is refused by name, never approximated."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kvpacket_store.errors import ModelError, UnsupportedModelError
from kvpacket_store.retrieve import MiniLMEmbedder


def edit_json(path, change) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    "name", ["config.json", "modules.json", "1_Pooling/config.json", "model.safetensors"]
)
@pytest.mark.parametrize("content", [None, b"", b"{", b"[1]", b'"x"', b"\xff\xfe", b"{}"])
def test_a_missing_or_damaged_file_is_a_model_error(tiny_folder, name, content):
    (tiny_folder / name).unlink()
    if content is not None:
        (tiny_folder / name).write_bytes(content)
    with pytest.raises(ModelError, match="tiny"):
        MiniLMEmbedder(tiny_folder).embed(["the river"])


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", None])
def test_a_size_that_is_no_size_is_refused(tiny_folder, value):
    edit_json(tiny_folder / "config.json", lambda it: it.update(hidden_size=value))
    with pytest.raises(ModelError, match="hidden_size"):
        MiniLMEmbedder(tiny_folder)


def test_absent_weights_are_refused_rather_than_drawn_at_random(tiny_folder):
    from safetensors.numpy import load_file, save_file

    weights = load_file(tiny_folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, tiny_folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"encoder\.layer\.1\.output\.dense\.weight"):
        MiniLMEmbedder(tiny_folder).embed(["the river"])


def test_an_absent_pooler_does_not_matter(tiny_folder):
    from safetensors.numpy import load_file, save_file

    before = MiniLMEmbedder(tiny_folder).embed(["the river"])
    weights = load_file(tiny_folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("pooler.")}
    assert len(kept) < len(weights)
    save_file(kept, tiny_folder / "model.safetensors", metadata={"format": "pt"})
    np.testing.assert_array_equal(MiniLMEmbedder(tiny_folder).embed(["the river"]), before)


def test_pickled_weights_are_never_loaded(tiny_folder):
    import torch

    weights = tiny_folder / "model.safetensors"
    torch.save({}, tiny_folder / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(ModelError, match="cannot be loaded"):
        MiniLMEmbedder(tiny_folder).embed(["the river"])


def test_other_poolings_are_refused_by_name(tiny_folder):
    (tiny_folder / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    with pytest.raises(UnsupportedModelError, match="pooling_mode_cls_token"):
        MiniLMEmbedder(tiny_folder)


def test_further_steps_are_refused_by_name(tiny_folder):
    dense = {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}
    edit_json(tiny_folder / "modules.json", lambda it: it.insert(2, dense))
    with pytest.raises(UnsupportedModelError, match="Dense"):
        MiniLMEmbedder(tiny_folder)


def test_a_transformer_in_a_subfolder_is_refused(tiny_folder):
    edit_json(tiny_folder / "modules.json", lambda it: it[0].update(path="0_Transformer"))
    with pytest.raises(UnsupportedModelError, match="0_Transformer"):
        MiniLMEmbedder(tiny_folder)


def test_an_encoder_without_a_normalising_step_still_gives_unit_vectors(tiny_folder):
    before = MiniLMEmbedder(tiny_folder).embed(["the river"])
    edit_json(tiny_folder / "modules.json", lambda it: it.pop())
    np.testing.assert_array_equal(MiniLMEmbedder(tiny_folder).embed(["the river"]), before)


def test_lowercasing_is_done_where_the_folder_asks_for_it(tiny_folder):
    edit_json(tiny_folder / "tokenizer_config.json", lambda it: it.update(do_lower_case=False))
    upper, lower = MiniLMEmbedder(tiny_folder).embed(["THE RIVER", "the river"])
    assert not np.array_equal(upper, lower)
    edit_json(tiny_folder / "sentence_bert_config.json", lambda it: it.update(do_lower_case=True))
    upper, lower = MiniLMEmbedder(tiny_folder).embed(["THE RIVER", "the river"])
    np.testing.assert_array_equal(upper, lower)


def test_the_positions_of_the_model_bound_the_longest_input(tiny_folder):
    (tiny_folder / "sentence_bert_config.json").unlink()
    one, other = MiniLMEmbedder(tiny_folder).embed(["bank " * 30, "bank " * 30 + "river " * 500])
    np.testing.assert_array_equal(one, other)


def test_a_digest_is_stable_and_changes_with_every_file_that_matters(tiny_folder):
    first = MiniLMEmbedder(tiny_folder).digest
    assert first == MiniLMEmbedder(tiny_folder).digest
    assert len(bytes.fromhex(first)) == 32
    seen = {first}
    for name in ["config.json", "vocab.txt", "model.safetensors", "1_Pooling/config.json"]:
        with (tiny_folder / name).open("ab") as file:
            file.write(b"\n")
        seen.add(MiniLMEmbedder(tiny_folder).digest)
    assert len(seen) == 5


def test_the_folder_name_is_not_part_of_the_digest(tiny_folder):
    first = MiniLMEmbedder(tiny_folder).digest
    moved = tiny_folder.rename(tiny_folder.parent / "elsewhere")
    assert MiniLMEmbedder(moved).digest == first
