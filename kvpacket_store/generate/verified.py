"""Draft, verify, accept: what comes out is what the target alone would have given.

A draft proposes tokens after those that are final; one target forward over them says what the
target would have chosen at each; the longest equal beginning is accepted, and the target's own
choice after it. Draft and target choose with the same noise (``Sampler``), so this holds for
sampling as for greedy decoding. Source: VeriCache (arXiv:2605.17613) §4.1; rows that are alike,
aligned blocks and keyed noise are ours.
"""

from __future__ import annotations

from kvpacket_store.generate.answering import Answering, Decoding, Final, Part
from kvpacket_store.generate.drafts import Draft
from kvpacket_store.generate.targets import Target, VerifiedCounts

__all__ = ["verified_decoding"]


def verified_decoding(
    answering: Answering, target: Target, draft: Draft, counts: VerifiedCounts
) -> Decoding:
    """Give final tokens, exactly those of one-token decoding on the target.

    Parameters
    ----------
    answering : Answering
        The request.
    target : Target
        On the exact K and V. While these are on their way, the draft goes on.
    draft : Draft
        Asked once a round. It may be wrong in any way: that costs time alone.
    counts : VerifiedCounts
        Added to.
    """
    fresh, proposed = yield from _first_round(answering, target, draft, counts)
    while True:
        for token_id in fresh:
            if answering.ends_with(token_id):
                return
            answering.token_ids.append(token_id)
            yield Final(token_id)
            if not answering.left:
                return
        answering.raise_if_cancelled()
        room = min(target.room(), answering.left - 1)
        if not proposed:
            proposed = yield from draft.propose(answering, fresh, room, target)
        proposed = proposed[: max(room, 0)]
        fresh = yield from target.verify(answering, fresh, proposed)
        _count(counts, draft, len(proposed), len(fresh) - 1)
        proposed = []


def _first_round(
    answering: Answering, target: Target, draft: Draft, counts: VerifiedCounts
) -> Part[tuple[list[int], list[int]]]:
    """Return the first final token, and what was drafted after it while the target was on its way.

    The prompt's last rows decide the first token; so they are its verification.
    """
    early: list[int] = []
    target.fetch()
    if not target.is_here():
        early = yield from draft.propose(answering, [], answering.left, target)
    answering.raise_if_cancelled()
    logits = yield from target.begin(answering)
    first = answering.decide(logits).token_id
    if not early:
        return [first], []
    if early[0] != first:
        _count(counts, draft, len(early), 0)
        return [first], []
    counts.accepted += 1
    return [first], early[1:]


def _count(counts: VerifiedCounts, draft: Draft, proposed: int, accepted: int) -> None:
    counts.rounds += 1
    counts.accepted += accepted
    counts.rejected += proposed - accepted
    draft.learn(proposed, accepted)
