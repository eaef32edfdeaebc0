"""A Hugging Face tokenizer behind the small protocol that the text room asks for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from kvpacket_store.errors import ModelError
from kvpacket_store.types import TokenIds

__all__ = ["HFTokenizer"]


class HFTokenizer:
    """Tokenizes documents and questions alone: no BOS, and control tokens in them stay text.

    Parameters
    ----------
    tokenizer
        A *fast* transformers tokenizer (one with a ``backend_tokenizer``).
    """

    def __init__(self, tokenizer: Any) -> None:
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise ModelError(
                f"tokenizer {type(tokenizer).__name__} has no fast (tokenizers) form; "
                "convert it with transformers' convert_slow_tokenizer and save it to the folder"
            )
        self.hf = tokenizer

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of every control token, added ones included."""
        added = self.hf.added_tokens_decoder
        return frozenset(i for i, token in added.items() if token.special) | frozenset(
            self.hf.all_special_ids
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the whole tokenizer (vocabulary, merges, normaliser, added tokens)."""
        return hashlib.sha256(self.hf.backend_tokenizer.to_str().encode()).hexdigest()

    @property
    def bos_id(self) -> int | None:
        """The beginning-of-sequence id that this tokenizer puts before a text, or None."""
        with_special: list[int] = self.hf("a").input_ids
        bos = self.hf.bos_token_id
        return bos if bos is not None and with_special[:1] == [bos] else None

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end an answer as far as the tokenizer knows."""
        eos = self.hf.eos_token_id
        return frozenset() if eos is None else frozenset({int(eos)})

    def tokenize(self, text: str) -> TokenIds:
        """Tokenize ``text`` alone; text that looks like a control token stays text."""
        ids: list[int] = self.hf(
            text, add_special_tokens=False, split_special_tokens=True, verbose=False
        ).input_ids
        return tuple(ids)

    def tokenize_template(self, text: str) -> TokenIds:
        """Tokenize text of the chat template, in which control tokens are meant."""
        ids: list[int] = self.hf(
            text, add_special_tokens=False, split_special_tokens=False, verbose=False
        ).input_ids
        return tuple(ids)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Return the text of ``token_ids``; control tokens give nothing."""
        text: str = self.hf.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text
