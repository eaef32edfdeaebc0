"""Which adapter a store gets, and how it keeps it."""

from __future__ import annotations

from pathlib import Path

from kvpacket_store.adapters import Adapter, load_adapter, save_adapter
from kvpacket_store.errors import AdapterError, ModelMismatchError

__all__ = ["choose_adapter", "keep_adapter", "kept_adapter"]

_FILE = "adapter.safetensors"


def choose_adapter(asked: str | Adapter | None, hidden_size: int) -> Adapter:
    """Return the adapter that was asked for: a value, a safetensors file, ``"none"`` or None.

    None means the one shipped for the model; no model has one yet, so it is no adapter.
    """
    if isinstance(asked, Adapter):
        return asked
    if asked is None or asked == "none":
        return Adapter.none(hidden_size)
    if not Path(asked).is_file():
        raise AdapterError(f"adapter {asked!r} is neither a safetensors file nor 'none'")
    return load_adapter(asked)


def keep_adapter(adapter: Adapter, folder: Path) -> None:
    """Put the adapter into the store's folder, so that the store needs nothing else."""
    if not adapter.is_none:
        save_adapter(adapter, folder / _FILE)


def kept_adapter(folder: Path, name: str | None, digest: str, hidden_size: int) -> Adapter:
    """Return the store's adapter.

    Raises
    ------
    ModelMismatchError
        The file in the folder is not the adapter that the packets were made with.
    """
    if digest == "none":
        return Adapter.none(hidden_size)
    found = load_adapter(folder / _FILE)
    if found.digest != digest:
        raise ModelMismatchError(
            f"{folder / _FILE} is not the adapter {name!r} that this store's packets were made "
            "with; put the original back, or ingest into a new store"
        )
    return Adapter(name or found.name, found.header, found.trailer)
