"""Messages by role → system prompt, turns before, and the question."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvpacket_store.errors import UsageError

__all__ = ["Asked", "asked_of_turns"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a list of messages asks.

    ``system_prompt`` is None where there is no system message; ``history`` are the questions and
    answers before the question.
    """

    system_prompt: str | None
    history: tuple[tuple[str, str], ...]
    question: str


def asked_of_turns(messages: Iterable[tuple[str, str]]) -> Asked:
    r"""Take (role, text) apart; several of one role in a row become one.

    Roles are ``system``, ``user`` and ``assistant``.

    Raises
    ------
    UsageError
        The first or the last one is no user's.

    Examples
    --------
    >>> asked_of_turns([("system", "Be brief."), ("user", "Hello."), ("user", "Who?")])
    Asked(system_prompt='Be brief.', history=(), question='Hello.\n\nWho?')
    """
    system: list[str] = []
    turns: list[tuple[str, str]] = []
    for role, text in messages:
        if role == "system":
            system.append(text)
        elif turns and turns[-1][0] == role:
            turns[-1] = (role, f"{turns[-1][1]}\n\n{text}")
        else:
            turns.append((role, text))
    if not turns or turns[-1][0] != "user":
        raise UsageError("the last message has to be a user's: it is the question")
    if turns[0][0] != "user":
        raise UsageError("a conversation begins with a user's message; leave out what is before")
    texts = [text for _, text in turns]
    history = tuple(zip(texts[0:-1:2], texts[1:-1:2], strict=True))
    return Asked("\n\n".join(system) or None, history, texts[-1])
