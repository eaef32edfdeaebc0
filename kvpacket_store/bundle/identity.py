"""Which packets fit which store. Fails closed: a field that is missing or unknown differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kvpacket_store.bundle.json_text import to_json
from kvpacket_store.errors import BundleError, ModelMismatchError
from kvpacket_store.store import StoreMeta

__all__ = ["BundleIdentity", "require_same_identity"]

# The chat template decides how a question is asked, not what a packet holds.
_MODEL_FIELDS = ("weights", "tokenizer", "config", "rope")
_TEXT_FIELDS = ("adapter_digest", "kv_dtype", "recipe", "embedder", "codec")


@dataclass(frozen=True, slots=True)
class BundleIdentity:
    """What the store that a bundle comes from was made for: fields as in ``StoreMeta``.

    ``codec`` is told, not compared: a record says itself how it is to be read.
    """

    fingerprint: Mapping[str, str]
    layout: Mapping[str, Any]
    adapter_digest: str
    kv_dtype: str
    recipe: str
    embedder: str
    codec: str

    @classmethod
    def of(cls, meta: StoreMeta) -> BundleIdentity:
        """Return the identity of a store."""
        return cls(
            fingerprint=dict(meta.fingerprint),
            layout=dict(meta.layout),
            adapter_digest=meta.adapter_digest,
            kv_dtype=meta.kv_dtype,
            recipe=meta.recipe,
            embedder=meta.embedder,
            codec=meta.codec,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: object) -> BundleIdentity:
        """Read what `to_dict` gave; refuse anything else."""
        if not isinstance(values, dict) or set(values) != set(cls.__dataclass_fields__):
            raise BundleError("the bundle does not say where it comes from; export it again")
        is_sound = (
            all(isinstance(values[name], str) for name in _TEXT_FIELDS)
            and all(isinstance(values[name], dict) for name in ("fingerprint", "layout"))
            and all(isinstance(digest, str) for digest in values["fingerprint"].values())
        )
        if not is_sound:
            raise BundleError("the bundle's identity has fields of another kind; export it again")
        return cls(**values)

    def differing_fields(self, other: BundleIdentity) -> list[str]:
        """Return the names of the fields by which packets of one do not fit the other."""
        fields = [
            name
            for name in _MODEL_FIELDS
            if name not in self.fingerprint or self.fingerprint[name] != other.fingerprint.get(name)
        ]
        if to_json(self.layout) != to_json(other.layout):  # lists and tuples are one in JSON
            fields.append("layout")
        named = {"adapter_digest": "adapter"}
        compared = [name for name in _TEXT_FIELDS if name != "codec"]
        fields += [
            named.get(name, name)
            for name in compared
            if getattr(self, name) != getattr(other, name)
        ]
        return fields


def require_same_identity(identity: BundleIdentity, meta: StoreMeta) -> None:
    """Raise ModelMismatchError unless packets of ``identity`` are packets of this store."""
    if fields := BundleIdentity.of(meta).differing_fields(identity):
        raise ModelMismatchError(
            f"the bundle was not made for model {meta.model!r} as this store uses it: its "
            f"{', '.join(fields)} differ; import it into a store of the same model, adapter and "
            "recipe, or ingest the documents"
        )
