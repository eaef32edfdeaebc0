"""What an error of the disk means to whoever trains or fits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from kvpacket_store.errors import StoreFullError

__all__ = ["disk_errors"]


@contextlib.contextmanager
def disk_errors(place: Path, remedy: str) -> Iterator[None]:
    """Turn errors of writing to ``place`` into StoreFullError, with what to do."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise StoreFullError(f"{place} cannot be written ({error}); {remedy}") from error
