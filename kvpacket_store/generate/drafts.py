"""What proposes tokens: a draft on a compressed copy of the K and V, and drafts without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from kvpacket_store.generate.answering import Answering, Forwards, Provisional
from kvpacket_store.generate.horizon import Horizon
from kvpacket_store.generate.lookup import LookupDraft
from kvpacket_store.generate.targets import Target
from kvpacket_store.models import RowWork, SlotCache

__all__ = ["ChainDraft", "Draft", "KVDraft", "NoDraft", "TokenDraft"]


class Draft(Protocol):
    """Proposes what might come next. It may be wrong in any way: that costs time alone."""

    def propose(
        self, answering: Answering, fresh: Sequence[int], count: int, target: Target
    ) -> Forwards.Tokens:
        """Return up to ``count`` tokens after the final ones.

        Parameters
        ----------
        answering : Answering
            The request, with all of its final tokens.
        fresh : sequence of int
            Those that became final since the last call; none before the prompt is verified.
        count : int
            Most tokens that could be accepted.
        target : Target
            Who will verify; while it is not here there is time for more.
        """
        ...

    def learn(self, proposed: int, accepted: int) -> None:
        """Hear how many of the last proposals were accepted."""
        ...


class NoDraft:
    """Proposes nothing: each verification decides one token."""

    def propose(
        self, answering: Answering, fresh: Sequence[int], count: int, target: Target
    ) -> Forwards.Tokens:
        """Return nothing."""
        del answering, fresh, count, target
        yield from ()
        return []

    def learn(self, proposed: int, accepted: int) -> None:
        """Do nothing."""


class TokenDraft(NoDraft):
    """Proposes from tokens alone, as `LookupDraft` does.

    Parameters
    ----------
    lookup : LookupDraft
        Asked for every proposal.
    most : int
        Longest proposal. A wrong one costs its rows of a verification.
    """

    def __init__(self, lookup: LookupDraft, *, most: int = 10) -> None:
        self._lookup = lookup
        self._most = most

    def propose(
        self, answering: Answering, fresh: Sequence[int], count: int, target: Target
    ) -> Forwards.Tokens:
        """See `Draft`."""
        del target
        yield from ()
        wanted = min(count, self._most)
        return self._lookup.propose(fresh, len(answering.prompt_token_ids), max(wanted, 0))


class ChainDraft:
    """Asks drafts in turn until one proposes something."""

    def __init__(self, *drafts: Draft) -> None:
        self._drafts = drafts
        self._proposer = drafts[0]

    def propose(
        self, answering: Answering, fresh: Sequence[int], count: int, target: Target
    ) -> Forwards.Tokens:
        """See `Draft`."""
        for self._proposer in self._drafts:
            proposed = yield from self._proposer.propose(answering, fresh, count, target)
            if proposed:
                return proposed
        return []

    def learn(self, proposed: int, accepted: int) -> None:
        """Tell the draft that proposed."""
        self._proposer.learn(proposed, accepted)


class KVDraft:
    """Decodes on a compressed copy of the prompt's K and V.

    Rows of final tokens are the target's: its own, which came from its compressed view, are
    overwritten once they are verified (drafts on their own rows are accepted less: 8 to 15 % in
    vLLM's drafts, vllm-project/vllm issue 14649).

    Parameters
    ----------
    cache : SlotCache
        The compressed prompt, with room for the answer; ``position_offset`` says how many
        positions were dropped.
    horizon : Horizon
        How many tokens to propose.
    logits : float [vocab], optional
        Of the prompt's last row on ``cache``: needed where the draft may start before the target.
    """

    def __init__(
        self, cache: SlotCache, horizon: Horizon, logits: torch.Tensor | None = None
    ) -> None:
        self._cache = cache
        self._horizon = horizon
        self._logits = logits
        self._known_slots = cache.length  # filled with rows of the prompt or of the target

    def propose(
        self, answering: Answering, fresh: Sequence[int], count: int, target: Target
    ) -> Forwards.Tokens:
        """See `Draft`; goes on while the target is on its way."""
        proposed: list[int] = []
        target.fetch()
        if fresh:
            self._take_rows(target.cache)
        elif self._logits is not None and count > 0:
            proposed.append(answering.choose(self._logits).token_id)
            yield Provisional(proposed[-1])
        wanted = self._horizon.count()
        count = min(count, self._cache.num_slots - self._cache.length)
        last = proposed[-1] if proposed else fresh[-1] if fresh else None
        while last is not None and len(proposed) < count:
            if answering.ends_with(last):
                break
            if len(proposed) >= wanted and target.is_here():
                break
            answering.raise_if_cancelled()
            logits = (yield RowWork(self._cache, (last,)))[-1]
            last = answering.choose(logits, proposed).token_id
            proposed.append(last)
            yield Provisional(last)
        return proposed

    def learn(self, proposed: int, accepted: int) -> None:
        """Let the horizon follow."""
        self._horizon.learn(proposed, accepted)

    def _take_rows(self, exact: SlotCache) -> None:
        """Take over the target's rows of final tokens; forget those of proposals."""
        offset = self._cache.position_offset
        end = exact.length - offset
        if end > self._known_slots:
            rows = exact.rows(self._known_slots + offset, exact.length)
            self._cache.write_rows(self._known_slots, *rows)
        self._known_slots = end
        self._cache.set_length(end)
