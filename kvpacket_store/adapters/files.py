"""Adapters as safetensors files: tensors ``header`` and ``trailer``, metadata as strings.

``header_stays`` is ``yes``, ``no``, or not there, which means yes. A correction has tensors
``correction_maps`` and ``correction_biases``, and its ``half_tokens`` among the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from kvpacket_store.adapters.adapter import Adapter
from kvpacket_store.adapters.correction import Correction
from kvpacket_store.durable import written_whole
from kvpacket_store.errors import AdapterError

__all__ = ["adapter_metadata", "load_adapter", "save_adapter"]

_MAX_FILE_BYTES = 1 << 30
_STAYS = {"yes": True, "no": False}


def load_adapter(path: str | Path) -> Adapter:
    """Read an adapter; its name is the file's.

    Raises
    ------
    AdapterError
        No such file, not safetensors, or not an adapter of this version.
    """
    path = Path(path)
    if not path.is_file():
        raise AdapterError(f"adapter file {path} is not there")
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise AdapterError(f"adapter file {path} is larger than 1 GiB: that is no adapter")
    try:
        with safe_open(path, framework="numpy") as tensors:
            header = np.asarray(tensors.get_tensor("header"), np.float32)
            trailer = np.asarray(tensors.get_tensor("trailer"), np.float32)
            about = tensors.metadata() or {}
            correction = _correction(tensors, about)
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        raise AdapterError(
            f"adapter file {path} has no float tensors `header` and `trailer`: {error}"
        ) from error
    stays = about.get("header_stays", "yes")
    if stays not in _STAYS:
        raise AdapterError(
            f"adapter file {path} says header_stays: {stays!r}, which this version does not know; "
            "update kvpacket-store"
        )
    return Adapter(path.stem, header, trailer, _STAYS[stays], correction)


def _correction(tensors: Any, about: Mapping[str, str]) -> Correction | None:
    if "correction_maps" not in tensors.keys():  # noqa: SIM118 — no mapping
        return None
    maps, biases = (
        np.asarray(tensors.get_tensor(f"correction_{part}"), np.float32)
        for part in ("maps", "biases")
    )
    return Correction(maps, biases, int(about.get("half_tokens", "0")))


def adapter_metadata(path: str | Path) -> dict[str, str]:
    """Return what an adapter's file says of where it came from; nothing where it says nothing.

    Raises
    ------
    AdapterError
        No such file, or not safetensors.
    """
    try:
        with safe_open(path, framework="numpy") as tensors:
            return dict(tensors.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise AdapterError(f"adapter file {path} cannot be read: {error}") from error


def save_adapter(
    adapter: Adapter, path: str | Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write an adapter, synced, whole or not at all; ``metadata`` says where it came from."""
    path = Path(path)
    tensors: dict[str, npt.NDArray[Any]] = {"header": adapter.header, "trailer": adapter.trailer}
    about = {"digest": adapter.digest, "header_stays": "yes" if adapter.header_stays else "no"}
    if (correction := adapter.correction) is not None:
        tensors["correction_maps"] = _narrowed(correction.maps)
        tensors["correction_biases"] = _narrowed(correction.biases)
        about["half_tokens"] = str(correction.half_tokens)
    with written_whole(path) as scratch:
        save_file(tensors, scratch, metadata={**(metadata or {}), **about})


def _narrowed(array: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    """Return the same numbers as float16, if it can hold them."""
    narrow = array.astype(np.float16)
    return narrow if np.array_equal(narrow.astype(np.float32), array) else array
