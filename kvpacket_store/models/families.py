"""Which architectures are supported, where their K and V come out, and who is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvpacket_store.errors import UnsupportedModelError

__all__ = ["FAMILIES", "SUPPORTED_ROPE_TYPES", "Family", "family_of", "refuse_unsupported"]


@dataclass(frozen=True, slots=True)
class Family:
    """Where an attention module shows its keys before RoPE and its values.

    ``k_module``/``v_module`` are submodules whose output is tapped. ``k_heads_first`` says that the
    output is ``[B, H, T, D]`` instead of ``[B, T, H, D]`` (or ``[B, T, H·D]``). ``fused`` says that
    one projection gives ``[q | k | v]``.
    """

    k_module: str
    v_module: str
    k_heads_first: bool = False
    fused: bool = False


FAMILIES: Mapping[str, Family] = {
    "llama": Family("k_proj", "v_proj"),
    "mistral": Family("k_proj", "v_proj"),
    "qwen2": Family("k_proj", "v_proj"),
    "qwen3": Family("k_norm", "v_proj"),
    "gemma3_text": Family("k_norm", "v_proj", k_heads_first=True),
    "phi3": Family("qkv_proj", "qkv_proj", fused=True),
}

# dynamic and longrope change their frequencies with the length of the sequence: a key prefilled
# alone would not be the key of the whole prompt.
SUPPORTED_ROPE_TYPES = frozenset({"default", "linear", "llama3", "yarn"})

_REASONS: Mapping[str, str] = {
    "kv_lora_rank": "it keeps latent vectors instead of K and V (multi-head latent attention)",
    "vision_config": "it is multimodal: image positions are not those of text",
    "audio_config": "it is multimodal: audio positions are not those of text",
    "is_encoder_decoder": "it is an encoder-decoder",
    "state_size": "it has recurrent layers, whose state cannot be cut at documents",
    "mamba_d_state": "it has recurrent layers, whose state cannot be cut at documents",
    "linear_num_key_heads": "it has linear-attention layers, whose state cannot be cut",
}
_ATTENTION_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})


def family_of(config: Any) -> Family:
    """Return the family of a transformers config, or refuse with the reason.

    Raises
    ------
    UnsupportedModelError
        The architecture is not one of ``FAMILIES``; use one that is.
    """
    refuse_unsupported(config)
    return FAMILIES[config.model_type]


def refuse_unsupported(config: Any) -> None:
    """Raise UnsupportedModelError with the reason, unless everything about the model is known."""
    kind = getattr(config, "model_type", "unknown")
    for attribute, reason in _REASONS.items():
        if getattr(config, attribute, None):
            raise UnsupportedModelError(f"model type {kind!r} is not supported: {reason}")
    foreign = set(getattr(config, "layer_types", None) or ()) - _ATTENTION_LAYER_TYPES
    if foreign:
        raise UnsupportedModelError(
            f"model type {kind!r} is not supported: it has {sorted(foreign)} layers, "
            "whose state cannot be cut at documents"
        )
    for rope in _rope_parameter_sets(config):
        _refuse_rope(kind, rope)
    if kind not in FAMILIES:
        raise UnsupportedModelError(
            f"model type {kind!r} is not supported; supported are {', '.join(sorted(FAMILIES))}"
        )
    if getattr(config, "use_bidirectional_attention", False):
        raise UnsupportedModelError(
            f"model type {kind!r}: bidirectional attention is not supported"
        )


def _rope_parameter_sets(config: Any) -> list[Mapping[str, Any]]:
    """Return the RoPE parameter sets: one, or one a layer type."""
    parameters = getattr(config, "rope_parameters", None) or {}
    if all(isinstance(value, Mapping) for value in parameters.values()):
        return [value for value in parameters.values() if value]
    return [parameters]


def _refuse_rope(kind: str, rope: Mapping[str, Any]) -> None:
    rope_type = rope.get("rope_type", "default")
    if rope.get("mrope_section") or rope_type == "mrope":
        raise UnsupportedModelError(
            f"model type {kind!r} is not supported: multimodal RoPE has three positions a token"
        )
    if rope_type not in SUPPORTED_ROPE_TYPES:
        raise UnsupportedModelError(
            f"RoPE type {rope_type!r} is not supported: its angles depend on the length of the "
            "sequence, so a packet's keys would not be those of the prompt; supported are "
            f"{', '.join(sorted(SUPPORTED_ROPE_TYPES))}"
        )
