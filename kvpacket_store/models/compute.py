"""In which dtype to compute on this machine. What is stored stays in the weights' own dtype.

A 16-bit model computes in 16 bit where the processor multiplies in it. Elsewhere torch falls back
to a scalar path: on a Zen 3 core (AVX2) a bf16 product of 190 rows takes 6 to 10 times as long as
the same in fp32. There the same weights compute in fp32, K and V are rounded to the model's dtype
where packets are made, and the model's identity stays what it was: another engine, the same model.

A single row is bound by reading the weights, not by multiplying: there the 16-bit weights are half
the bytes (49,152 x 576 on that core pair: 6.4 ms against 13.3 ms), so decoding keeps them beside.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any, Self, cast

import torch
from torch.nn import functional

__all__ = ["TwoWidthLinear", "compute_dtype", "to_compute_dtype"]

# A wide copy of a larger model would not leave room for packets; it computes in its own dtype.
_MAX_WIDE_BYTES = 8 << 30


class TwoWidthLinear(torch.nn.Linear):
    """A linear map in fp32 that keeps its 16-bit weights for single rows.

    A single row is rounded to 16 bit before the product, as the 16-bit model does; the sum is fp32
    inside the product and rounded to 16 bit once.
    """

    narrow_weight: torch.Tensor
    narrow_bias: torch.Tensor | None

    @classmethod
    def adopt(cls, linear: torch.nn.Linear, narrow: torch.dtype) -> Self:
        """Turn a linear module, whose values are all of dtype ``narrow``, into this."""
        linear.__class__ = cls
        adopted = cast("Self", linear)
        adopted.narrow_weight = linear.weight.detach().to(narrow)
        has_bias = isinstance(linear.bias, torch.Tensor)
        adopted.narrow_bias = linear.bias.detach().to(narrow) if has_bias else None
        return adopted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``x [..., in]``; a single row through the narrow weights."""
        if x.numel() != x.shape[-1] or x.requires_grad:
            return functional.linear(x, self.weight, self.bias)
        return self.map_row(x)

    def map_row(self, x: torch.Tensor) -> torch.Tensor:
        """Map a single row through the narrow weights."""
        row = functional.linear(
            x.to(self.narrow_weight.dtype), self.narrow_weight, self.narrow_bias
        )
        return row.to(x.dtype)


def compute_dtype(stored: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the dtype to compute in. Decided by what the processor has, never by timing.

    Timing would let two processes on one machine choose differently, and so give other bits.

    Examples
    --------
    >>> compute_dtype(torch.float32, torch.device("cpu"))
    torch.float32
    >>> compute_dtype(torch.bfloat16, torch.device("cuda"))
    torch.bfloat16
    """
    if device.type != "cpu" or stored.itemsize != 2:
        return stored
    if platform.machine() in {"x86_64", "AMD64"}:
        has_wide_vectors = torch.backends.cpu.get_cpu_capability().startswith(("AVX512", "AMX"))
        return stored if stored == torch.bfloat16 and has_wide_vectors else torch.float32
    return stored


def to_compute_dtype(hf: Any, dtype: torch.dtype | None = None) -> Mapping[str, torch.dtype]:
    """Convert a model where this machine asks for it; return its parameters' own dtypes by name.

    Parameters
    ----------
    hf : torch.nn.Module
        Converted in place. Every parameter is copied out of the mapped file besides: kernels take
        other paths for other alignments, and a safetensors file aligns to 8 bytes, so the same
        weights in another file would give other bits (measured on a tiny fp32 Llama).
    dtype : torch.dtype, optional
        Compute in this one instead.
    """
    own = {name: parameter.dtype for name, parameter in hf.named_parameters()}
    wide_bytes = 4 * sum(parameter.numel() for parameter in hf.parameters())
    with torch.no_grad():
        for parameter in hf.parameters():
            if parameter.is_floating_point():
                target = dtype or compute_dtype(parameter.dtype, parameter.device)
                if wide_bytes > _MAX_WIDE_BYTES:
                    target = parameter.dtype
                parameter.data = parameter.data.to(target, copy=True)
        for name, module in hf.named_modules():
            narrow = own.get(f"{name}.weight", own.get(_tied_name(hf, module)))
            if type(module) is torch.nn.Linear and narrow not in (None, module.weight.dtype):
                TwoWidthLinear.adopt(module, narrow)
    return own


def _tied_name(hf: Any, module: torch.nn.Module) -> str:
    """Return the name of the embedding whose weight a module shares, if it does.

    Tied parameters are named once: the output head's weight is the input embedding's.
    """
    embedding = hf.get_input_embeddings()
    if getattr(module, "weight", None) is not getattr(embedding, "weight", embedding):
        return ""
    return next(f"{name}.weight" for name, other in hf.named_modules() if other is embedding)
