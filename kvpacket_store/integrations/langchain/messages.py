"""LangChain's messages → system prompt, turns before, and the question."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
)

from kvpacket_store.errors import UsageError
from kvpacket_store.integrations.conversation import Asked, asked_of_turns

__all__ = ["asked_of"]

_KINDS = ((SystemMessage, "system"), (HumanMessage, "user"), (AIMessage, "assistant"))
_ROLES = {"system": "system", "user": "user", "human": "user"}
_ROLES |= {"assistant": "assistant", "ai": "assistant"}


def asked_of(messages: Sequence[BaseMessage]) -> Asked:
    """Take messages apart; several of one role in a row become one.

    Raises
    ------
    UsageError
        The first or the last one is no human's, or one holds something else than text.
    """
    return asked_of_turns((_role(message), _text(message)) for message in messages)


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
