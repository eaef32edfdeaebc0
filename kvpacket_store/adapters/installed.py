"""The adapters that ship with the package, each for one model's weights."""

from __future__ import annotations

import json
from importlib import resources

from kvpacket_store.adapters.adapter import Adapter
from kvpacket_store.adapters.files import adapter_metadata, load_adapter

__all__ = ["shipped_adapter"]


def shipped_adapter(model_weights: str) -> Adapter | None:
    """Return the adapter that was trained for the model with this weights digest, if one ships.

    Examples
    --------
    >>> shipped_adapter("of no model") is None
    True
    """
    with resources.as_file(resources.files("kvpacket_store.adapters") / "shipped") as folder:
        for path in sorted(folder.glob("*.safetensors")):
            fingerprint = json.loads(adapter_metadata(path)["model_fingerprint"])
            if fingerprint["weights"] == model_weights:
                return load_adapter(path)
    return None
