"""What a store was made for: read at every opening. The codec of new packets may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from kvpacket_store.codec import are_base_steps
from kvpacket_store.errors import StoreCorruptError, UnsupportedFormatError, UsageError

__all__ = ["FORMAT_VERSION", "MIN_MAX_BYTES", "StoreMeta"]

FORMAT_VERSION = 1
MIN_MAX_BYTES = 1 << 20
_ADDED_LATER = ("base_step", "importance", "correction_digest")


@dataclass(frozen=True, slots=True)
class StoreMeta:
    """Model, adapter, codec and limits of a store.

    Parameters
    ----------
    model : str
        As the user named it.
    fingerprint : mapping of str to str
        ``ModelFingerprint.to_dict()``.
    layout : mapping
        ``KVLayout.to_dict()``.
    rope : sequence of mapping
        ``RopeSpec.to_dict()`` of each rotary embedding.
    adapter : str or None
        The adapter's name.
    adapter_digest : str
        Hex SHA-256 of what packets are prefilled with, or ``"none"``.
    correction_digest : str or None
        Of what the adapter adds to packets behind others.
    codec : str
        Codec level of new records.
    layers : int
        Of new packets: 1, or 2 for base and enhancement.
    kv_dtype, recipe : str
        As in a packet's identity.
    segment_tokens : int
        Longest segment, tokens.
    max_bytes : int or None
        Most that the folder may take on disk; None: no limit of ours.
    created_at : str
        ISO 8601.
    embedder : str
        Digest of what embedded its segments; vectors of another one mean nothing beside them.
    codec_pack : str or None
        Digest of the codec pack that new records are coded with, if the level takes one.
    base_step : sequence of (str, str), or None
        How coarse the base of new packets in two layers is, by model layer, for K and for V. None:
        they have one layer, or an early version made the store, and it is the codec's default.
    importance : bool
        Whether new packets are stored with how much each position is needed.
    packet_ttl_s : int or None
        Packets unused for longer are evicted, first of all and by `gc`; None: not for their age.
    format_version : int
        Of the store's layout on disk.
    """

    model: str
    fingerprint: Mapping[str, str]
    layout: Mapping[str, Any]
    rope: tuple[Mapping[str, Any], ...]
    adapter: str | None
    adapter_digest: str
    codec: str
    layers: int
    kv_dtype: str
    recipe: str
    segment_tokens: int
    max_bytes: int | None
    created_at: str
    embedder: str = ""
    codec_pack: str | None = None
    packet_ttl_s: int | None = None
    base_step: tuple[tuple[str, str], ...] | None = None
    importance: bool = False
    correction_digest: str | None = None
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "rope", tuple(self.rope))
        if self.base_step is not None:
            num_layers = self.layout["num_layers"]
            if self.layers != 2 or not are_base_steps(self.base_step, num_layers):
                raise UsageError(f"base_step {self.base_step!r:.80} is not of this store's layers")
            object.__setattr__(self, "base_step", tuple((k, v) for k, v in self.base_step))
        if type(self.importance) is not bool:
            raise UsageError(f"importance is {self.importance!r:.80}; it is true or false")
        if self.max_bytes is not None and self.max_bytes < MIN_MAX_BYTES:
            raise UsageError(
                f"max_bytes {self.max_bytes} is too little for a store; "
                f"pass {MIN_MAX_BYTES} or more, or None"
            )
        if self.packet_ttl_s is not None and self.packet_ttl_s < 1:
            raise UsageError(
                f"packet_ttl_s {self.packet_ttl_s} is no time to live; "
                "pass 1 second or more, or None"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without fields added later that are as before they were."""
        values = asdict(self)
        for name in _ADDED_LATER:
            if not values[name]:
                del values[name]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StoreMeta:
        """Read what `to_dict` gave.

        Raises
        ------
        UnsupportedFormatError
            A later version made the store; upgrade this package.
        StoreCorruptError
            A field is missing, unknown or not what it should be.
        """
        version = values.get("format_version")
        if not isinstance(version, int) or version < 1:
            raise StoreCorruptError(f"the store has no format version ({version!r:.40})")
        if version > FORMAT_VERSION:
            raise UnsupportedFormatError(
                f"the store has format {version}, this version reads up to {FORMAT_VERSION}; "
                "upgrade kvpacket-store"
            )
        names = {field.name for field in fields(cls)}
        if {*values, *_ADDED_LATER} != names:
            raise StoreCorruptError(
                f"the store's description lacks or adds fields: {sorted(set(values) ^ names)}"
            )
        try:
            return cls(**values)
        except (TypeError, LookupError, UsageError) as error:
            raise StoreCorruptError(f"the store's description does not hold: {error}") from error
