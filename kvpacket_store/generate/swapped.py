"""A target whose exact K and V come and go: fetched while drafting runs, dropped to make room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from kvpacket_store.errors import SwapFailedError
from kvpacket_store.generate.answering import Answering, Part, Wait
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
    """

    def __init__(
        self,
        cache: SwapCache,
        swap: Swap,
        question_ids: TokenIds,
        inner: Callable[[SwapCache, torch.Tensor], Target],
    ) -> None:
        self.cache = cache
        self._swap = swap
        self._question_ids = question_ids
        self._make_inner = inner
        self._inner: Target | None = None

    def fetch(self) -> None:
        """Begin to bring them."""
        self._swap.fetch()

    def is_here(self) -> bool:
        """Ask for them, which gets a turn once there is one; say if a verification may begin."""
        self._swap.fetch()
        return self._swap.may_begin()

    def begin(self, answering: Answering) -> Part[torch.Tensor]:
        """Run the question on the exact K and V."""
        start = self.cache.length
        while True:
            yield from self._arrival(answering)
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
    ) -> Part[list[int]]:
        """See `Target`."""
        start = self.cache.length
        while True:
            yield from self._arrival(answering)
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

    def _arrival(self, answering: Answering) -> Part[None]:
        """Wait for the exact K and V, or for the caller to go."""
        if not self.is_here():
            yield Wait(lambda: answering.is_cancelled or self.is_here())
        answering.raise_if_cancelled()
        self._swap.wait()

    def _start_again(self, start: int) -> None:
        """Nothing that a failed forward gave counts."""
        self.cache.set_length(start)
        self._swap.repair()
