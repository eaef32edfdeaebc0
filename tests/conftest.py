"""Fixtures that several promises share: tiny random models of real architectures."""

from __future__ import annotations

import functools
import re
import zlib

import lmdb
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from kvpacket_store.api import Store
from kvpacket_store.models import HFTokenizer, Model
from kvpacket_store.store.schema import Table

SPECIAL_TOKENS = ["<|end|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SMALL = {
    "vocab_size": 260,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.3,  # the usual 0.02 gives attention that hardly looks anywhere
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": 256,
    "pad_token_id": 256,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 512,
}
_LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
CONFIGS = {
    "llama": lambda: LlamaConfig(**_SMALL),
    "llama-llama3": lambda: LlamaConfig(**_SMALL, rope_parameters=_LLAMA3),
    "llama-linear": lambda: LlamaConfig(**_SMALL, rope_parameters=_LINEAR),
    "llama-yarn": lambda: LlamaConfig(**_SMALL, rope_parameters=_YARN),
    "mistral": lambda: MistralConfig(**_SMALL, sliding_window=48),
    "qwen2": lambda: Qwen2Config(**_SMALL),
    "qwen3": lambda: Qwen3Config(**_SMALL, head_dim=32),
    "gemma3": lambda: Gemma3TextConfig(
        **_SMALL,
        head_dim=32,
        sliding_window=48,
        query_pre_attn_scalar=32,
        layer_types=["sliding_attention", "full_attention"] * 2,
    ),
    "phi3": lambda: Phi3Config(
        **_SMALL,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
    ),
}


@functools.cache
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer: id = byte, then the special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(SPECIAL_TOKENS)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|end|>",
        chat_template=CHAT_TEMPLATE,
        additional_special_tokens=SPECIAL_TOKENS[1:],
    )


@functools.cache
def make_model(kind: str, dtype: torch.dtype = torch.float32) -> Model:
    """A tiny random model, the same at each call and in each process."""
    torch.manual_seed(7)
    hf = AutoModelForCausalLM.from_config(CONFIGS[kind](), dtype=dtype)
    return Model(f"tiny-{kind}", hf, HFTokenizer(byte_tokenizer()))


@pytest.fixture(params=sorted(CONFIGS))
def any_model(request: pytest.FixtureRequest) -> Model:
    """Each supported architecture in turn."""
    return make_model(request.param)


@pytest.fixture
def model() -> Model:
    """The plain one: Llama."""
    return make_model("llama")


@pytest.fixture
def tiny_model():
    """A function: kind, dtype → Model."""
    return make_model


@pytest.fixture
def tiny_config():
    """A function: kind → transformers config."""
    return lambda kind: CONFIGS[kind]()


class WordEmbedder:
    """Deterministic and cheap: a text is the sum of random directions of its words."""

    name = "words"
    digest = "5" * 64
    dimension = 64

    def embed(self, texts):
        rows = [self._row(text) for text in texts]
        return np.stack(rows) if rows else np.zeros((0, self.dimension), np.float32)

    def _row(self, text):
        row = np.full(self.dimension, 1e-6, np.float32)
        for word in re.findall(r"\w+", text.lower()):
            row += np.random.default_rng(zlib.crc32(word.encode())).normal(size=self.dimension)
        return (row / np.linalg.norm(row)).astype(np.float32)


@pytest.fixture
def word_embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def new_store(tmp_path, word_embedder):
    """A function: model kind and options of ``Store.create`` → an open store on a tiny model."""
    opened = []

    def create(kind="llama", name="store.kvps", **options):
        options.setdefault("embedder", word_embedder)
        store = Store.create(tmp_path / name, model=make_model(kind), **options)
        opened.append(store)
        return store

    yield create
    for store in opened:
        store.close()


@pytest.fixture
def behind_its_back():
    """A function: change a store's tables without the store. Its handles must be closed."""

    def change(path, action):
        with (
            lmdb.open(str(path), map_size=1 << 30, max_dbs=32) as env,
            env.begin(write=True) as txn,
        ):
            tables = {table: env.open_db(table.encode(), txn, create=False) for table in Table}
            return action(txn, tables)

    return change
