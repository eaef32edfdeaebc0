"""Is this the model that the store was made with? Fails closed, and says what differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvpacket_store.errors import ModelMismatchError
from kvpacket_store.types import ModelFingerprint

if TYPE_CHECKING:
    from kvpacket_store.retrieve import SentenceEmbedder

__all__ = [
    "PACKET_FIELDS",
    "differing_fields",
    "require_same_embedder",
    "require_same_model",
]

# The chat template decides how a question is asked, not what a packet holds.
PACKET_FIELDS = ("weights", "tokenizer", "config", "rope")


def differing_fields(fingerprint: ModelFingerprint, stored: Mapping[str, str]) -> list[str]:
    """Return the names of the fingerprint fields that differ; a missing one differs."""
    now = fingerprint.to_dict()
    return [name for name in PACKET_FIELDS if now[name] != stored.get(name)]


def require_same_model(fingerprint: ModelFingerprint, stored: Mapping[str, str], name: str) -> None:
    """Raise ModelMismatchError unless every field that decides a packet's K,V is the stored one."""
    if fields := differing_fields(fingerprint, stored):
        raise ModelMismatchError(
            f"model {name!r} is not the one that this store was made with: its "
            f"{', '.join(fields)} differ; use the original model, or ingest into a new store"
        )


def require_same_embedder(embedder: SentenceEmbedder, stored: str) -> None:
    """Raise ModelMismatchError unless ``embedder`` made the store's vectors."""
    if embedder.digest != stored:
        raise ModelMismatchError(
            f"embedder {embedder.name!r} is not the one that this store's segments were embedded "
            "with; pass the original one, or ingest into a new store"
        )
