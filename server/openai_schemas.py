"""What clients of OpenAI's surface may send.

They send more fields than they use. What changes nothing here is taken and left; what would change
the answer and cannot be done is refused by name, and so is what nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from kvpacket_store.errors import UsageError

from .callers import Caller
from .schemas import MOST_STOPS_OPENAI, DocumentItems, StopString, Text, items_of, listed

if TYPE_CHECKING:
    from kvpacket_store.api.request import Request

__all__ = ["ChatRequest", "EmbeddingsRequest"]

_DEFAULT_NEW_TOKENS = 256

# Values with which a field asks for nothing that is not done anyway.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
}
_LEFT = (
    "user",
    "store",
    "metadata",
    "service_tier",
    "parallel_tool_calls",
    "safety_identifier",
    "prompt_cache_key",
    "reasoning_effort",
    "verbosity",
)


class _Open(BaseModel):
    """Unknown fields are refused, but for those that ask for nothing."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_what_asks_for_nothing(cls, sent: Any) -> Any:
        if not isinstance(sent, dict):
            return sent
        kept = {name: value for name, value in sent.items() if name not in _LEFT}
        for name, neutral in _NEUTRAL.items():
            if name in kept and kept.pop(name) not in neutral:
                raise ValueError(f"{name} is not supported here; leave it out")
        return kept


class TextPart(_Open):
    """A part of a message; there are no others than text."""

    type: Literal["text"]
    text: Text


def _parts(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class Message(_Open):
    """What somebody said."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[list[TextPart], BeforeValidator(_parts, str | list[TextPart])]
    name: Text | None = None

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(part.text for part in self.content)


class StreamOptions(_Open):
    """How to stream."""

    include_usage: bool = False
    include_obfuscation: bool = False


class ChatRequest(_Open):
    """``POST /v1/chat/completions``, with ``documents`` besides, as ``POST /generate`` has them.

    Without them the last question retrieves; an empty list asks without documents.
    """

    messages: Annotated[list[Message], Field(min_length=1)]
    model: Text | None = None
    documents: DocumentItems | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=1 << 64)] | None = None
    stop: Annotated[
        list[StopString],
        Field(max_length=MOST_STOPS_OPENAI),
        BeforeValidator(listed, str | list[str]),
    ] = []
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def to_request(self, caller: Caller) -> Request:
        """Return it as the engine takes it; the clock starts.

        Raises
        ------
        UsageError
            The messages are no conversation that ends with a question.
        """
        from kvpacket_store.api.request import new_request  # brings torch

        system, history, question = _conversation(self.messages)
        return new_request(
            question,
            items_of(self.documents),
            namespace=caller.namespace_for(None),
            history=history,
            system_prompt=system,
            max_new_tokens=self.max_completion_tokens or self.max_tokens or _DEFAULT_NEW_TOKENS,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=self.seed,
            stop=self.stop,
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )


class EmbeddingsRequest(_Open):
    """``POST /v1/embeddings``."""

    input: Annotated[list[Text], Field(min_length=1), BeforeValidator(listed, str | list[str])]
    model: Text | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


def _conversation(
    messages: Sequence[Message],
) -> tuple[str | None, list[tuple[str, str]], str]:
    """Return system prompt, earlier turns and the question that is asked now."""
    system = [one.text for one in messages if one.role in {"system", "developer"}]
    said = [one for one in messages if one.role in {"user", "assistant"}]
    in_turn = [("user", "assistant")[number % 2] for number in range(len(said))]
    if len(said) % 2 == 0 or [one.role for one in said] != in_turn:
        raise UsageError(
            "messages are to be of user and assistant in turn, beginning and ending with the "
            "user's; system messages may stand anywhere"
        )
    texts = [one.text for one in said]
    history = list(zip(texts[:-1:2], texts[1:-1:2], strict=True))
    return "\n\n".join(system) if system else None, history, texts[-1]
