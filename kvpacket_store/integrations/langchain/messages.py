"""LangChain's messages → system prompt, turns before, and the question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
)

from kvpacket_store.errors import UsageError

__all__ = ["Asked", "asked_of"]

_KINDS = ((SystemMessage, "system"), (HumanMessage, "user"), (AIMessage, "assistant"))
_ROLES = {"system": "system", "user": "user", "human": "user"}
_ROLES |= {"assistant": "assistant", "ai": "assistant"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a list of messages asks.

    ``system_prompt`` is None where there is no system message; ``history`` are the questions and
    answers before the question.
    """

    system_prompt: str | None
    history: tuple[tuple[str, str], ...]
    question: str


def asked_of(messages: Sequence[BaseMessage]) -> Asked:
    """Take messages apart; several of one role in a row become one.

    Raises
    ------
    UsageError
        The first or the last one is no human's, or one holds something else than text.
    """
    system: list[str] = []
    turns: list[tuple[str, str]] = []
    for message in messages:
        role, text = _role(message), _text(message)
        if role == "system":
            system.append(text)
        elif turns and turns[-1][0] == role:
            turns[-1] = (role, f"{turns[-1][1]}\n\n{text}")
        else:
            turns.append((role, text))
    if not turns or turns[-1][0] != "user":
        raise UsageError("the last message has to be a human's: it is the question")
    if turns[0][0] != "user":
        raise UsageError("a conversation begins with a human's message; leave out what is before")
    texts = [text for _, text in turns]
    history = tuple(zip(texts[0:-1:2], texts[1:-1:2], strict=True))
    return Asked("\n\n".join(system) or None, history, texts[-1])


def _role(message: BaseMessage) -> str:
    for kind, role in _KINDS:
        if isinstance(message, kind):
            return role
    if isinstance(message, ChatMessage) and message.role.lower() in _ROLES:
        return _ROLES[message.role.lower()]
    raise UsageError(
        f"a message of type {message.type!r:.40} is none that this model takes; pass system, human "
        "and AI messages"
    )


def _text(message: BaseMessage) -> str:
    for block in message.content if isinstance(message.content, list) else ():
        kind = "text" if isinstance(block, str) else block.get("type")
        if kind != "text":
            raise UsageError(f"a message has a block of type {kind!r:.40}; only text is read")
    if isinstance(message, AIMessage) and message.tool_calls:
        raise UsageError("a message calls tools; this model has none")
    return message.text
