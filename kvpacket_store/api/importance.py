"""How much each token of a packet is needed: made at prefill, filed with it, given to drafts."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kvpacket_store.errors import CodecError, NotFoundError

if TYPE_CHECKING:
    import torch

    from kvpacket_store.api.assembled import Assembled
    from kvpacket_store.api.loader import PacketLoader
    from kvpacket_store.api.store import Store
    from kvpacket_store.compress import PromptKV
    from kvpacket_store.models import SlotCache
    from kvpacket_store.prefill import BodyKV
    from kvpacket_store.types import TokenIds

__all__ = ["packet_prompt", "prompt_importance", "stored_importance", "wanted_importance"]


def wanted_importance(store: Store, body: BodyKV, token_ids: TokenIds) -> bytes | None:
    """Return what is filed with a packet just prefilled; None where the store wants none."""
    return _computed(store, body, token_ids) if store.meta.importance else None


def stored_importance(store: Store, namespace: str, packet_key: str) -> bytes | None:
    """Return what is filed with a packet; None where it is lost: it is made again when needed."""
    with contextlib.suppress(CodecError, NotFoundError):
        return store.packets.read_importance(namespace, packet_key)
    return None


def prompt_importance(store: Store, loader: PacketLoader, assembled: Assembled) -> torch.Tensor:
    """Return float32 ``[L, H, T]`` over a prompt's slots.

    What no packet's segment or trailer is counts as needed. A packet that was stored without is
    judged now, which takes as long as its prefill.
    """
    import torch

    found = torch.ones(store.layout.shape(assembled.cache.length)[:3])
    places = [(d, ref) for d in assembled.selected for ref in d.segments]
    for (document, ref), start in zip(places, assembled.plan.packet_starts, strict=True):
        key = ref.packet_key
        shape = store.layout.shape(ref.tokens + store.adapter.trailer_tokens)[:3]
        first = start + store.adapter.header_slots
        place = (assembled.query.namespace, key, document.id, document.tokens.get(key))
        found[:, :, first : first + shape[2]] = _of_packet(store, loader, place, shape)
    return found.to(store.model.device)


def _of_packet(
    store: Store,
    loader: PacketLoader,
    place: tuple[str, str, str, TokenIds | None],
    shape: tuple[int, int, int],
) -> torch.Tensor:
    """Return one packet's scores: those filed with it, or else made now."""
    from kvpacket_store.compress import importance_from

    namespace, key, _, _ = place
    data = stored_importance(store, namespace, key)
    if data is not None:
        with contextlib.suppress(CodecError):
            return importance_from(data, shape)
    loaded = loader.body(*place)
    return importance_from(_computed(store, loaded.body, loaded.token_ids), shape)


def packet_prompt(store: Store, loader: PacketLoader, namespace: str, key: str) -> PromptKV:
    """Return one packet alone as a prompt, with its importance: what a map is fitted to."""
    import torch

    from kvpacket_store.compress import HalfSplitRope, PromptKV

    body = loader.body(namespace, key, "").body
    cache, model = _packet_cache(store, body), store.model
    own = _of_packet(
        store, loader, (namespace, key, "", None), store.layout.shape(body.k.shape[2])[:3]
    )
    first = cache.length - own.shape[2]
    k, v = (rows[:, :, first:] for rows in cache.rows(0, cache.length))
    slots = torch.arange(first, cache.length).expand(k.shape[:3])
    scaling = float(model.attentions[0].scaling)
    rope = HalfSplitRope.of(model)
    return PromptKV(k, v, scaling, rope=rope, importance=own, slots=slots)


def _computed(store: Store, body: BodyKV, token_ids: TokenIds) -> bytes:
    """Judge the slots of a body in its packet; the header's are always kept."""
    from kvpacket_store.compress import importance_bytes, slot_importance

    cache = _packet_cache(store, body)
    scores = slot_importance(store.model, cache, token_ids)
    return importance_bytes(scores[:, :, cache.length - body.k.shape[2] :])


def _packet_cache(store: Store, body: BodyKV) -> SlotCache:
    """Return header and body in slots from 0: what the body saw when it was prefilled."""
    from kvpacket_store.assemble import place

    header = store.prefiller.prefilled_header()
    header_tokens, positions = header.k.shape[2], body.k.shape[2]
    cache = store.model.new_cache(header_tokens + positions)
    for part, start in ((header, 0), (body, header_tokens)):
        place(store.model, cache, part.k, part.v, kv_dtype=store.kv_dtype, start=start)
    cache.set_length(header_tokens + positions)
    return cache
