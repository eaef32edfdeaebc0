"""Which processor this is: figures and measured costs belong to one."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

__all__ = ["processor_name"]


@functools.cache
def processor_name() -> str:
    """Return the processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
