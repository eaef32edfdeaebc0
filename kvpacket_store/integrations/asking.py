"""A framework's call → a request to an engine, and its pieces."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kvpacket_store.api import Engine, Piece
from kvpacket_store.api.selection import DocumentItem
from kvpacket_store.errors import UsageError
from kvpacket_store.integrations.background import stopped_after
from kvpacket_store.integrations.conversation import Asked

__all__ = ["FindItems", "pieces_of", "request_of"]

FindItems = Callable[[], Sequence[DocumentItem] | None]
"""Gives the documents of a request; it may take a while."""


def request_of(engine: Engine, own: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of one call: its own before the model's.

    Frameworks say ``max_tokens``, and name the model; ``stream`` says nothing here.

    Raises
    ------
    UsageError
        Another model is asked for.
    """
    asked = {name: value for name, value in call.items() if name != "stream"}
    model = engine.store.meta.model
    if asked.pop("model", model) != model:
        raise UsageError(f"this store is for {model!r}; open another store for another model")
    if "max_tokens" in asked:
        asked["max_new_tokens"] = asked.pop("max_tokens")
    return {**own, **asked}


def pieces_of(
    engine: Engine,
    asked: Asked,
    find_items: FindItems,
    request: Mapping[str, Any],
    cancel: threading.Event,
) -> Iterator[Piece]:
    """Yield an answer's pieces; everything that takes time is in here.

    Raises
    ------
    TimeoutError
        The request's ``timeout``, in seconds, is over.
    """
    options = dict(request)
    timeout_s = options.pop("timeout")

    def run(cancel: threading.Event) -> Iterator[Piece]:
        return engine.stream(
            asked.question,
            find_items(),
            history=asked.history,
            system_prompt=asked.system_prompt,
            cancel=cancel,
            **options,
        )

    return stopped_after(timeout_s, run, cancel)
