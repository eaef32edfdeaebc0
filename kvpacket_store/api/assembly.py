"""Selected packets + question → a filled cache and the logits of its last row."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from kvpacket_store.api.answer import Fallback, Timings, UsedDocument, UsedPacket
from kvpacket_store.api.assembled import Assembled, Placing
from kvpacket_store.api.formats import Formats
from kvpacket_store.api.importance import prompt_importance
from kvpacket_store.api.loader import LoadedBody, PacketLoader
from kvpacket_store.api.read_ahead import ReadAhead
from kvpacket_store.api.selection import Query, SelectedDocument
from kvpacket_store.api.swap_in import SwapIn, SwapPolicy
from kvpacket_store.assemble import AssemblyPlan, Before, place, plan_assembly
from kvpacket_store.memory import MemoryTier
from kvpacket_store.models import PromptFormat, SlotCache, SwapCache, raise_if_cancelled
from kvpacket_store.prefill import BodyKV
from kvpacket_store.types import TokenIds

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["Assembler", "first_logits"]


class Assembler:
    """Builds prompts for one store."""

    def __init__(self, store: Store, formats: Formats, memory: MemoryTier[BodyKV]) -> None:
        self._store = store
        self._formats = formats
        self._loader = PacketLoader(store, memory)

    def assemble(
        self,
        query: Query,
        selected: Sequence[SelectedDocument],
        *,
        max_new_tokens: int,
        timings: Timings,
        from_base: bool = False,
    ) -> Assembled:
        """Load, rotate and place; run nothing but what has no packet.

        ``from_base`` places what the base of each packet gives, where it has one. Those that
        had to be made come back in ``made`` if they are to be kept.

        Raises
        ------
        ContextOverflowError
            Before anything is loaded.
        """
        prompt, namespace = self._formats.of(query.system_prompt), query.namespace
        question_ids = _asked(prompt, query, selected)
        plan = self._plan(prompt, selected, question_ids, max_new_tokens)
        cache = self._store.model.new_cache(plan.num_slots)
        preamble_is_cached = self._place_preamble(prompt, cache, timings)
        built = Placing(iter(plan.packet_starts), from_base=from_base, keep=query.keep)
        with self._ahead(namespace, selected, from_base) as built.ahead:
            for document in selected:
                used = self._place_document(namespace, document, cache, built, timings)
                built.documents.append(used)
        self._store.packets.touch(namespace, [loaded.packet_key for loaded in built.loaded])
        cache.set_length(plan.question_start)
        segment_tokens = sum(len(loaded.token_ids) for loaded in built.loaded)
        cached = sum(len(b.token_ids) for b in built.loaded if b.tier != "prefill")
        return Assembled(
            query=query,
            cache=cache,
            plan=plan,
            preamble_ids=prompt.preamble_ids,
            question_ids=question_ids,
            documents=built.documents,
            fallbacks=[
                Fallback(b.packet_key, b.fallback_reason)
                for b in built.loaded
                if b.fallback_reason is not None
            ],
            prompt_token_ids=self._joined(prompt, built.loaded, question_ids),
            prompt_tokens=plan.preamble_tokens + segment_tokens + len(question_ids),
            cached_tokens=cached + (plan.preamble_tokens if preamble_is_cached else 0),
            adapter_tokens=len(built.loaded) * self._soft_tokens,
            swap_parts=built.swap_parts,
            exact_parts=built.exact_parts if built.swap_parts else [],
            base_bytes=sum(loaded.base_bytes for loaded in built.loaded),
            text_ids=(
                *prompt.preamble_ids,
                *(token_id for body in built.loaded for token_id in body.token_ids),
                *question_ids,
            ),
            selected=selected,
            made=built.made,
        )

    def swap_in(
        self, namespace: str, assembled: Assembled, policy: SwapPolicy
    ) -> tuple[SwapCache, SwapIn]:
        """Return slots for a prompt's exact K and V, and what brings these there."""
        store, plan = self._store, assembled.plan
        cache = store.model.new_swap_cache(plan.num_slots, kept_from=plan.question_start)
        cache.set_length(plan.question_start)
        preamble, _ = self._preamble(assembled.preamble_ids)
        header = self._loader.header()
        headers = ((header, start, None) for start in plan.packet_starts)
        shared = [(preamble, 0, None), *headers, *assembled.exact_parts]
        return cache, SwapIn(
            store,
            self._loader,
            namespace,
            cache,
            shared=shared,
            parts=assembled.swap_parts,
            policy=policy,
        )

    def importance(self, assembled: Assembled) -> torch.Tensor:
        """Return how much each slot of a prompt is needed, float32 ``[L, H, T]``."""
        return prompt_importance(self._store, self._loader, assembled)

    def plan_of(
        self, query: Query, selected: Sequence[SelectedDocument], max_new_tokens: int
    ) -> AssemblyPlan:
        """Return where a prompt and its answer would lie; nothing is loaded."""
        prompt = self._formats.of(query.system_prompt)
        return self._plan(prompt, selected, _asked(prompt, query, selected), max_new_tokens)

    def joint(
        self, query: Query, selected: Sequence[SelectedDocument], *, max_new_tokens: int
    ) -> Assembled:
        """Lay out the same token ids for a joint prefill: no packet, no adapter, no reuse.

        The cache is empty; all ids are in ``question_ids``, to be run at once.
        """
        prompt = self._formats.of(query.system_prompt)
        documents, ids = [], [*prompt.preamble_ids]
        for document in selected:
            used = []
            for ref in document.segments:
                key = ref.packet_key
                given = document.tokens.get(key)
                tokens = given or self._loader.token_ids(query.namespace, key, document.id)
                ids.extend(tokens)
                used.append(UsedPacket(key, len(tokens), "prefill", fell_back=False))
            documents.append(UsedDocument(document.id, document.score, used))
        ids.extend(_asked(prompt, query, selected))
        plan = plan_assembly(
            preamble_tokens=0,
            packet_positions=(),
            question_tokens=len(ids),
            max_new_tokens=max_new_tokens,
            max_positions=self._store.model.max_positions,
        )
        cache = self._store.model.new_cache(plan.num_slots)
        whole = tuple(ids)
        return Assembled(
            query, cache, plan, (), whole, documents, [], whole, len(whole), 0, 0, text_ids=whole
        )

    @property
    def _soft_tokens(self) -> int:
        adapter = self._store.adapter
        return adapter.header_slots + adapter.trailer_tokens

    def _ahead(
        self, namespace: str, selected: Sequence[SelectedDocument], from_base: bool
    ) -> ReadAhead[tuple[str, str], LoadedBody]:
        """Return what reads and decodes on other threads; it prefills nothing."""
        keys = [(ref.packet_key, d.id) for d in selected for ref in d.segments]
        if from_base:
            return ReadAhead(lambda key: self._loader.base(namespace, key[0]), keys)
        return self._loader.ahead(namespace, keys)

    def _plan(
        self,
        prompt: PromptFormat,
        selected: Sequence[SelectedDocument],
        question_ids: TokenIds,
        max_new_tokens: int,
    ) -> AssemblyPlan:
        soft = self._soft_tokens
        return plan_assembly(
            preamble_tokens=len(prompt.preamble_ids),
            packet_positions=[soft + ref.tokens for d in selected for ref in d.segments],
            question_tokens=len(question_ids),
            max_new_tokens=max_new_tokens,
            max_positions=self._store.model.max_positions,
        )

    def _preamble(self, token_ids: TokenIds) -> tuple[BodyKV, bool]:
        """Return K and V, and whether no forward was needed; requests leave none in the store."""
        is_own = token_ids == self._formats.default.preamble_ids
        return self._loader.preamble(token_ids, is_kept=is_own)

    def _place_preamble(self, prompt: PromptFormat, cache: SlotCache, timings: Timings) -> bool:
        started = time.perf_counter()
        body, is_cached = self._preamble(prompt.preamble_ids)
        place(self._store.model, cache, body.k, body.v, kv_dtype=self._store.kv_dtype, start=0)
        elapsed = 1e3 * (time.perf_counter() - started)
        if is_cached:
            timings.assemble += elapsed
        else:
            timings.prefill += elapsed
        return is_cached

    def _place_document(
        self,
        namespace: str,
        document: SelectedDocument,
        cache: SlotCache,
        built: Placing,
        timings: Timings,
    ) -> UsedDocument:
        used = []
        for ref in document.segments:
            raise_if_cancelled()
            loaded = self._load(namespace, ref.packet_key, document, built, timings)
            start = next(built.starts)
            positions = self._soft_tokens + len(loaded.token_ids)
            before = built.predecessors.then(loaded.token_ids, positions)
            self._place_packet(cache, loaded, start, before, timings)
            built.note(loaded, document.id, start + self._store.adapter.header_slots, before)
            fell_back = loaded.fallback_reason is not None
            used.append(UsedPacket(ref.packet_key, len(loaded.token_ids), loaded.tier, fell_back))
            built.place_is_done(loaded)
        return UsedDocument(document.id, document.score, used)

    def _load(
        self,
        namespace: str,
        key: str,
        document: SelectedDocument,
        built: Placing,
        timings: Timings,
    ) -> LoadedBody:
        """Return a body; what other threads did meanwhile is counted as the time waited for it."""
        started = time.perf_counter()
        loaded = built.ahead.take() or self._loader.body(
            namespace, key, document.id, document.tokens.get(key)
        )
        elapsed = 1e3 * (time.perf_counter() - started)
        worked = loaded.load_ms + loaded.decode_ms + loaded.prefill_ms
        share = min(elapsed / worked, 1.0) if worked else 0.0
        timings.load += share * loaded.load_ms
        timings.decode += share * loaded.decode_ms
        timings.prefill += share * loaded.prefill_ms
        return loaded

    def _place_packet(
        self, cache: SlotCache, loaded: LoadedBody, start: int, before: Before, timings: Timings
    ) -> None:
        started = time.perf_counter()
        model, kv_dtype = self._store.model, self._store.kv_dtype
        header = self._loader.header()
        place(model, cache, header.k, header.v, kv_dtype=kv_dtype, start=start)
        after = start + self._store.adapter.header_slots
        correct = self._store.corrector.behind(before)
        k, v = loaded.body.k, loaded.body.v
        place(model, cache, k, v, kv_dtype=kv_dtype, start=after, correct=correct)
        timings.assemble += 1e3 * (time.perf_counter() - started)

    def _joined(
        self, prompt: PromptFormat, loaded: Sequence[LoadedBody], question_ids: TokenIds
    ) -> TokenIds:
        """Return an id for every position: soft tokens get a placeholder that nothing reads."""
        adapter, placeholder = self._store.adapter, prompt.preamble_ids[-1]
        ids = [*prompt.preamble_ids]
        for body in loaded:
            ids.extend([placeholder] * adapter.header_slots)
            ids.extend(body.token_ids)
            ids.extend([placeholder] * adapter.trailer_tokens)
        return (*ids, *question_ids)


def _asked(prompt: PromptFormat, query: Query, selected: Sequence[SelectedDocument]) -> TokenIds:
    return prompt.question_ids(query.question, has_documents=bool(selected), history=query.history)


def first_logits(store: Store, assembled: Assembled, timings: Timings) -> torch.Tensor:
    """Run the question; return the logits ``[vocab]`` of its last row."""
    started = time.perf_counter()
    logits = store.model.forward(assembled.question_ids, assembled.cache)
    timings.prefill += 1e3 * (time.perf_counter() - started)
    return logits[-1]
