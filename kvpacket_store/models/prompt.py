"""The preamble and the turns around the packets, as token ids. Strings are never spliced.

The chat template is rendered once with markers for the system prompt and for where documents and
question go; what stands before the latter is the preamble, what stands after it closes the
question. For conversations it is rendered once more, with markers for an answer and the next
question: what stands between them is the same for all turns. System prompt, documents, questions
and answers are tokenized alone, so nothing in them can become a control token.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from kvpacket_store.errors import ModelError
from kvpacket_store.models.tokenizer import HFTokenizer
from kvpacket_store.types import TokenIds

__all__ = ["DEFAULT_SYSTEM_PROMPT", "PromptFormat"]

DEFAULT_SYSTEM_PROMPT = (
    "You answer questions using the documents. Answer briefly and only with what they say."
)
_SYSTEM_MARKER = "\u241fsystem-prompt\u241f"
_MARKER = "\u241fdocuments-and-question\u241f"
_ANSWER_MARKER, _NEXT_MARKER = "\u241fanswer\u241f", "\u241fnext-question\u241f"
_BEFORE_DOCUMENTS = "Documents:\n"
_BEFORE_QUESTION = "\nUsing only the documents, answer briefly.\nQuestion: "
_BEFORE_QUESTION_ALONE = "Answer briefly.\nQuestion: "
_BEFORE_NEXT = "Using only the documents, answer briefly.\nQuestion: "


class _Renderable(Protocol):
    def apply_chat_template(self, messages: list[dict[str, str]], **kwargs: object) -> str: ...


class PromptFormat:
    """How a model is asked: its chat template where it has one, plain text where it has none.

    Parameters
    ----------
    tokenizer : HFTokenizer
        The model's.
    system_prompt : str
        Governs the answer; part of the preamble, which no document sees.

    Attributes
    ----------
    preamble_ids : tuple of int
        Exactly one BOS where the model has one.
    """

    def __init__(self, tokenizer: HFTokenizer, system_prompt: str = DEFAULT_SYSTEM_PROMPT) -> None:
        self._tokenizer = tokenizer
        (head, rest), after = self._split_template()
        ids = (
            *tokenizer.tokenize_template(head),
            *tokenizer.tokenize(system_prompt),
            *tokenizer.tokenize_template(rest + _BEFORE_DOCUMENTS),
        )
        bos = tokenizer.bos_id
        if bos is not None and ids[:1] != (bos,):
            ids = (bos, *ids)
        self.preamble_ids: TokenIds = ids
        self._tail_ids = tokenizer.tokenize_template(after)

    def _split_template(self) -> tuple[tuple[str, str], str]:
        """Return the text around the system prompt, and that after what the user says."""
        if self._tokenizer.hf.chat_template is None:
            return ("", "\n\n"), "\nAnswer:"
        rendered = self._render(_MARKER)
        before, *after = rendered.split(_MARKER)
        around = before.split(_SYSTEM_MARKER)
        if len(after) != 1 or len(around) != 2:
            raise ModelError(
                "the chat template drops or repeats the user's message or the system prompt; "
                "pass a tokenizer folder with another template"
            )
        return (around[0], around[1]), after[0]

    @cached_property
    def _between_ids(self) -> TokenIds:
        """What stands between an answer and the next question."""
        if self._tokenizer.hf.chat_template is None:
            return self._tokenizer.tokenize_template("\n\n")
        parts = [self._render(_MARKER, _ANSWER_MARKER, _NEXT_MARKER)]
        for marker in (_MARKER, _ANSWER_MARKER, _NEXT_MARKER):
            parts[-1:] = parts[-1].split(marker)
        if len(parts) != 4:
            raise ModelError(
                "the chat template drops, repeats or reorders messages of a conversation; ask one "
                "question at a time, or pass a tokenizer folder with another template"
            )
        return self._tokenizer.tokenize_template(parts[2])

    def _render(self, *contents: str) -> str:
        """Render what user and assistant say in turn, with a system message before it.

        It is in the user's first message where the template has none, or leaves it out.
        """
        hf: _Renderable = self._tokenizer.hf
        options = {"tokenize": False, "add_generation_prompt": True}
        roles = ("user", "assistant", "user")
        said = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
        system = {"role": "system", "content": _SYSTEM_MARKER}
        with contextlib.suppress(Exception):  # whatever a template raises at that role
            rendered = hf.apply_chat_template([system, *said], **options)
            if _SYSTEM_MARKER in rendered:
                return rendered
        first = {"role": "user", "content": f"{_SYSTEM_MARKER}\n\n{contents[0]}"}
        return hf.apply_chat_template([first, *said[1:]], **options)

    def question_ids(
        self,
        question: str,
        *,
        has_documents: bool = True,
        history: Sequence[tuple[str, str]] = (),
    ) -> TokenIds:
        """Return everything after the packets: earlier turns, the question, the template's tail.

        Parameters
        ----------
        question : str
            The one to answer.
        has_documents : bool
            Whether packets stand before it.
        history : sequence of (question, answer)
            Earlier turns, the first one first.

        Raises
        ------
        ModelError
            The chat template cannot render a conversation.
        """
        ids: TokenIds = ()
        lead = _BEFORE_QUESTION if has_documents else _BEFORE_QUESTION_ALONE
        for asked, answer in history:
            said = self._tokenizer.tokenize(answer)
            ids = (*ids, *self._asked_ids(lead, asked), *said, *self._between_ids)
            lead = _BEFORE_NEXT if has_documents else _BEFORE_QUESTION_ALONE
        return (*ids, *self._asked_ids(lead, question))

    def _asked_ids(self, lead: str, question: str) -> TokenIds:
        return (
            *self._tokenizer.tokenize(lead),
            *self._tokenizer.tokenize(question),
            *self._tail_ids,
        )
