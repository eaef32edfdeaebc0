"""A target whose exact K and V come and go: fetched while drafting runs, dropped to make room."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from kvpacket_store.errors import CancelledError, SwapFailedError
from kvpacket_store.generate.answering import Answering, Forwards, Wait
from kvpacket_store.generate.targets import Target
from kvpacket_store.models import RowWork, SwapCache
from kvpacket_store.types import TokenIds

__all__ = ["Swap", "SwapTarget"]


class Swap(Protocol):
    """Brings a prompt's exact K and V to a `SwapCache`."""

    def fetch(self) -> None:
        """Begin in the background, if they are not here or on their way."""
        ...

    def may_begin(self) -> bool:
        """Whether a verification may begin; it waits for layers that are still to come."""
        ...

    def wait(self) -> None:
        """Return once `may_begin`; make what did not arrive again, on this thread."""
        ...

    def repair(self) -> None:
        """Wait until nothing is on its way, and make what did not arrive again, on this thread."""
        ...

    def abandon(self) -> None:
        """Let what is on its way be: nobody waits for it; return at once."""
        ...

    def release(self) -> None:
        """Drop them after a verification, if memory is short."""
        ...


class SwapTarget:
    """Verifies once the exact K and V are here.

    Parameters
    ----------
    cache : SwapCache
        Where they come to.
    swap : Swap
        Brings them.
    question_ids : token ids
        The prompt's rows that are run on the exact K and V before anything is final.
    inner : callable
        Cache and logits ``[vocab]`` of the prompt's last row → what verifies.
    cancel : threading.Event, optional
        Ends the waiting.
    """

    def __init__(
        self,
        cache: SwapCache,
        swap: Swap,
        question_ids: TokenIds,
        inner: Callable[[SwapCache, torch.Tensor], Target],
        cancel: threading.Event | None = None,
    ) -> None:
        self.cache = cache
        self._swap = swap
        self._question_ids = question_ids
        self._make_inner = inner
        self._inner: Target | None = None
        self._cancel = cancel

    def fetch(self) -> None:
        """Begin to bring them."""
        self._swap.fetch()

    def is_here(self) -> bool:
        """Whether a verification may begin."""
        return self._swap.may_begin()

    def begin(self) -> Forwards.Logits:
        """Run the question on the exact K and V."""
        start = self.cache.length
        while True:
            yield from self._arrival()
            try:
                rows = yield RowWork(self.cache, self._question_ids, 1, is_prompt=True)
            except SwapFailedError:
                self._start_again(start)
                continue
            self._inner = self._make_inner(self.cache, rows[-1])
            self._swap.release()
            return rows[-1]

    def room(self) -> int:
        """See `Target`."""
        return self._verifier.room()

    def verify(
        self, answering: Answering, fresh: Sequence[int], proposed: Sequence[int]
    ) -> Forwards.Tokens:
        """See `Target`."""
        start = self.cache.length
        while True:
            yield from self._arrival()
            try:
                chosen = yield from self._verifier.verify(answering, fresh, proposed)
            except SwapFailedError:
                self._start_again(start)
                continue
            self._swap.release()
            return chosen

    @property
    def _verifier(self) -> Target:
        assert self._inner is not None  # noqa: S101 - `begin` comes first
        return self._inner

    def _arrival(self) -> Forwards.Nothing:
        self._swap.fetch()
        if not self._swap.may_begin():
            yield Wait(lambda: self._is_cancelled or self._swap.may_begin())
        if self._is_cancelled:
            self._swap.abandon()
            raise CancelledError("the request was cancelled")
        self._swap.wait()

    @property
    def _is_cancelled(self) -> bool:
        return self._cancel is not None and self._cancel.is_set()

    def _start_again(self, start: int) -> None:
        """Nothing that a failed forward gave counts."""
        self.cache.set_length(start)
        self._swap.repair()
