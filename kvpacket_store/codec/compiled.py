"""numba, where the compiled code may be kept on disk and where it may not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

__all__ = ["compiled", "inlined", "reordering", "spread"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile on first call, without the GIL; keep the code beside the source or in a user's cache.

    numba notices a change of the file that a function is in, not of others that it calls into:
    under which name code is kept depends on all files of the function's folder.
    """
    return _cached(function, {})


def reordering(function: _Function) -> _Function:
    """Like :func:`compiled`, for a function whose sums of floats are exact in any order."""
    return _cached(function, {"fastmath": {"reassoc", "nsz"}})


def spread(function: _Function) -> _Function:
    """Like :func:`compiled`, for float code whose ``prange`` runs on all threads.

    Sums may be reordered when the code is compiled, never by how many rows or threads there are.
    """
    return _cached(function, {"parallel": True, "fastmath": {"reassoc", "contract", "nsz"}})


def inlined(function: _Function) -> _Function:
    """Make ``function`` part of its folder's compiled functions, callable from nowhere else."""
    return _jit(function, {"no_cpython_wrapper": True})


def _cached(function: _Function, options: dict[str, Any]) -> _Function:
    name = f"{function.__qualname__}_{_sources_digest(Path(function.__code__.co_filename).parent)}"
    function.__qualname__ = name
    try:
        return _jit(function, {**options, "cache": True})
    except RuntimeError:  # neither folder can be written: compile anew in every process
        return _jit(function, options)


@cache
def _sources_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _jit(function: _Function, options: dict[str, Any]) -> _Function:
    jit: Callable[[_Function], _Function] = numba.njit(
        nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options
    )
    return jit(function)
