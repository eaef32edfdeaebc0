"""What a base's steps cost with a store's codec pack: found for it, measured on its packets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvpacket_store import __version__
from kvpacket_store.api.arguments import is_count
from kvpacket_store.codec import BASE_STEPS, decode_base, encode_layers, info
from kvpacket_store.codec.step_costs import COSTS_SUFFIX, StepCosts, installed_costs
from kvpacket_store.durable import written_whole
from kvpacket_store.errors import ReadOnlyError, UsageError
from kvpacket_store.store.failures import as_store_error

if TYPE_CHECKING:
    import torch

    from kvpacket_store.api.store import Store
    from kvpacket_store.models import SlotCache
    from kvpacket_store.prefill import BodyKV
    from kvpacket_store.types import BitArray

__all__ = ["find_costs", "measure_step_costs"]

_QUESTION = "Write a detailed answer with the facts from the documents."
_PROMPT_TOKENS = 1024
_ANSWER_TOKENS = 96

Sides = tuple["BitArray", "BitArray"]


def find_costs(packs_folder: Path | None, pack: str | None) -> StepCosts | None:
    """Return the costs measured with the codec pack of that digest: a store's own, or shipped.

    Raises
    ------
    CorruptRecordError
        The store's file cannot be read; measure again, or delete it.
    """
    if pack is None:
        return None
    own = packs_folder / f"{pack}{COSTS_SUFFIX}" if packs_folder is not None else None
    if own is not None and own.is_file():
        return StepCosts.from_json(own.read_bytes())
    return installed_costs(pack)


def measure_step_costs(
    store: Store,
    *,
    prompts: int = 2,
    progress: Callable[[str, float], None] = lambda stage, share: None,
) -> StepCosts:
    """Measure what each step of each layer's K and V does to answers; keep it in the store.

    Prompts are packets of the store, up to 1,024 tokens, and a request to tell what they say. With
    the model's own answer given, K or V of one layer at a time is what a coarser base gives, and
    the harm is the KL of the answer's tokens.

    Parameters
    ----------
    store : Store
        Of level ``linear``, open for writing.
    prompts : int
        Two agree to 0.98 (correlation of log harm); each takes minutes.
    progress : callable
        Told the stage and the share of it that is done.

    Raises
    ------
    UsageError
        The store has no codec pack, or no packets.
    ReadOnlyError, StoreFullError
        The costs cannot be kept.
    """
    pack = store.codec_pack
    if pack is None:
        raise UsageError(
            f"store {store.path} is of level {store.meta.codec}; steps are level linear's"
        )
    if not is_count(prompts):
        raise UsageError(f"prompts is {prompts!r:.40}; pass how many, 1 or more")
    if store.packets.is_read_only:
        raise ReadOnlyError(f"store {store.path} is open for reading alone; costs are kept in it")
    probes = [_Probe(store, bodies) for bodies in _prompts_of(store, prompts)]
    if not probes:
        raise UsageError(f"store {store.path} has no packets; ingest some text first")
    harms = []
    for number, probe in enumerate(probes, start=1):
        harms.append(probe.harm(partial(progress, f"prompt {number}")))
    costs = StepCosts(
        pack.digest,
        np.mean(harms, axis=0),
        np.mean([probe.bits for probe in probes], axis=0),
        _about(store, probes),
    )
    _keep(store, costs)
    return costs


def _about(store: Store, probes: list[_Probe]) -> dict[str, Any]:
    return {
        "made_by": f"kvpacket-store {__version__}",
        "model": Path(store.meta.model).name,
        "prompts": len(probes),
        "prompt_tokens": [probe.num_slots for probe in probes],
    }


def _prompts_of(store: Store, count: int) -> Iterator[list[BodyKV]]:
    """Yield the bodies of up to ``count`` prompts, each of packets that were not in another."""
    from kvpacket_store.api.loader import PacketLoader

    loader, bodies, tokens = PacketLoader(store), list[Any](), 0
    for namespace in store.packets.namespaces():
        for key in store.packets.iter_packet_keys(namespace):
            manifest = store.packets.get_manifest(namespace, key)
            if not manifest.tokens or manifest.is_evicted:
                continue
            if bodies and tokens + manifest.tokens > _PROMPT_TOKENS:
                yield bodies
                count, bodies, tokens = count - 1, [], 0
            if not count:
                return
            bodies.append(loader.body(namespace, key, "").body)
            tokens += manifest.tokens
    if bodies:
        yield bodies


class _Probe:
    """One prompt: its packets, their bases at every step, and the model's own answer."""

    def __init__(self, store: Store, bodies: list[BodyKV]) -> None:
        from kvpacket_store.models import Transfer

        self._store = store
        self._pack = store.codec_pack
        self._bodies = [(body.k, body.v) for body in bodies]
        self._bases: list[list[Sides]] = []
        self.bits = np.zeros((2, store.layout.num_layers, len(BASE_STEPS)))
        for index, step in enumerate(BASE_STEPS):
            self._bases.append([self._base(k, v, step, index) for k, v in self._bodies])
        self.bits /= sum(k[0].size for k, _ in self._bodies) / 8
        self._transfer = Transfer(store.model, store.kv_dtype)
        self._cache, self._starts = self._filled()
        self.num_slots = self._cache.length

    def _base(self, k: BitArray, v: BitArray, step: str, index: int) -> Sides:
        kv_dtype = self._store.kv_dtype
        record = encode_layers(k, v, kv_dtype=kv_dtype, pack=self._pack, base_step=step).base
        told = info(record)
        self.bits[:, :, index] += [told.k_bytes_by_layer, told.v_bytes_by_layer]
        return decode_base(record, packs=(self._pack,))

    def _filled(self) -> tuple[SlotCache, list[int]]:
        """Return the prompt in slots, with room for the answer, and where packets begin."""
        from kvpacket_store.assemble import place
        from kvpacket_store.models import PromptFormat

        store, model = self._store, self._store.model
        asked = PromptFormat(model.tokenizer)
        self._question = asked.question_ids(_QUESTION)
        preamble = store.prefiller.preamble(asked.preamble_ids)
        header = store.prefiller.header()
        spans, starts, end = [(preamble.k, preamble.v)], [], preamble.k.shape[2]
        for body in self._bodies:
            spans += [(header.k, header.v), body]
            starts.append(end + header.k.shape[2])
            end = starts[-1] + body[0].shape[2]
        cache = model.new_cache(end + len(self._question) + _ANSWER_TOKENS)
        at = 0
        for k, v in spans:
            place(model, cache, k, v, kv_dtype=store.kv_dtype, start=at)
            at += k.shape[2]
        cache.set_length(end)
        return cache, starts

    def harm(self, progress: Callable[[float], None]) -> Any:
        """Return KL to the exact answer ``[2, L, S]``, each of one layer's K or V alone."""
        answer = self._answer()
        exact = self._forced(answer)
        layers = self._store.layout.num_layers
        found = np.zeros_like(self.bits)
        for side, layer in np.ndindex(2, layers):
            progress((side * layers + layer) / (2 * layers))
            for step in range(1, len(BASE_STEPS)):
                self._place(self._bases[step], side, layer)
                near = self._forced(answer)
                found[side, layer, step] = float((exact.exp() * (exact - near)).sum(-1).mean())
            self._place(self._bodies, side, layer)
            # the finest step counts as no harm, and a coarser one never as less than a finer one
            found[side, layer] = np.maximum.accumulate(found[side, layer])
        return found

    def _answer(self) -> tuple[int, ...]:
        """Return the model's greedy answer."""
        start = self._cache.length
        step = self._store.model.row_step(self._cache)
        token = int(self._store.model.forward(self._question, self._cache)[-1].argmax())
        answer = [token]
        while len(answer) < _ANSWER_TOKENS and answer[-1] not in self._store.model.eos_ids:
            answer.append(int(step(answer[-1]).argmax()))
        self._cache.set_length(start)
        return tuple(answer)

    def _forced(self, answer: tuple[int, ...]) -> torch.Tensor:
        """Return log-probabilities ``[n, vocab]`` that predict each token of the answer."""
        start = self._cache.length
        rows = (*self._question, *answer[:-1])
        logits = self._store.model.forward(rows, self._cache, keep_logits=len(answer))
        self._cache.set_length(start)
        return logits.float().log_softmax(-1)

    def _place(self, bodies: list[Sides], side: int, layer: int) -> None:
        """Put K (side 0) or V (1) of one layer of all packets into slots."""
        from kvpacket_store.assemble import place_layer

        for exact, near, start in zip(self._bodies, bodies, self._starts, strict=True):
            pair = [exact[0][layer], exact[1][layer]]
            pair[side] = near[side][layer]
            place_layer(self._transfer, self._cache, layer, *pair, start=start)


def _keep(store: Store, costs: StepCosts) -> None:
    folder = store.codec_packs.folder
    path = folder / f"{costs.pack}{COSTS_SUFFIX}"
    try:
        folder.mkdir(exist_ok=True)
        with written_whole(path) as scratch:
            scratch.write_text(costs.to_json(), "utf-8")
    except OSError as error:
        raise as_store_error(error, store.path) from error
