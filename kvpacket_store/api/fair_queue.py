"""Whose turn it is: owners one after the other, the requests of each in the order they came."""

from __future__ import annotations

from collections import deque

from kvpacket_store.api.request import Request

__all__ = ["FairQueue"]


class FairQueue:
    """Requests that wait, round-robin over their owners.

    However many an owner has waiting, at most one of them begins between two of another's. Not safe
    for threads: whoever holds it locks it.
    """

    def __init__(self) -> None:
        self._by_owner: dict[str, deque[Request]] = {}  # the first owner is next; none is empty

    def __bool__(self) -> bool:
        return bool(self._by_owner)

    def requests(self) -> list[Request]:
        """Return all that wait."""
        return [request for own in self._by_owner.values() for request in own]

    def append(self, request: Request) -> None:
        """Let a request wait, behind those of its owner."""
        self._by_owner.setdefault(request.owner, deque()).append(request)

    def take(self) -> Request | None:
        """Return who is next, out of the queue; their owner's next one waits for all the others."""
        if not self._by_owner:
            return None
        owner = next(iter(self._by_owner))
        own = self._by_owner.pop(owner)
        request = own.popleft()
        if own:
            self._by_owner[owner] = own
        return request

    def put_back(self, request: Request) -> None:
        """Let a request that was taken be next again."""
        own = self._by_owner.pop(request.owner, deque())
        own.appendleft(request)
        self._by_owner = {request.owner: own, **self._by_owner}

    def remove(self, request: Request) -> bool:
        """Take a request out; say whether it was there."""
        own = self._by_owner.get(request.owner, deque())
        if request not in own:
            return False
        own.remove(request)
        if not own:
            del self._by_owner[request.owner]
        return True
