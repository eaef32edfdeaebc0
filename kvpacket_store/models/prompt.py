"""The preamble and the question around the packets, as token ids. Strings are never spliced.

The chat template is rendered once with a marker where documents and question go; what stands before
the marker is the preamble, what stands after it closes the question. Documents and questions are
tokenized alone, so nothing in them can become a control token.
"""

from __future__ import annotations

from typing import Protocol

from kvpacket_store.errors import ModelError
from kvpacket_store.models.tokenizer import HFTokenizer
from kvpacket_store.types import TokenIds

__all__ = ["DEFAULT_SYSTEM_PROMPT", "PromptFormat"]

DEFAULT_SYSTEM_PROMPT = (
    "You answer questions using the documents. Answer briefly and only with what they say."
)
_MARKER = "\u241fdocuments-and-question\u241f"
_BEFORE_DOCUMENTS = "Documents:\n"
_BEFORE_QUESTION = "\nUsing only the documents, answer briefly.\nQuestion: "
_BEFORE_QUESTION_ALONE = "Answer briefly.\nQuestion: "


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
        before, after = self._split_template(system_prompt)
        ids = tokenizer.tokenize_template(before + _BEFORE_DOCUMENTS)
        bos = tokenizer.bos_id
        if bos is not None and ids[:1] != (bos,):
            ids = (bos, *ids)
        self.preamble_ids: TokenIds = ids
        self._tail_ids = tokenizer.tokenize_template(after)

    def _split_template(self, system_prompt: str) -> tuple[str, str]:
        """Return the text before and after what the user says."""
        if self._tokenizer.hf.chat_template is None:
            return f"{system_prompt}\n\n", "\nAnswer:"
        rendered = self._render(system_prompt)
        before, found, after = rendered.partition(_MARKER)
        if not found or _MARKER in after:
            raise ModelError(
                "the chat template drops or repeats the user's message; "
                "pass a tokenizer folder with another template"
            )
        return before, after

    def _render(self, system_prompt: str) -> str:
        """Render with a system message, or with it in the user's where the template has none."""
        hf: _Renderable = self._tokenizer.hf
        options = {"tokenize": False, "add_generation_prompt": True}
        messages = [
            {"role": "system", "content": system_prompt},
            {"role": "user", "content": _MARKER},
        ]
        try:
            return hf.apply_chat_template(messages, **options)
        except Exception:
            merged = [{"role": "user", "content": f"{system_prompt}\n\n{_MARKER}"}]
            return hf.apply_chat_template(merged, **options)

    def question_ids(self, question: str, *, has_documents: bool = True) -> TokenIds:
        """Return everything after the packets: the question and the template's tail."""
        lead = _BEFORE_QUESTION if has_documents else _BEFORE_QUESTION_ALONE
        return (
            *self._tokenizer.tokenize(lead),
            *self._tokenizer.tokenize(question),
            *self._tail_ids,
        )
