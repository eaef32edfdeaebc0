"""APE: packets side by side behind one prefix, and attention to them corrected.

Source: Yang et al. 2025, arXiv:2502.05431. (1) A shared prefix stands before every packet while it
is prefilled, and all packets take the same positions behind it. (2) Attention to packets gets a
temperature. (3) What packets weigh against the rest is scaled:

    context = softmax(q·k / T) v over packets,      l_c = S · T · logsumexp(q·k / T)
    other   = softmax(q·k) v     over the rest,     l_o = logsumexp(q·k)
    output  = w · context + (1 - w) · other,        w   = sigmoid(l_c - l_o)

Here the prefix is the preamble. In a sliding layer a row sees so many slots back as elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvpacket_store.models import AttentionCall, SlotCache, bits_to_tensor, slot_mask
from kvpacket_store.prefill import BodyKV, Prefiller, preamble_adapter
from kvpacket_store.quality.arm import ArmSettings, Ready
from kvpacket_store.quality.flops import Flops
from kvpacket_store.quality.packets import joint_spans
from kvpacket_store.quality.prompt import PromptTokens

__all__ = ["ContextAttention", "ParallelPrompt"]


@dataclass(frozen=True, slots=True)
class ContextAttention:
    """Attention with a temperature and a scale for the slots of packets.

    Parameters
    ----------
    start, end : int
        Slots of the packets.
    temperature, scale : float
        T and S; 1 and 1 are ordinary attention.
    """

    start: int
    end: int
    temperature: float
    scale: float

    def __call__(self, call: AttentionCall) -> torch.Tensor:
        """See `AttentionRule`."""
        mixed = self.weights(call) @ call.value.float()[:, :, None]
        return mixed.flatten(1, 2).to(call.query.dtype)

    def weights(self, call: AttentionCall) -> torch.Tensor:
        """Return the weights ``[B, H, Hq / H, Q, T]`` of all slots; a row sums to 1."""
        heads, slots = call.key.shape[1], call.key.shape[2]
        batch, query_heads, rows, dim = call.query.shape
        query = call.query.float().view(batch, heads, query_heads // heads, rows, dim)
        logits = query @ call.key.float().transpose(2, 3)[:, :, None] * call.scaling
        mask = slot_mask(rows, slots, call.window, call.query.device)
        if mask is not None:
            logits = logits.masked_fill(~mask, float("-inf"))
        packets = logits[..., self.start : self.end] / self.temperature
        before, after = logits[..., : self.start], logits[..., self.end :]
        rest = torch.cat([before, after], dim=-1)
        difference = self.scale * self.temperature * packets.logsumexp(-1) - rest.logsumexp(-1)
        # a row whose window has no packet in it sees none: softmax of nothing is not a number
        share = difference.nan_to_num(neginf=-1e9).sigmoid()[..., None]
        of_packets = share * packets.softmax(-1).nan_to_num()
        of_rest = (1 - share) * rest.softmax(-1)
        parts = (of_rest[..., : self.start], of_packets, of_rest[..., self.start :])
        return torch.cat(parts, dim=-1)


class ParallelPrompt:
    """One item's packets as APE prefills and places them.

    Parameters
    ----------
    plain : Prefiller
        Without an adapter.
    prompt : PromptTokens
        The item.
    settings : ArmSettings
        Without ``ape_prefix`` packets are prefilled alone and take positions one after the other,
        which is naive reuse.
    """

    def __init__(self, plain: Prefiller, prompt: PromptTokens, settings: ArmSettings) -> None:
        self._model, self._kv_dtype = plain.model, plain.kv_dtype
        self._prompt, self._settings = prompt, settings
        self._preamble = plain.preamble(prompt.preamble)
        prefiller = plain
        if settings.ape_prefix:
            prefiller = Prefiller(plain.model, preamble_adapter(plain.model), plain.kv_dtype)
        self._bodies = [prefiller.segment(segment) for segment in prompt.segments]

    def ready(self, flops: Flops) -> Ready:
        """Place the packets."""
        prompt, settings = self._prompt, self._settings
        first = len(prompt.preamble)
        num_slots = first + len(prompt.document_ids)
        question = prompt.question
        cache = self._model.new_cache(num_slots + len(question) + prompt.room_tokens)
        self._put(cache, self._preamble, 0, 0)
        slot = next_position = first
        for body, segment in zip(self._bodies, prompt.segments, strict=True):
            position = first if settings.ape_prefix else slot
            self._put(cache, body, slot, position)
            slot += len(segment)
            next_position = max(next_position, position + len(segment))
        cache.set_length(num_slots)
        cache.leave_out(next_position - num_slots)
        cost = flops.placing(num_slots) + flops.forward(len(question), num_slots)
        rule = ContextAttention(first, num_slots, settings.ape_temperature, settings.ape_scale)
        return Ready(cache, question, cost, 0, joint_spans(prompt), rule)

    def _put(self, cache: SlotCache, part: BodyKV, slot: int, position: int) -> None:
        model = self._model
        k, v = (
            bits_to_tensor(bits, self._kv_dtype).to(device=model.device, dtype=model.dtype)
            for bits in (part.k, part.v)
        )
        positions = torch.arange(position, position + k.shape[2], device=model.device)
        cache.write_rows(slot, model.rotate_keys(k, positions), v)
