"""Stop a forward pass in the middle: between two layers, not after seconds of prefill."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kvpacket_store.errors import CancelledError

__all__ = ["cancellable", "raise_if_cancelled"]

_cancel: ContextVar[threading.Event | None] = ContextVar("cancel", default=None)


@contextmanager
def cancellable(cancel: threading.Event | None) -> Iterator[None]:
    """Let ``cancel`` stop what runs in this block, in this thread.

    Examples
    --------
    >>> event = threading.Event()
    >>> event.set()
    >>> with cancellable(event):
    ...     raise_if_cancelled()
    Traceback (most recent call last):
    ...
    kvpacket_store.errors.CancelledError: the request was cancelled
    """
    before = _cancel.set(cancel)
    try:
        yield
    finally:
        _cancel.reset(before)


def raise_if_cancelled() -> None:
    """Stop here if the caller has gone.

    Raises
    ------
    CancelledError
        The event of the enclosing `cancellable` is set.
    """
    cancel = _cancel.get()
    if cancel is not None and cancel.is_set():
        raise CancelledError("the request was cancelled")
