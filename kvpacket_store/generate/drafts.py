"""What proposes tokens: a draft on a compressed copy of the K and V, and drafts without a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import torch

from kvpacket_store.errors import ModelError
from kvpacket_store.generate.answering import Answering, Part, Provisional
from kvpacket_store.generate.drive import Run
from kvpacket_store.generate.horizon import CLOSE_LOGITS, Costs, FixedHorizon, Horizon
from kvpacket_store.generate.lookup import ACCEPTED_AFTER, NGramIndex
from kvpacket_store.generate.targets import Target
from kvpacket_store.models import RowWork, SlotCache

_MOST_GROWTH = 48
"""Tokens by which a draft may grow, beyond twice its length, while the target is on its way."""

_MOST_LOOKED_UP = 10
_LOOK_AGAIN_ROUNDS = 16

__all__ = ["ChainDraft", "Draft", "KVDraft", "LookupDraft", "NoDraft", "Rival"]


class Draft(Protocol):
    """Proposes what might come next. It may be wrong in any way: that costs time alone."""

    def propose(
        self, answering: Answering, fresh: Sequence[int], count: int, target: Target
    ) -> Part[list[int]]:
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


class Rival(Protocol):
    """A draft that says what is expected of it."""

    def gain(self, requests: int) -> float:
        """Return tokens per plain step, where so many requests share forwards."""
        ...


class NoDraft:
    """Proposes nothing: each verification decides one token."""

    def propose(
        self, answering: Answering, fresh: Sequence[int], count: int, target: Target
    ) -> Part[list[int]]:
        """Return nothing."""
        del answering, fresh, count, target
        yield from ()
        return []

    def learn(self, proposed: int, accepted: int) -> None:
        """Do nothing."""


class LookupDraft(NoDraft):
    """Proposes what followed the last tokens before, where they have occurred before.

    The longer the match, the more is accepted: of first tokens after a match of 2, 3, 4 to 7 and 8
    tokens 38, 49, 63 and 92 % (SmolLM2 on the example corpus, greedy, 24 answers of 64). So each
    length has a horizon of its own, and where a row costs much, among many, short ones propose
    nothing.

    Parameters
    ----------
    index : NGramIndex
        Of the prompt; the answer is added to it.
    costs : Costs
        Of this machine at this context.
    rival : draft with a gain, optional
        Who is asked where nothing is proposed here: also where more is expected of it, but now and
        then.
    """

    def __init__(self, index: NGramIndex, costs: Costs, rival: Rival | None = None) -> None:
        self._index, self._rival, self._given_way = index, rival, 0
        free = costs.without_draft()
        self._horizons = {
            length: Horizon(free, start=share, most=_MOST_LOOKED_UP)
            for length, share in ACCEPTED_AFTER.items()
        }
        self._used: Horizon | None = None

    def propose(
        self, answering: Answering, fresh: Sequence[int], count: int, target: Target
    ) -> Part[list[int]]:
        """See `Draft`."""
        del target
        yield from ()
        self._used = None
        self._index.extend(fresh)
        match = self._index.match()
        if match is None:
            return []
        self._used, company = self._horizons[match.length], answering.company
        if self._rival is not None and self._used.gain(company) < self._rival.gain(company):
            self._given_way += 1
            if self._given_way % _LOOK_AGAIN_ROUNDS:
                return []
        wanted = max(min(count, self._used.count(company)), 0)
        return self._index.after(match, wanted)

    def learn(self, proposed: int, accepted: int) -> None:
        """Let the horizon of the match's length follow."""
        if self._used is not None:
            self._used.learn(proposed, accepted)


class ChainDraft:
    """Asks drafts in turn until one proposes something."""

    def __init__(self, *drafts: Draft) -> None:
        self._drafts = drafts
        self._proposer = drafts[0]

    def propose(
        self, answering: Answering, fresh: Sequence[int], count: int, target: Target
    ) -> Part[list[int]]:
        """See `Draft`."""
        for draft in self._drafts:
            self._proposer = draft
            proposed = yield from draft.propose(answering, fresh, count, target)
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
    own_rows : int
        How many of the prompt's last rows the target has better ones of: the question's.
    takes_rows : bool
        Whether the target's rows stand at the same positions. Elsewhere (a target without packets,
        so without soft tokens) the draft keeps its own.
    run : callable, optional
        As of `RowWork`, where the cache is another model's.
    """

    def __init__(
        self,
        cache: SlotCache,
        horizon: Horizon | FixedHorizon,
        logits: torch.Tensor | None = None,
        *,
        own_rows: int = 0,
        takes_rows: bool = True,
        run: Run | None = None,
    ) -> None:
        self._cache = cache
        self.horizon = horizon
        self._logits = logits
        self._takes_rows = takes_rows
        self._work = partial(RowWork, run=run)
        self._prompt_slots = cache.length
        self._known_slots = cache.length - own_rows  # before it, rows stay as they are
        self._close_at: int | None = None  # the first close choice of the last draft
        self._run: list[int] = []  # tokens whose rows are the draft's own, after the prompt

    def propose(
        self, answering: Answering, fresh: Sequence[int], count: int, target: Target
    ) -> Part[list[int]]:
        """See `Draft`; goes on while the target is on its way."""
        target.fetch()
        self._close_at = None
        wanted = min(self.horizon.count(answering.company), count)
        if wanted <= 0 and (target.is_here() or count <= 0):
            return []
        proposed: list[int] = []
        if fresh:
            unseen = self._catch_up(answering.token_ids, target.cache)
        elif self._logits is None:
            return []
        else:
            try:
                proposed.append(answering.choose(self._logits).token_id)
            except ModelError:
                return []
            yield Provisional(proposed[-1])
            unseen = [*proposed]
        count = min(
            count,
            2 * wanted + _MOST_GROWTH,
            self._cache.num_slots - self._cache.length - len(unseen),
        )
        while len(proposed) < count and not answering.ends_with(unseen[-1]):
            if len(proposed) >= wanted and target.is_here():
                break
            answering.raise_if_cancelled()
            logits = (yield self._work(self._cache, unseen))[-1]
            self._run += unseen
            try:
                choice = answering.choose(logits, proposed)
            except ModelError:
                break  # a view so coarse that its logits are no numbers: the target decides
            unseen = [choice.token_id]
            proposed += unseen
            yield Provisional(choice.token_id)
            if choice.margin < CLOSE_LOGITS and self._ends_at(len(proposed) - 1, target):
                break
        return proposed

    def _ends_at(self, close: int, target: Target) -> bool:
        """Note a close choice; say whether the draft ends there, with no step on top of it."""
        self._close_at = close if self._close_at is None else self._close_at
        return target.is_here() and self.horizon.ends_at_close_ones

    def learn(self, proposed: int, accepted: int) -> None:
        """Let the horizon follow."""
        self.horizon.learn(proposed, accepted, self._close_at)

    def gain(self, requests: int) -> float:
        """Return the tokens per plain step that are expected of the next draft."""
        return self.horizon.gain(requests)

    def _catch_up(self, final: Sequence[int], exact: SlotCache) -> list[int]:
        """Bring the rows of final tokens up to date; return those tokens that have none."""
        if self._takes_rows:
            end = exact.length - self._cache.position_offset
            if end > self._known_slots:
                first = self._known_slots + self._cache.position_offset
                self._cache.write_rows(self._known_slots, *exact.rows(first, exact.length))
            self._known_slots = end
            self._cache.set_length(end)
            return [final[-1]]
        alike = 0
        for mine, theirs in zip(self._run, final[:-1], strict=False):
            if mine != theirs:
                break
            alike += 1
        del self._run[alike:]
        self._cache.set_length(self._prompt_slots + alike)
        return [*final[alike:]]
