"""A model's fingerprint: the same for the same model, another for any change that computes."""

import copy

import torch

from kvpacket_store.models import HFTokenizer, Model, load_model


def fresh(model):
    return Model(model.name, copy.deepcopy(model.hf), model.tokenizer)


def test_equal_models_have_equal_fingerprints_whatever_they_are_called(model):
    other = Model("another name", copy.deepcopy(model.hf), model.tokenizer)
    assert other.fingerprint == model.fingerprint


def test_one_weight_bit_changes_the_weights_digest_alone(model):
    other = fresh(model)
    with torch.no_grad():
        other.hf.model.layers[2].mlp.up_proj.weight.view(torch.int32)[3, 5] ^= 1
    ours, theirs = model.fingerprint.to_dict(), other.fingerprint.to_dict()
    assert [name for name in ours if ours[name] != theirs[name]] == ["weights"]


def test_another_dtype_is_another_model(tiny_model):
    narrow = tiny_model("llama", torch.bfloat16)
    assert narrow.fingerprint.weights != tiny_model("llama").fingerprint.weights


def test_rope_settings_change_rope_and_config(tiny_model):
    a = tiny_model("llama").fingerprint
    b = tiny_model("llama-linear").fingerprint
    assert a.tokenizer == b.tokenizer
    assert a.rope != b.rope
    assert a.config != b.config


def test_an_added_token_changes_the_tokenizer_digest(model):
    changed = copy.deepcopy(model.tokenizer.hf)
    changed.add_tokens(["newword"])
    assert HFTokenizer(changed).digest != model.tokenizer.digest


def test_the_chat_template_changes_its_own_field_alone(model):
    changed = copy.deepcopy(model.tokenizer.hf)
    changed.chat_template = "{{ messages[-1]['content'] }}"
    other = Model(model.name, copy.deepcopy(model.hf), HFTokenizer(changed))
    ours, theirs = model.fingerprint.to_dict(), other.fingerprint.to_dict()
    assert [name for name in ours if ours[name] != theirs[name]] == ["chat_template"]


class Scaled(torch.nn.Module):
    """As a LoRA wrapper: the scaling is a number, no tensor."""

    def __init__(self, inner, scaling):
        super().__init__()
        self.inner = inner
        self.scaling = {"default": scaling}

    def forward(self, x):
        return self.inner(x) * self.scaling["default"]


def test_a_wrappers_scaling_counts_although_it_is_no_tensor(model):
    digests = set()
    for scaling in (1.0, 2.0):
        other = fresh(model)
        attention = other.hf.model.layers[0].self_attn
        attention.k_proj = Scaled(attention.k_proj, scaling)
        digests.add(other.fingerprint.weights)
    assert len(digests) == 2
    assert model.fingerprint.weights not in digests


def test_a_saved_folder_loads_as_the_same_model(model, tmp_path):
    model.hf.save_pretrained(tmp_path)
    model.tokenizer.hf.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path))
    assert loaded.fingerprint == model.fingerprint
    ids = tuple(range(20))
    ours = model.forward(ids, model.new_cache(20))
    assert torch.equal(loaded.forward(ids, loaded.new_cache(20)), ours)
