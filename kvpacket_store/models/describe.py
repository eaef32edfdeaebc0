"""Describe a model exactly: K,V layout, RoPE, fingerprint. What is unknown is refused.

The weights are hashed as they compute: every tensor of the module that runs, quantised and
LoRA-wrapped ones included, with the settings of wrapper modules that are no tensors (a LoRA's
scaling, which adapters are active).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from kvpacket_store.errors import UnsupportedModelError
from kvpacket_store.models.rotary import layer_types_of
from kvpacket_store.types import KVLayout, LayerLayout, ModelFingerprint, RopeSpec

__all__ = ["canonical_json", "fingerprint_of", "layout_of", "weights_digest"]

# Fields of a config that say where it came from or how it is stored, not what it computes.
_NOT_IDENTITY = frozenset(
    {"_name_or_path", "transformers_version", "torch_dtype", "dtype", "architectures", "use_cache"}
)
_GENERATION_ONLY = frozenset({"bos_token_id", "eos_token_id", "pad_token_id"})
# A quantiser's settings are in its modules and tensors, which `weights_digest` reads.
_IN_WEIGHTS = frozenset({"quantization_config"})


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal text.

    Examples
    --------
    >>> canonical_json({"b": 1, "a": [1.5, None]})
    '{"a":[1.5,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def layout_of(config: Any) -> KVLayout:
    """Return the K,V layout of a (text) config.

    Raises
    ------
    UnsupportedModelError
        Layers share K,V with other layers, which packets cannot express.
    """
    if getattr(config, "num_kv_shared_layers", 0):
        raise UnsupportedModelError(
            f"model type {config.model_type!r} is not supported: layers share K,V with each other"
        )
    window = getattr(config, "sliding_window", None)
    layers = tuple(
        LayerLayout(
            rope=kind, sliding_window_tokens=window if kind == "sliding_attention" else None
        )
        for kind in layer_types_of(config)
    )
    heads = config.num_attention_heads
    return KVLayout(
        num_layers=config.num_hidden_layers,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        layers=layers,
    )


def _tensor_digest(item: tuple[str, torch.Tensor]) -> tuple[str, str]:
    name, tensor = item
    digest = hashlib.sha256(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
    flat = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8)
    digest.update(memoryview(flat.numpy()))  # type: ignore[arg-type]
    return name, digest.hexdigest()


def _plain(value: Any) -> bool:
    """Whether a value is made of numbers, strings and booleans alone."""
    if isinstance(value, Mapping):
        return all(isinstance(k, str | int) and _plain(v) for k, v in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return all(_plain(v) for v in value)
    return value is None or isinstance(value, str | int | float | bool)


def _wrapper_settings(module: torch.nn.Module) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (name, class, plain attributes) of modules that come from elsewhere."""
    for name, child in module.named_modules():
        owner = type(child).__module__.split(".")[0]
        if owner in {"torch", "transformers", "kvpacket_store"}:
            continue
        settings = {
            key: sorted(value) if isinstance(value, set | frozenset) else value
            for key, value in vars(child).items()
            if key not in {"training", "_is_full_backward_hook"} and _plain(value)
        }
        yield name, f"{type(child).__module__}.{type(child).__qualname__}", settings


def weights_digest(module: torch.nn.Module, own_dtypes: Mapping[str, torch.dtype]) -> str:
    """Return the SHA-256 over every tensor of ``module`` and the settings of its wrappers.

    Parameters are hashed in their own dtype, whatever they compute in on this machine.
    """
    parameters = [
        (n, p.detach().to(own_dtypes.get(n, p.dtype))) for n, p in module.named_parameters()
    ]
    tensors = [*parameters, *module.named_buffers()]
    with ThreadPoolExecutor(2) as pool:  # hashlib lets other threads run
        parts = sorted(pool.map(_tensor_digest, tensors))
    whole = canonical_json([parts, list(_wrapper_settings(module))])
    return hashlib.sha256(whole.encode()).hexdigest()


def _sha(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def fingerprint_of(
    module: torch.nn.Module,
    own_dtypes: Mapping[str, torch.dtype],
    config: Any,
    ropes: Mapping[str, RopeSpec],
    *,
    tokenizer_digest: str,
    chat_template: str | None,
) -> ModelFingerprint:
    """Return what the model is, for the purpose of reusing its K and V."""
    dropped = _NOT_IDENTITY | _GENERATION_ONLY | _IN_WEIGHTS
    plain = {k: v for k, v in config.to_dict().items() if k not in dropped}
    return ModelFingerprint(
        weights=weights_digest(module, own_dtypes),
        tokenizer=tokenizer_digest,
        config=_sha(plain),
        rope=_sha({name: spec.to_dict() for name, spec in ropes.items()}),
        chat_template=_sha(chat_template or ""),
    )
