"""What clients may send. Unknown fields and wrong types are refused, nothing is converted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainValidator,
    TypeAdapter,
)

from kvpacket_store import types
from kvpacket_store.types import Document

from .callers import Caller

if TYPE_CHECKING:
    from kvpacket_store.api.request import Request
    from kvpacket_store.api.selection import DocumentItem

__all__ = [
    "MOST_STOPS_OPENAI",
    "DocumentBody",
    "DocumentItems",
    "GenerateRequest",
    "IngestRequest",
    "StopString",
    "Text",
    "items_of",
    "listed",
]

# More documents than this fit into no model's context; each has at least one packet.
_MOST_DOCUMENTS = 4096
_MOST_TOP_K = 1000
_MOST_STOPS = 16
MOST_STOPS_OPENAI = 4  # so their surface says
_MOST_TURNS = 1000
_MOST_LOGPROBS = 20
_MOST_STOP_CHARS = 1000
_MOST_NAME_CHARS = 200


def _unicode(text: str) -> str:
    """Refuse unpaired surrogates: JSON can spell them, but no text has them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be Unicode text; it has an unpaired surrogate") from None
    return text


def _plain_json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise ValueError("must be plain JSON: finite numbers, Unicode text") from None
    return value


def listed(value: Any) -> Any:
    """Return one text as a list of it."""
    return [value] if isinstance(value, str) else value


Text = Annotated[str, AfterValidator(_unicode)]
JsonObject = Annotated[dict[str, JsonValue], AfterValidator(_plain_json)]
StopString = Annotated[Text, Field(min_length=1, max_length=_MOST_STOP_CHARS)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DocumentBody(_Body):
    """A document to ingest. ``id`` is data: it never becomes a path."""

    id: Text
    text: Text
    metadata: JsonObject = {}

    def to_document(self) -> Document:
        """Return it as the package knows documents."""
        return Document(id=self.id, text=self.text, metadata=self.metadata)


class IngestRequest(_Body):
    """``POST /ingest``."""

    documents: list[DocumentBody]
    namespace: Text | None = None

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of all texts."""
        return sum(len(document.text.encode()) for document in self.documents)


class ById(_Body):
    """A document of the store."""

    id: Text


class ByText(_Body):
    """A document that comes with the question: packets of the same text are used where some are."""

    text: Text


_TEXT: TypeAdapter[str] = TypeAdapter(Text)


def _item(sent: Any) -> Any:
    """Tell by its fields what a document is, so that what is wrong is named by that."""
    if isinstance(sent, dict):
        return ByText.model_validate(sent) if "text" in sent else ById.model_validate(sent)
    return ById(id=_TEXT.validate_python(sent, strict=True))


DocumentItems = Annotated[
    list[Annotated[ById | ByText, PlainValidator(_item, str | ById | ByText)]],
    Field(max_length=_MOST_DOCUMENTS),
]


def items_of(documents: list[ById | ByText] | None) -> list[DocumentItem] | None:
    """Return documents as the engine takes them."""
    if documents is None:
        return None
    return [types.Text(one.text) if isinstance(one, ByText) else one.id for one in documents]


class TurnBody(_Body):
    """An earlier question of a conversation, and what was answered."""

    question: Text
    answer: Text


class GenerateRequest(_Body):
    """``POST /generate``: about documents by id or text, or the ``top_k`` segments that fit best.

    ``provisional`` adds what drafts propose to a stream; an answer in one piece has nothing of it.
    """

    query: Text
    documents: DocumentItems | None = None
    top_k: Annotated[int, Field(ge=1, le=_MOST_TOP_K)] | None = None
    where: JsonObject | None = None
    max_new_tokens: Annotated[int, Field(ge=1)] = 64
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    seed: Annotated[int, Field(ge=0, lt=1 << 64)] | None = None
    sampling_top_k: Annotated[int, Field(ge=0)] = 0
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    repetition_penalty: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    stop: Annotated[
        list[StopString], Field(max_length=_MOST_STOPS), BeforeValidator(listed, str | list[str])
    ] = []
    stream: bool = False
    provisional: bool = False
    consistency: Literal["packet", "recompute"] = "packet"
    decode: Literal["auto", "verified", "full"] = "auto"
    exactness: Literal["bit", "guarded"] = "guarded"
    compressor: Annotated[Text, Field(max_length=_MOST_NAME_CHARS)] | None = None
    draft_tokens: Annotated[int, Field(ge=1)] | None = None
    ignore_eos: bool = False
    logprobs: Annotated[int, Field(ge=0, le=_MOST_LOGPROBS)] | None = None
    history: Annotated[list[TurnBody], Field(max_length=_MOST_TURNS)] = []
    system_prompt: Text | None = None
    namespace: Text | None = None

    def to_request(self, caller: Caller) -> Request:
        """Return it as the engine takes it; the clock starts.

        Raises
        ------
        UsageError
            What is asked for cannot be done.
        """
        from kvpacket_store.api.request import new_request  # brings torch

        own = {"query", "documents", "stream", "provisional", "namespace", "history"}
        taken = self.model_dump(exclude=own)
        return new_request(
            self.query,
            items_of(self.documents),
            **taken,
            namespace=caller.namespace_for(self.namespace),
            history=[(turn.question, turn.answer) for turn in self.history],
            provisional=self.provisional and self.stream,
        )
