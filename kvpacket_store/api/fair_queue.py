"""Whose turn it is: owners one after the other, the items of each in the order they came."""

from __future__ import annotations

from collections import deque
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["FairQueue", "Owned"]


class Owned(Protocol):
    """What somebody waits for."""

    @property
    def owner(self) -> str:
        """Whose it is."""


T = TypeVar("T", bound=Owned)


class FairQueue(Generic[T]):
    """What waits, round-robin over its owners.

    However much an owner has waiting, at most one of it is taken between two of another's. Not safe
    for threads: whoever holds it locks it.
    """

    def __init__(self) -> None:
        self._by_owner: dict[str, deque[T]] = {}  # the first owner is next; none is empty

    def __len__(self) -> int:
        return sum(map(len, self._by_owner.values()))

    def num_of(self, owner: str) -> int:
        """Return how much of an owner's waits."""
        return len(self._by_owner.get(owner, ()))

    def items(self) -> list[T]:
        """Return all that wait."""
        return [item for own in self._by_owner.values() for item in own]

    def append(self, item: T) -> None:
        """Let an item wait, behind those of its owner."""
        self._by_owner.setdefault(item.owner, deque()).append(item)

    def take(self) -> T | None:
        """Return who is next, out of the queue; its owner's next one waits for all the others."""
        if not self._by_owner:
            return None
        owner = next(iter(self._by_owner))
        own = self._by_owner.pop(owner)
        item = own.popleft()
        if own:
            self._by_owner[owner] = own
        return item

    def put_back(self, item: T) -> None:
        """Let an item that was taken be next again."""
        own = self._by_owner.pop(item.owner, deque())
        own.appendleft(item)
        self._by_owner = {item.owner: own, **self._by_owner}

    def remove(self, item: T) -> bool:
        """Take an item out; say whether it was there."""
        own: deque[Any] = self._by_owner.get(item.owner, deque())
        if item not in own:
            return False
        own.remove(item)
        if not own:
            del self._by_owner[item.owner]
        return True
