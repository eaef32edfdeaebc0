"""Name the machine that a figure comes from."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch
import transformers

from kvpacket_store.api.processor import processor_name

__all__ = ["machine"]


def machine() -> dict[str, Any]:
    """Return what a reader needs to place a figure."""
    return {
        "cpu": processor_name(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
