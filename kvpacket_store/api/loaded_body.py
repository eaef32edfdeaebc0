"""A packet's K and V as they were found."""

from __future__ import annotations

from dataclasses import dataclass

from kvpacket_store.prefill import BodyKV
from kvpacket_store.types import TokenIds

__all__ = ["LoadedBody"]


@dataclass(slots=True)
class LoadedBody:
    """A packet's body, how long it took, and why it had to be made again, if it had."""

    packet_key: str
    token_ids: TokenIds
    _body: BodyKV | None
    tier: str
    load_ms: float = 0.0
    decode_ms: float = 0.0
    prefill_ms: float = 0.0
    fallback_reason: str | None = None
    kv_digest: str | None = None
    """Of the exact K and V, where these are only what the base gives."""
    base_bytes: int = 0

    @property
    def body(self) -> BodyKV:
        """K and V, until `forget`."""
        assert self._body is not None  # noqa: S101 - a fault of ours, not of the input
        return self._body

    def forget(self) -> None:
        """Let the arrays go once they are in slots."""
        self._body = None
