"""Importance maps as files: safetensors, with the model that they are of."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from kvpacket_store.compress.importance_map import ImportanceMap
from kvpacket_store.durable import written_whole
from kvpacket_store.errors import UsageError

__all__ = ["load_map", "save_map", "shipped_map"]

_MAX_FILE_BYTES = 1 << 28


def load_map(path: Path, model_weights: str) -> ImportanceMap:
    """Read a map of the model with this weights digest.

    Raises
    ------
    UsageError
        No such file, no map, or one of another model; fit one with `kvps fit-importance`.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise UsageError(f"importance map {path} is larger than 256 MiB: that is no map")
        with safe_open(path, framework="pt") as tensors:
            weights = tensors.get_tensor("weights").double()
            of = (tensors.metadata() or {}).get("model_weights")
    except (SafetensorError, OSError) as error:
        raise UsageError(
            f"importance map {path} cannot be read ({error}); fit one with `kvps fit-importance`"
        ) from error
    if of != model_weights:
        raise UsageError(
            f"importance map {path} is of another model; fit one with `kvps fit-importance`"
        )
    if weights.dim() != 3 or not bool(weights.isfinite().all()):
        raise UsageError(f"importance map {path} has weights {list(weights.shape)}, or none finite")
    return ImportanceMap(weights)


def save_map(
    fitted: ImportanceMap, path: Path, model_weights: str, about: Mapping[str, str] | None = None
) -> None:
    """Write a map, synced, whole or not at all; ``about`` says what it was fitted to."""
    tensors = {"weights": fitted.weights.float().contiguous().cpu()}
    with written_whole(path) as scratch:
        save_file(tensors, scratch, metadata={**(about or {}), "model_weights": model_weights})


def shipped_map(model_weights: str) -> ImportanceMap | None:
    """Return the map that ships for the model with this weights digest, if there is one."""
    maps = resources.files("kvpacket_store.compress") / "maps"
    with resources.as_file(maps / f"{model_weights[:16]}.safetensors") as path:
        return load_map(path, model_weights) if path.is_file() else None
