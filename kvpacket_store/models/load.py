"""Load a model by preset, local folder or hub name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from kvpacket_store.errors import KVPacketError, ModelError
from kvpacket_store.models.attention import ATTENTION_NAME, register_attention
from kvpacket_store.models.compute import to_compute_dtype
from kvpacket_store.models.families import refuse_unsupported
from kvpacket_store.models.model import Model
from kvpacket_store.models.presets import PRESETS, preset_folder
from kvpacket_store.models.tokenizer import HFTokenizer

__all__ = ["load_model"]


def load_model(
    name: str,
    *,
    dtype: torch.dtype | str = "auto",
    compute: torch.dtype | None = None,
    device: str | None = None,
) -> Model:
    """Load a model and its tokenizer.

    Parameters
    ----------
    name : str
        A preset (``smollm2``, ``gemma3-270m``), a folder with ``config.json``, safetensors and
        tokenizer, or a name on the model hub.
    dtype : torch.dtype or "auto"
        What the weights are rounded to; "auto" takes what they are stored in.
    compute : torch.dtype, optional
        What to compute in; default is what suits the processor (`compute_dtype`).
    device : str, optional
        Default: CUDA where there is one, else the CPU.

    Raises
    ------
    ModelError
        It is not there, not readable, or not complete.
    UnsupportedModelError
        It is, and is refused; the message names the reason.
    """
    source = str(preset_folder(name)) if name in PRESETS else name
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    config = _config_of(name, source)
    refuse_unsupported(config)
    try:
        hf, tokenizer = _load(source, dtype)
    except KVPacketError:
        raise
    except Exception as error:
        raise ModelError(f"model {name!r} could not be loaded from {source}: {error}") from error
    hf = hf.to(device)
    own_dtypes = to_compute_dtype(hf, compute)
    return Model(name, hf, HFTokenizer(tokenizer), own_dtypes=own_dtypes)


def _config_of(name: str, source: str) -> Any:
    from transformers import AutoConfig

    folder = Path(source)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ModelError(f"model {name!r}: {source} has no config.json; pass a model folder")
    try:
        return AutoConfig.from_pretrained(source)
    except Exception as error:
        raise ModelError(
            f"model {name!r} is neither a preset ({', '.join(PRESETS)}), nor a readable folder, "
            f"nor a name that the model hub gave: {error}"
        ) from error


def _load(source: str, dtype: torch.dtype | str) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    register_attention()
    tokenizer = AutoTokenizer.from_pretrained(source)
    hf = AutoModelForCausalLM.from_pretrained(
        source, dtype=dtype, attn_implementation=ATTENTION_NAME
    )
    return hf, tokenizer
