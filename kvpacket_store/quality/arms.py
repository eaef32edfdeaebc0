"""The arms: one item, prompted in seven ways."""

from __future__ import annotations

from dataclasses import replace

from kvpacket_store.adapters import Adapter
from kvpacket_store.models import Model, recompute_rows, values_at_layer
from kvpacket_store.prefill import Prefiller
from kvpacket_store.quality.ape import ParallelPrompt
from kvpacket_store.quality.arm import ArmSettings, Ready, Start
from kvpacket_store.quality.flops import Flops
from kvpacket_store.quality.packets import PacketSet, Span, joint_spans, spans_of
from kvpacket_store.quality.prompt import PromptTokens
from kvpacket_store.types import KVDtype

__all__ = ["Arms"]


class Arms:
    """Prompts one item after another in every way.

    Parameters
    ----------
    model : Model
        The same for all.
    adapter : Adapter
        Of the arm ``packet``; no other arm has soft tokens.
    settings : ArmSettings
        Of the baselines.
    kv_dtype : KVDtype, optional
        What packets hold; default the model's own.
    """

    def __init__(
        self,
        model: Model,
        adapter: Adapter,
        settings: ArmSettings | None = None,
        kv_dtype: KVDtype | None = None,
    ) -> None:
        self.model = model
        self.settings = settings or ArmSettings()
        self._flops = Flops(model)
        self._plain = Prefiller(model, Adapter.none(adapter.hidden_size), kv_dtype)
        self._adapted = Prefiller(model, adapter, kv_dtype)
        self._prefilled: tuple[PromptTokens, PacketSet] | None = None

    def start(self, name: str, prompt: PromptTokens) -> Start:
        """Do what an arm does before the request; return what a request costs."""
        if name == "full":
            return lambda: self._joint(prompt)
        if name == "none":
            return lambda: self._alone(prompt)
        if name == "packet" and not self._adapted.adapter.is_none:
            adapted = PacketSet(self._adapted, prompt)
            return lambda: self.placed(adapted)
        if name == "ape":
            parallel = ParallelPrompt(self._plain, prompt, self.settings)
            return lambda: parallel.ready(self._flops)
        packets = self._plain_packets(prompt)
        if name == "epic":
            return lambda: self._epic(packets)
        if name == "cacheblend":
            return lambda: self._cacheblend(packets)
        return lambda: self.placed(packets)  # naive; and packet, where there is no adapter

    def _plain_packets(self, prompt: PromptTokens) -> PacketSet:
        """Prefill an item without soft tokens; once for all arms that begin with it."""
        if self._prefilled is None or self._prefilled[0] is not prompt:
            self._prefilled = (prompt, PacketSet(self._plain, prompt))
        return self._prefilled[1]

    def _joint(self, prompt: PromptTokens) -> Ready:
        """Prefill everything at once: what the others are measured against."""
        ids = (*prompt.preamble, *prompt.document_ids, *prompt.question)
        cache = self.model.new_cache(len(ids) + prompt.room_tokens)
        flops = self._flops.forward(len(ids), 0)
        return Ready(cache, ids, flops, len(prompt.document_ids), joint_spans(prompt))

    def _alone(self, prompt: PromptTokens) -> Ready:
        ids = (*prompt.preamble, *prompt.question_alone)
        sizes = [("preamble", len(prompt.preamble)), ("question", len(prompt.question_alone))]
        cache = self.model.new_cache(len(ids) + prompt.room_tokens)
        return Ready(cache, ids, self._flops.forward(len(ids), 0), 0, spans_of(sizes))

    def placed(self, packets: PacketSet) -> Ready:
        """Reuse packets as they are, keys rotated to their positions."""
        question, slots = packets.prompt.question, packets.num_slots
        flops = self._flops.placing(slots) + self._flops.forward(len(question), slots)
        asked = Span("question", slots, slots + len(question))
        return Ready(packets.place(), question, flops, 0, (*packets.spans, asked))

    def _epic(self, packets: PacketSet) -> Ready:
        """Recompute the first tokens of every packet among all others.

        Source: EPIC, LegoLink (arXiv:2410.15332). There the first packet keeps its own sink; here
        the preamble has it, so the first packet is treated as the others.
        """
        count = self.settings.epic_tokens
        slots = [s for b in packets.bodies for s in range(b.start, min(b.start + count, b.end))]
        ready = self.placed(packets)
        self._recompute(ready, packets.prompt, slots)
        flops = ready.flops + self._flops.rows(slots)
        return replace(ready, flops=flops, recomputed_tokens=len(slots))

    def _cacheblend(self, packets: PacketSet) -> Ready:
        """Recompute the document tokens whose V deviates most in an early layer.

        Source: CacheBlend (arXiv:2405.16444), §4.3. In layer 0 K and V depend on the token alone,
        so rows that are chosen in layer 1 may as well start in layer 0: the outcome is the paper's.
        FLOPs are those of its order: all rows until the choice, then the chosen ones.
        """
        layer = self.settings.cacheblend_layer
        ready, prompt = self.placed(packets), packets.prompt
        first, end = len(prompt.preamble), packets.num_slots
        fresh = values_at_layer(self.model, (*prompt.preamble, *prompt.document_ids), layer)
        stale = ready.cache.v_slots[layer, :, first:end]
        deviation = (fresh[:, first:end].float() - stale.float()).square().sum(dim=(0, 2))
        count = round(self.settings.cacheblend_share * (end - first))
        chosen = deviation.topk(count).indices.sort().values + first
        slots = [int(slot) for slot in chosen]
        self._recompute(ready, prompt, slots)
        everything = range(first, end)
        flops = self._flops.rows(everything, end_layer=layer) + self._flops.values(end - first)
        flops += self._flops.rows(slots, first_layer=layer)
        return replace(ready, flops=ready.flops + flops, recomputed_tokens=len(slots))

    def _recompute(self, ready: Ready, prompt: PromptTokens, slots: list[int]) -> None:
        ids = (*prompt.preamble, *prompt.document_ids)
        recompute_rows(self.model, ready.cache, tuple(ids[slot] for slot in slots), slots)
