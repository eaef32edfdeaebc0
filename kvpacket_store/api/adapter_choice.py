"""Which adapter a store gets, and how it keeps it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvpacket_store.adapters import (
    Adapter,
    answers_digest,
    load_adapter,
    save_adapter,
    shipped_adapter,
)
from kvpacket_store.errors import AdapterError, ModelMismatchError

if TYPE_CHECKING:
    from kvpacket_store.models import Model
    from kvpacket_store.store import StoreMeta

__all__ = ["choose_adapter", "keep_adapter", "kept_adapter"]

_FILE = "adapter.safetensors"


def choose_adapter(asked: str | Adapter | None, model: Model) -> Adapter:
    """Return the adapter that was asked for: a value, a safetensors file, or a name.

    None means the one that ships for the model, or else ``"none"``. ``"preamble"`` is the one that
    needs no training (`preamble_adapter`).
    """
    if isinstance(asked, Adapter):
        return asked
    none = Adapter.none(int(model.embedding.weight.shape[1]))
    if asked is None:
        return shipped_adapter(model.fingerprint.to_dict()) or none
    if asked == "none":
        return none
    if asked == "preamble":
        from kvpacket_store.prefill import preamble_adapter

        return preamble_adapter(model)
    if not Path(asked).is_file():
        raise AdapterError(
            f"adapter {asked!r} is no safetensors file; name one, or 'preamble' or 'none'"
        )
    return load_adapter(asked)


def keep_adapter(adapter: Adapter, folder: Path) -> None:
    """Put the adapter into the store's folder, so that the store needs nothing else."""
    if not adapter.is_none:
        save_adapter(adapter, folder / _FILE)


def kept_adapter(folder: Path, meta: StoreMeta, hidden_size: int) -> Adapter:
    """Return a store's adapter.

    Raises
    ------
    ModelMismatchError
        The file in the folder is not the adapter that the packets were made with.
    """
    digest = answers_digest(meta.adapter_digest, meta.correction_digest)
    if digest == "none":
        return Adapter.none(hidden_size)
    found = load_adapter(folder / _FILE)
    if found.digest != digest:
        raise ModelMismatchError(
            f"{folder / _FILE} is not the adapter {meta.adapter!r} that this store was made "
            "with; put the original back, or ingest into a new store"
        )
    return replace(found, name=meta.adapter or found.name)
