"""Question → answer: retrieve, assemble, decode, with usage and where the time went."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from kvpacket_store.api.answer import Answer, Piece, Timings
from kvpacket_store.api.assembly import Assembled, Assembler, first_logits
from kvpacket_store.api.request import (
    checked_options,
    finish_reason,
    finished_answer,
    is_one,
    require_question,
)
from kvpacket_store.api.selection import (
    DEFAULT_TOP_K,
    SelectedDocument,
    select_by_id,
    select_by_question,
)
from kvpacket_store.api.store import DEFAULT_NAMESPACE, Store
from kvpacket_store.api.text_answer import TextAnswer
from kvpacket_store.errors import NotFoundError, UsageError
from kvpacket_store.generate import GenerationOptions, Sampler, decode_tokens
from kvpacket_store.models import DEFAULT_SYSTEM_PROMPT, PromptFormat
from kvpacket_store.retrieve import Retriever

if TYPE_CHECKING:
    from kvpacket_store.models import SlotCache

__all__ = ["Engine"]

# Documents may be updated or deleted between their selection and the reading of their packets.
_SELECTIONS = 8


class Engine:
    """Answers questions from a store's packets. Safe for many threads.

    Parameters
    ----------
    store : Store
        Open. Its model is loaded here if it is not yet.
    system_prompt : str
        Governs every answer; it is in the preamble, which no document sees.

    Examples
    --------
    ::

        engine = Engine(Store.open("corpus.kvps"))
        print(engine.generate("Who proved it?", documents=["a"]).text)
    """

    def __init__(self, store: Store, *, system_prompt: str = DEFAULT_SYSTEM_PROMPT) -> None:
        self.store = store
        self.prompt = PromptFormat(store.model.tokenizer, system_prompt)
        self._assembler = Assembler(store, self.prompt)
        self._retriever: Retriever | None = None
        self._making_retriever = threading.Lock()

    @property
    def retriever(self) -> Retriever:
        """Finds segments for a question."""
        with self._making_retriever:
            if self._retriever is None:
                self._retriever = Retriever(
                    self.store.packets,
                    self.store.embedder,
                    self.store.path / "index",
                    wait_for_rebuild=True,  # what was acknowledged is found
                )
            return self._retriever

    def generate(
        self,
        question: str,
        documents: Iterable[str | tuple[str, Sequence[int]]] | None = None,
        *,
        top_k: int | None = None,
        where: Mapping[str, Any] | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        cancel: threading.Event | None = None,
        **options: Any,
    ) -> Answer:
        """Answer a question.

        Parameters
        ----------
        question : str
            Control tokens in it stay text.
        documents : iterable, optional
            Ids, in prompt order, for whole documents; ``(id, [segment numbers])`` for parts. An
            empty one asks without documents. None retrieves.
        top_k : int, optional
            How many segments to retrieve (5).
        where : mapping, optional
            Metadata that retrieved documents must have.
        namespace : str
            Whose documents.
        cancel : threading.Event, optional
            Set it to stop within one step.
        **options
            As `GenerationOptions`: max_new_tokens, temperature, seed, stop, ignore_eos, decode,
            exactness, consistency.

        Raises
        ------
        NotFoundError, UsageError, ContextOverflowError, CancelledError
            See the message for what to change.
        """
        answer = None
        for piece in self.stream(
            question,
            documents,
            top_k=top_k,
            where=where,
            namespace=namespace,
            cancel=cancel,
            **options,
        ):
            answer = piece.answer
        if answer is None:
            raise AssertionError("a stream ends with its answer")
        return answer

    def stream(
        self,
        question: str,
        documents: Iterable[str | tuple[str, Sequence[int]]] | None = None,
        *,
        top_k: int | None = None,
        where: Mapping[str, Any] | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        cancel: threading.Event | None = None,
        **options: Any,
    ) -> Iterator[Piece]:
        """Answer piece by piece, as `generate`; the last piece has the whole answer.

        Closing the iterator stops decoding.
        """
        chosen = checked_options(options)
        require_question(question)
        clock = time.perf_counter()
        timings = Timings()
        asked = list(documents) if documents is not None and not is_one(documents) else documents
        for attempt in range(_SELECTIONS):
            started = time.perf_counter()
            selected = self._select(question, asked, top_k, where, namespace)
            timings.retrieve += 1e3 * (time.perf_counter() - started)
            try:
                assembled = self._assemble(namespace, selected, question, chosen, timings)
                break
            except NotFoundError:  # updated or deleted since it was selected: select again
                if attempt == _SELECTIONS - 1:
                    raise
        logits = first_logits(self.store, assembled, timings)
        return self._decode(assembled, logits, chosen, timings, clock, cancel)

    def assemble(
        self,
        question: str,
        documents: Iterable[str | tuple[str, Sequence[int]]] | None = None,
        *,
        top_k: int | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        max_new_tokens: int = 512,
    ) -> tuple[SlotCache, torch.Tensor]:
        """Return a transformers ``Cache`` of the packets, and the prompt's ids ``[1, n]``.

        ``model.generate(input_ids, past_key_values=cache)`` then runs the question alone. Ids at
        soft-token positions are placeholders: their K and V are in the cache.
        """
        require_question(question)
        selected = self._select(question, documents, top_k, None, namespace)
        assembled = self._assembler.assemble(
            namespace, selected, question, max_new_tokens=max_new_tokens, timings=Timings()
        )
        ids = torch.tensor([assembled.prompt_token_ids], device=self.store.model.device)
        return assembled.cache, ids

    def _select(
        self,
        question: str,
        documents: Iterable[str | tuple[str, Sequence[int]]] | None,
        top_k: int | None,
        where: Mapping[str, Any] | None,
        namespace: str,
    ) -> list[SelectedDocument]:
        if documents is None:
            self.store.require_namespace(namespace)
            return select_by_question(
                self.store,
                self.retriever,
                namespace,
                question,
                top_k=DEFAULT_TOP_K if top_k is None else top_k,
                where=where,
            )
        if top_k is not None or where is not None:
            raise UsageError("pass either documents, or top_k and where")
        if is_one(documents):
            raise UsageError("documents is a list of ids; put the one id into a list")
        return select_by_id(self.store, namespace, documents)

    def _assemble(
        self,
        namespace: str,
        selected: list[SelectedDocument],
        question: str,
        options: GenerationOptions,
        timings: Timings,
    ) -> Assembled:
        if options.consistency == "recompute":
            return self._assembler.joint(
                namespace, selected, question, max_new_tokens=options.max_new_tokens
            )
        return self._assembler.assemble(
            namespace, selected, question, max_new_tokens=options.max_new_tokens, timings=timings
        )

    def _decode(
        self,
        assembled: Assembled,
        logits: torch.Tensor,
        options: GenerationOptions,
        timings: Timings,
        clock: float,
        cancel: threading.Event | None,
    ) -> Iterator[Piece]:
        model = self.store.model
        sampler = Sampler(options.temperature, options.seed)
        text = TextAnswer(model.tokenizer, options.stop)
        tokens = decode_tokens(
            model.row_step(assembled.cache),
            logits,
            sampler,
            options,
            first_position=assembled.plan.prompt_positions,
            eos_ids=model.eos_ids,
            cancel=cancel,
        )
        for token_id in tokens:
            if timings.first_token is None:
                timings.first_token = 1e3 * (time.perf_counter() - clock)
            if piece := text.push(token_id):
                yield Piece(piece)
            if text.stopped:
                break
        rest = text.finish()
        timings.total = 1e3 * (time.perf_counter() - clock)
        finish = finish_reason(text, options)
        yield Piece(rest, finished_answer(assembled, text, options, sampler, timings, finish))
