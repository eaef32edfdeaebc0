"""In which dtype to compute on this machine. What is stored stays in the weights' own dtype.

A 16-bit model computes in 16 bit where the processor multiplies in it. Elsewhere torch falls back
to a scalar path: on a Zen 3 core (AVX2) a bf16 product of 190 rows takes 6 to 10 times as long as
the same in fp32. There the same weights compute in fp32, K and V are rounded to the model's dtype
where packets are made, and the model's identity stays what it was: another engine, the same model.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["compute_dtype", "to_compute_dtype"]


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
    with torch.no_grad():
        for parameter in hf.parameters():
            if parameter.is_floating_point():
                target = dtype or compute_dtype(parameter.dtype, parameter.device)
                parameter.data = parameter.data.to(target, copy=True)
    return own
