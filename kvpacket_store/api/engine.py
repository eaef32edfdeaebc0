"""Question → answer: retrieve, assemble, decode, with usage and where the time went."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from kvpacket_store.api.answer import Answer, Piece, Timings
from kvpacket_store.api.assembly import Assembler
from kvpacket_store.api.audit import Auditor
from kvpacket_store.api.batch import Batch
from kvpacket_store.api.begun import Begun
from kvpacket_store.api.decoding import Decoder
from kvpacket_store.api.draft_model import DraftModel
from kvpacket_store.api.formats import Formats
from kvpacket_store.api.pieces import AnswerPieces, answer_pieces
from kvpacket_store.api.prompts import Needs, Prompts
from kvpacket_store.api.quality_gate import check_verified
from kvpacket_store.api.request import new_request
from kvpacket_store.api.selection import DocumentItem, Query
from kvpacket_store.api.store import DEFAULT_NAMESPACE, Store
from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.errors import KVPacketError
from kvpacket_store.generate import GenerationOptions
from kvpacket_store.memory import MemoryTier
from kvpacket_store.models import DEFAULT_SYSTEM_PROMPT, cancellable, for_generate
from kvpacket_store.prefill import BodyKV
from kvpacket_store.retrieve import Retriever

if TYPE_CHECKING:
    from kvpacket_store.models import Model, SlotCache

__all__ = ["Engine"]

DEFAULT_MEMORY_BYTES = 1 << 30


class Engine:
    """Answers questions from a store's packets. Safe for many threads.

    Parameters
    ----------
    store : Store
        Open. Its model is loaded here if it is not yet.
    system_prompt : str
        Governs every answer; it is in the preamble, which no document sees.
    memory_bytes : int
        Most that decoded packets may take in RAM between requests; 0 keeps none.
    audit : float
        Share of answers that are compared with a joint prefill, after they were given: `Auditor`.
    draft_model : str or Model, optional
        A smaller model with the same tokenizer (a preset, folder or hub name). It drafts for
        requests that name no other ``compressor``; ``lookup+model`` asks it where nothing in the
        prompt follows. It reads each prompt by itself, which packets do not spare it:
        ``decode="auto"`` takes it where the answer may be as long as the prompt.
    require_verified : bool
        Refuse a store whose model and adapter have no quality report (QualityError); without it
        there is a warning in the log.

    Raises
    ------
    ModelError
        The draft model cannot be loaded, or has another tokenizer.

    Examples
    --------
    ::

        engine = Engine(Store.open("corpus.kvps"))
        print(engine.generate("Who proved it?", documents=["a"]).text)
    """

    def __init__(
        self,
        store: Store,
        *,
        system_prompt: str = DEFAULT_SYSTEM_PROMPT,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        audit: float = 0.0,
        draft_model: str | Model | None = None,
        require_verified: bool = False,
    ) -> None:
        check_verified(store, required=require_verified)
        self.store, self.system_prompt = store, system_prompt
        formats = Formats(store.model.tokenizer, system_prompt)
        self.prompt = formats.default
        self.memory: MemoryTier[BodyKV] = MemoryTier(memory_bytes)
        self._assembler = Assembler(store, formats, self.memory)
        drafts = None if draft_model is None else DraftModel(draft_model, store.model)
        self.decoder = Decoder(store, self._assembler, drafts)
        self._prompts = Prompts(store, self._assembler, self.decoder, lambda: self.retriever)
        self.auditor = Auditor(audit, None if store.packets.is_read_only else store.path)
        self._retriever: Retriever | None = None
        self._making_retriever = threading.Lock()

    @property
    def retriever(self) -> Retriever:
        """Finds segments for a question."""
        with self._making_retriever:
            if self._retriever is None:
                packets = self.store.packets
                self._retriever = Retriever(
                    packets,
                    self.store.embedder,
                    None if packets.is_read_only else self.store.path / "index",
                    wait_for_rebuild=True,  # what was acknowledged is found
                    room_bytes=packets.spare_bytes,
                )
            return self._retriever

    def generate(
        self,
        question: str,
        documents: Iterable[DocumentItem] | None = None,
        *,
        top_k: int | None = None,
        where: Mapping[str, Any] | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        history: Sequence[tuple[str, str]] = (),
        system_prompt: str | None = None,
        keep: bool = False,
        cancel: threading.Event | None = None,
        **options: Any,
    ) -> Answer:
        """Answer a question.

        Parameters
        ----------
        question : str
            Control tokens in it stay text.
        documents : iterable, optional
            Ids, in prompt order, for whole documents; ``(id, [segment numbers])`` for parts;
            `Document` or `Text` for what is matched by its content: stored packets are used, what
            is not stored is prefilled. An empty one asks without documents. None retrieves.
        top_k : int, optional
            How many segments to retrieve (5).
        where : mapping, optional
            Metadata that retrieved documents must have.
        namespace : str
            Whose documents.
        history : sequence of (question, answer)
            Earlier turns of the conversation, as text, the first one first. They stand between the
            documents and the question, and run with it.
        system_prompt : str, optional
            In the place of the engine's; a few are kept prefilled in memory.
        keep : bool
            File what was given as `Document` or `Text`, as an ingest would, before it is answered:
            a text gets an id of its content, unless all of it is stored already.
        cancel : threading.Event, optional
            Set it to stop within one step.
        **options
            As `GenerationOptions`: max_new_tokens, temperature, seed, sampling_top_k, top_p,
            repetition_penalty, stop, ignore_eos, decode, exactness, consistency, compressor.

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
            history=history,
            system_prompt=system_prompt,
            keep=keep,
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
        documents: Iterable[DocumentItem] | None = None,
        *,
        top_k: int | None = None,
        where: Mapping[str, Any] | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        history: Sequence[tuple[str, str]] = (),
        system_prompt: str | None = None,
        keep: bool = False,
        cancel: threading.Event | None = None,
        provisional: bool = False,
        **options: Any,
    ) -> Iterator[Piece]:
        """Answer piece by piece, as `generate`; the last piece has the whole answer.

        With ``provisional``, drafted text comes too, in pieces that say so: final pieces are the
        same, and make up the answer alone. Closing the iterator stops decoding.
        """
        request = new_request(
            question,
            documents,
            top_k=top_k,
            where=where,
            namespace=namespace,
            history=history,
            system_prompt=system_prompt,
            keep=keep,
            cancel=cancel,
            provisional=provisional,
            **options,
        )
        with cancellable(request.cancel):
            begun = self.begin(request.query, request.options, request.timings, request.cancel)
        model = self.store.model
        pieces = answer_pieces(begun, AnswerPieces(request, begun, model.tokenizer), model)
        return self._audited(pieces, begun)

    def generate_many(
        self, requests: Sequence[Mapping[str, Any]], *, memory_bytes: int | None = None
    ) -> list[Answer | KVPacketError]:
        """Answer many questions together: their steps share passes over the weights.

        Parameters
        ----------
        requests : sequence of mapping
            ``question`` and what else `generate` takes, each. Answers are those of `generate`.
        memory_bytes : int, optional
            Most that K and V of running requests may take; others wait. See `Batch`.

        Returns
        -------
        list
            An answer for each, or the error that it ended with.
        """
        return Batch(self, memory_bytes).run(requests)

    def begin(
        self,
        query: Query,
        options: GenerationOptions,
        timings: Timings,
        cancel: threading.Event | None = None,
        policy: SwapPolicy | None = None,
    ) -> Begun:
        """Assemble a prompt and run its question; what is returned gives the answer's tokens."""
        assembled = self._prompts.prepare(query, options, timings)
        return self.decoder.begin(query.namespace, assembled, options, timings, cancel, policy)

    def needs(self, query: Query, options: GenerationOptions) -> Needs:
        """Return what a request takes in memory."""
        return self._prompts.needs(query, options)

    def assemble(
        self,
        question: str,
        documents: Iterable[DocumentItem] | None = None,
        *,
        top_k: int | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        history: Sequence[tuple[str, str]] = (),
        system_prompt: str | None = None,
        keep: bool = False,
        max_new_tokens: int = 512,
    ) -> tuple[SlotCache, torch.Tensor]:
        """Return a transformers ``Cache`` of the packets, and the prompt's ids ``[1, n]``.

        ``store.model.hf.generate(input_ids, past_key_values=cache)`` then runs the question alone,
        and gives the tokens that ``decode="full"`` gives; the cache is for that one call, which
        fills its slots. Ids at soft-token positions are placeholders: their K and V are in the
        cache.
        """
        query = Query(question, documents, top_k, None, namespace, history, system_prompt, keep)
        options = GenerationOptions(max_new_tokens=max_new_tokens, decode="full")
        assembled = self._prompts.prepare(query, options, Timings())
        ids = torch.tensor([assembled.prompt_token_ids], device=self.store.model.device)
        return for_generate(self.store.model, assembled.cache), ids

    def audit(self, begun: Begun) -> None:
        """Compare an answer that was given with a joint prefill, if it is its turn."""
        is_packets = begun.answering.options.consistency == "packet"
        if is_packets and self.auditor.is_due():
            self.auditor.audit(self.store.model, self._assembler, begun)

    def _audited(self, pieces: Iterator[Piece], begun: Begun) -> Iterator[Piece]:
        """Pass pieces on; then comes the audit."""
        yield from pieces
        self.audit(begun)
