"""The adapters that ship with the package, each for one model, and what they are worth."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from kvpacket_store.adapters.adapter import Adapter
from kvpacket_store.adapters.files import adapter_metadata, load_adapter

__all__ = ["shipped_adapter", "shipped_report"]


def shipped_adapter(fingerprint: Mapping[str, str]) -> Adapter | None:
    """Return the adapter that was trained for the model of this fingerprint, if one ships.

    Another tokenizer, RoPE or chat template is another model here: its preamble may differ.

    Examples
    --------
    >>> shipped_adapter({"weights": "of no model"}) is None
    True
    """
    with _shipped() as folder:
        for path in sorted(folder.glob("*.safetensors")):
            if json.loads(adapter_metadata(path)["model_fingerprint"]) == fingerprint:
                return load_adapter(path)
    return None


def shipped_report(adapter_digest: str) -> dict[str, Any] | None:
    """Return the quality report that ships with the adapter of this digest, if one does.

    Examples
    --------
    >>> shipped_report("of no adapter") is None
    True
    """
    with _shipped() as folder:
        for path in sorted(folder.glob("*.quality.json")):
            report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if report["pair"]["adapter"] == adapter_digest:
                return report
    return None


@contextmanager
def _shipped() -> Iterator[Path]:
    with resources.as_file(resources.files("kvpacket_store.adapters") / "shipped") as folder:
        yield folder
