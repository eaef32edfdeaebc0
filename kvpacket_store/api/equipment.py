"""What a store works with, loaded when it is first needed: model, adapter, embedder."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kvpacket_store.api.adapter_choice import kept_adapter
from kvpacket_store.api.catalogue import Catalogue
from kvpacket_store.api.identity import require_same_embedder, require_same_model
from kvpacket_store.store import PacketStore
from kvpacket_store.types import Document, Segment

if TYPE_CHECKING:
    from kvpacket_store.adapters import Adapter
    from kvpacket_store.assemble import Corrector
    from kvpacket_store.models import Model
    from kvpacket_store.prefill import Prefiller
    from kvpacket_store.retrieve import SentenceEmbedder

__all__ = ["Equipped", "default_embedder"]


class Equipped(Catalogue):
    """The part of a `Store` that holds its model and what goes with it."""

    def __init__(
        self,
        packets: PacketStore,
        path: Path,
        *,
        model: Model | None = None,
        embedder: SentenceEmbedder | None = None,
    ) -> None:
        self._packets = packets
        self.path = path
        self._model = model
        self._embedder = embedder
        self._has_checked_embedder = False
        self._loading = threading.RLock()

    @property
    def model(self) -> Model:
        """The store's model, loaded once.

        Raises
        ------
        ModelMismatchError
            What its name leads to now is not the model that the store was made with.
        """
        with self._loading:
            if self._model is None:
                from kvpacket_store.models import load_model

                loaded = load_model(self.meta.model)
                require_same_model(loaded.fingerprint, self.meta.fingerprint, loaded.name)
                self._model = loaded
            return self._model

    @property
    def embedder(self) -> SentenceEmbedder:
        """What turns segments and questions into vectors.

        Raises
        ------
        ModelMismatchError
            It is not the one that the store's segments were embedded with.
        """
        with self._loading:
            if self._embedder is None:
                self._embedder = default_embedder()
            if not self._has_checked_embedder:
                require_same_embedder(self._embedder, self.meta.embedder)
                self._has_checked_embedder = True
            return self._embedder

    @cached_property
    def adapter(self) -> Adapter:
        """The store's adapter."""
        width = int(self.model.embedding.weight.shape[1])
        return kept_adapter(self.path, self.meta, width)

    @cached_property
    def prefiller(self) -> Prefiller:
        """What makes its packets."""
        from kvpacket_store.prefill import Prefiller

        return Prefiller(self.model, self.adapter, self.kv_dtype)

    @cached_property
    def corrector(self) -> Corrector:
        """What corrects its packets behind others."""
        from kvpacket_store.assemble import Corrector

        return Corrector(self.adapter, self.model)

    def segments(self, document: Document) -> list[Segment]:
        """Return the segments of a document as this store cuts them."""
        from kvpacket_store.text import segment_document

        return segment_document(document, self.model.tokenizer, self.meta.segment_tokens)


def default_embedder() -> SentenceEmbedder:
    """Return all-MiniLM-L6-v2, as its package ships it."""
    from kvpacket_store.retrieve import MiniLMEmbedder

    return MiniLMEmbedder()
