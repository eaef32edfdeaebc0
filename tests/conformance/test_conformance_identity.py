"""Identity fails closed: whatever field differs, a packet of another identity is never served.

Each field of a packet's identity is changed alone, on a store of a real (tiny) model. Either the
store is refused by name, or its packets are misses.
"""

import ast
import copy
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import kvpacket_store
from kvpacket_store.adapters import Adapter, save_adapter
from kvpacket_store.api import Engine, Store
from kvpacket_store.errors import ModelMismatchError, NotFoundError, StoreCorruptError
from kvpacket_store.models import HFTokenizer, Model
from kvpacket_store.packet import PacketIdentity
from kvpacket_store.types import Document, ModelFingerprint

pytestmark = pytest.mark.conformance

DOCS = [
    Document("rhine", "The Rhine rises in the Alps. It flows to the North Sea."),
    Document("elbe", "The Elbe rises in Bohemia and flows to the North Sea."),
]
QUESTION = "Where does the Rhine rise?"
LONG = {"max_new_tokens": 8, "ignore_eos": True}


def soft(seed):
    return Adapter.untrained(np.random.default_rng(seed).normal(0, 0.3, (50, 64)), num_tokens=4)


@pytest.fixture
def filed(new_store):
    store = new_store(segment_tokens=64, adapter=soft(0))
    store.ingest(DOCS)
    return store


def claimed(model, **changes):
    """The same model with other words in its fingerprint: one field alone."""
    other = copy.copy(model)
    other.__dict__["fingerprint"] = replace(model.fingerprint, **changes)
    return other


def one_bit(model):
    other = copy.deepcopy(model.hf)
    with torch.no_grad():
        other.model.layers[1].mlp.up_proj.weight.view(torch.int32)[3, 5] ^= 1
    return Model(model.name, other, model.tokenizer)


def one_token(model):
    tokenizer = copy.deepcopy(model.tokenizer.hf)
    tokenizer.add_tokens(["newword"])
    return Model(model.name, copy.deepcopy(model.hf), HFTokenizer(tokenizer))


def one_setting(model):
    other = copy.deepcopy(model.hf)
    other.config.rms_norm_eps *= 2
    return Model(model.name, other, model.tokenizer)


OTHER_MODELS = {
    "weights": one_bit,
    "tokenizer": one_token,
    "config": one_setting,
    "rope": lambda model: claimed(model, rope="a" * 64),
}


def require_never_served(store, monkeypatch):
    """Answer without a record of the store, or refuse."""
    monkeypatch.setattr(store.packets, "read_packet", lambda *_: pytest.fail("served"))
    try:
        answer = Engine(store).generate(QUESTION, documents=["rhine", "elbe"], **LONG)
    except (ModelMismatchError, StoreCorruptError):
        pass
    else:
        assert len(answer.fallbacks) == sum(len(d.packets) for d in answer.documents)
        assert {p.tier for d in answer.documents for p in d.packets} == {"prefill"}


def require_other_keys(store, other_prefiller):
    """Name no packet of the store by another identity."""
    for manifest in store.packets.iter_packets("default"):
        key = other_prefiller.segment_key(manifest.token_ids)
        assert key != manifest.packet_key
        assert not store.packets.has_packet("default", key, manifest.token_ids)


def test_every_field_is_tested_here():
    names = {field.name for field in fields(PacketIdentity)}
    of_model = {field.name for field in fields(ModelFingerprint)} - {"chat_template"}
    assert of_model == OTHER_MODELS.keys()
    assert names - of_model == {
        "format_version",
        "kv_dtype",
        "adapter",
        "recipe",
        "role",  # a segment's, a header's and a preamble's keys: tests/unit/packet
        "token_ids",
    }


def test_the_same_model_is_served(filed, tmp_path, tiny_model, word_embedder):
    """The others would pass on a store that serves nobody."""
    path = filed.path
    filed.close()
    with Store.open(path, model=tiny_model("llama"), embedder=word_embedder) as store:
        answer = Engine(store).generate(QUESTION, documents=["rhine", "elbe"], **LONG)
    assert answer.fallbacks == []
    assert {p.tier for d in answer.documents for p in d.packets} == {"disk"}


@pytest.mark.parametrize("field", OTHER_MODELS)
def test_a_model_that_differs_is_refused_by_name(filed, model, field, monkeypatch):
    other = OTHER_MODELS[field](model)
    ours, theirs = model.fingerprint.to_dict(), other.fingerprint.to_dict()
    assert [name for name in ours if ours[name] != theirs[name]] == [field]
    with pytest.raises(ModelMismatchError, match=f"its {field} differ"):
        Store.open(filed.path, model=other)
    monkeypatch.setattr("kvpacket_store.models.load_model", lambda name: other)
    with Store.open(filed.path) as store, pytest.raises(ModelMismatchError, match=field):
        Engine(store)


@pytest.mark.parametrize("field", OTHER_MODELS)
def test_packets_of_a_model_that_differs_are_misses(filed, model, field, monkeypatch):
    """Were the model let in all the same."""
    store = Store(filed.packets, filed.path, model=OTHER_MODELS[field](model))
    require_other_keys(store, store.prefiller)
    require_never_served(store, monkeypatch)


@pytest.mark.parametrize(
    ("constant", "value"), [("PREFILL_RECIPE", "alone-2"), ("PACKET_FORMAT_VERSION", 2)]
)
def test_packets_of_another_recipe_or_format_are_misses(filed, constant, value, monkeypatch):
    monkeypatch.setattr(f"kvpacket_store.prefill.prefiller.{constant}", value)
    require_other_keys(filed, filed.prefiller)
    require_never_served(filed, monkeypatch)


def test_packets_of_another_kv_dtype_are_misses(filed, model, monkeypatch):
    other = replace(filed.meta, kv_dtype="bf16")
    assert filed.meta.kv_dtype != other.kv_dtype
    monkeypatch.setattr(filed.packets, "meta", other)
    store = Store(filed.packets, filed.path, model=model)
    require_other_keys(store, store.prefiller)
    require_never_served(store, monkeypatch)


def test_an_adapter_file_swapped_in_place_is_refused(filed, model, monkeypatch):
    save_adapter(soft(1), filed.path / "adapter.safetensors")
    store = Store(filed.packets, filed.path, model=model)
    with pytest.raises(ModelMismatchError, match="not the adapter"):
        Engine(store).generate(QUESTION, documents=["rhine"], **LONG)


def test_packets_of_another_adapter_are_misses(filed, model, monkeypatch):
    """Were file and description swapped both."""
    save_adapter(soft(1), filed.path / "adapter.safetensors")
    monkeypatch.setattr(filed.packets, "meta", replace(filed.meta, adapter_digest=soft(1).digest))
    store = Store(filed.packets, filed.path, model=model)
    require_other_keys(store, store.prefiller)
    require_never_served(store, monkeypatch)


def test_other_tokens_are_a_miss(filed, monkeypatch):
    manifests = list(filed.packets.iter_packets("default"))
    for manifest in manifests:
        for other in (manifest.token_ids[:-1], manifest.token_ids[::-1], (*manifest.token_ids, 1)):
            assert filed.prefiller.segment_key(other) != manifest.packet_key
            assert not filed.packets.has_packet("default", manifest.packet_key, other)
            with pytest.raises(NotFoundError, match="other tokens"):
                filed.packets.read_record("default", manifest.packet_key, other)


# --- what is there can be read, and only that


def exists(call):
    try:
        call()
    except NotFoundError:
        return False
    return True


def test_what_is_listed_can_be_read_and_asked(filed):
    """One way to build a key, so that listing, showing, reading and asking agree at each step."""
    engine = Engine(filed)
    steps = [
        lambda: None,
        lambda: filed.ingest([Document("oxygen", "Oxygen is a gas.")]),
        lambda: filed.delete("rhine"),
        lambda: filed.ingest(DOCS, namespace="other"),
        lambda: filed.ingest([Document("elbe", "The Elbe is a river.")]),
        lambda: filed.delete("elbe", namespace="other"),
    ]
    for step in steps:
        step()
        for namespace in ("default", "other", "nobody"):
            listed = {
                d.id for d in filed.list(namespace=None).documents if d.namespace == namespace
            }
            for document_id in ("rhine", "elbe", "oxygen", "absent"):
                asked = {"namespace": namespace}
                found = [
                    exists(lambda a=asked, d=document_id: filed.show(d, **a)),
                    exists(lambda a=asked, d=document_id: filed.packet(d, **a)),
                    exists(
                        lambda a=asked, d=document_id: engine.generate(
                            QUESTION, documents=[d], **a, max_new_tokens=1
                        )
                    ),
                ]
                assert found == [document_id in listed] * 3
    for manifest in filed.packets.iter_packets():
        assert filed.packets.has_packet(manifest.namespace, manifest.packet_key)


# --- hashes that are no identity

ROOMS = ("adapters", "api", "models", "packet")
FORBIDDEN_MODULES = {"xxhash", "zlib", "binascii"}
FORBIDDEN_CALLS = {"hash", "md5", "sha1", "crc32", "adler32"}


def sources():
    root = Path(kvpacket_store.__file__).parent
    return [path for room in ROOMS for path in sorted((root / room).rglob("*.py"))]


@pytest.mark.parametrize("path", sources(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_only_cryptographic_hashes_decide_identity(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not {alias.name for alias in node.names} & FORBIDDEN_MODULES
        elif isinstance(node, ast.ImportFrom):
            assert node.module not in FORBIDDEN_MODULES
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", None))
            assert name not in FORBIDDEN_CALLS, f"line {node.lineno}"
