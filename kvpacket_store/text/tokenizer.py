"""What this room asks of a tokenizer; the model seam implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from kvpacket_store.types import TokenIds

__all__ = ["Tokenizer"]


@runtime_checkable
class Tokenizer(Protocol):
    """Text to token ids and back, without any template around it.

    Whatever stands in a document is data. So ``tokenize`` never adds a token of its own (no BOS,
    no EOS), and text that spells a control token stays ordinary text.
    """

    @property
    def digest(self) -> str:
        """Hex SHA-256 over everything that decides which ids a text gets."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of the control tokens (BOS, EOS, turn markers, padding).

        ``tokenize`` never returns one. The token for unknown text is not a control token.
        """

    def tokenize(self, text: str) -> TokenIds:
        """Return the ids of ``text`` alone."""

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Return the text of ``token_ids``; bytes that are no character become U+FFFD."""
