"""One item as token ids: the same for every arm."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from kvpacket_store.benchmarks.paragraphs import QuestionItem
from kvpacket_store.errors import ContextOverflowError
from kvpacket_store.models import Model, PromptFormat
from kvpacket_store.text import segment_document
from kvpacket_store.types import TokenIds

__all__ = ["PromptTokens", "item_digest", "tokenize_item"]


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """One item, tokenized.

    Parameters
    ----------
    preamble : tuple of int
        BOS and system prompt.
    segments : tuple of tuple of int
        Of all documents, in order.
    question : tuple of int
        Everything after the documents.
    question_alone : tuple of int
        The same, as it is asked without documents.
    gold : tuple of int
        The first gold answer.
    room_tokens : int
        Slots for an answer, or for the gold one.
    """

    preamble: TokenIds
    segments: tuple[TokenIds, ...]
    question: TokenIds
    question_alone: TokenIds
    gold: TokenIds
    room_tokens: int

    @property
    def document_ids(self) -> TokenIds:
        """The segments' tokens, joined."""
        return sum(self.segments, ())


def tokenize_item(
    model: Model, item: QuestionItem, *, answer_tokens: int, segment_tokens: int = 512
) -> PromptTokens:
    """Cut and tokenize an item for a model.

    Raises
    ------
    ContextOverflowError
        Documents, question and answer need more positions than the model has.
    """
    prompt = PromptFormat(model.tokenizer)
    segments = tuple(
        segment.token_ids
        for document in item.documents
        for segment in segment_document(document, model.tokenizer, segment_tokens)
    )
    gold = tuple(model.tokenizer.tokenize(item.answers[0]))
    tokens = PromptTokens(
        prompt.preamble_ids,
        segments,
        prompt.question_ids(item.question),
        prompt.question_ids(item.question, has_documents=False),
        gold,
        max(answer_tokens, len(gold)) + 1,
    )
    needed = len(tokens.preamble) + len(tokens.document_ids) + len(tokens.question)
    if needed + tokens.room_tokens > model.max_positions:
        raise ContextOverflowError(
            f"{item.question!r:.60} needs {needed + tokens.room_tokens} positions, the model has "
            f"{model.max_positions}; pass fewer or shorter documents"
        )
    return tokens


def item_digest(item: QuestionItem) -> str:
    """Return what an item is known by: SHA-256 of question, answers and documents."""
    documents = [(document.text, dict(document.metadata)) for document in item.documents]
    text = json.dumps([item.question, item.answers, documents], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
