"""Are the packets of a store still this engine's? A check a field, so that the culprit is named."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from kvpacket_store.api.adapter_choice import kept_adapter
from kvpacket_store.api.findings import Check
from kvpacket_store.api.identity import PACKET_FIELDS, differing_fields
from kvpacket_store.codec import info
from kvpacket_store.errors import CodecError, KVPacketError, ModelError
from kvpacket_store.store import PacketManifest

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.models import Model
    from kvpacket_store.prefill import Prefiller

__all__ = ["check_equipment", "check_fingerprint", "check_packets"]

_SAMPLED_PACKETS = 256
_SAMPLED_RECORDS = 16
_NEW_STORE = "`kvps init` a new store and ingest into it"
_REMEDIES = {
    "weights": f"put the original weights back, or {_NEW_STORE}",
    "tokenizer": f"put the original tokenizer back, or {_NEW_STORE}",
    "config": f"put the original config.json and version of transformers back, or {_NEW_STORE}",
    "rope": f"put the original RoPE settings back, or {_NEW_STORE}",
}


def check_equipment(store: Store) -> Iterator[Check]:
    """Check what the store was made with besides its model: recipe, adapter, embedder."""
    yield _recipe(store)
    yield _adapter(store)
    yield _embedder(store)


def check_fingerprint(store: Store, model: Model) -> Iterator[Check]:
    """Check the model field by field."""
    stored, now = store.meta.fingerprint, model.fingerprint.to_dict()
    differing = differing_fields(model.fingerprint, stored)
    for name in PACKET_FIELDS:
        if name in differing:
            was = str(stored.get(name, "unknown"))
            detail = f"{now[name][:12]} here, {was[:12]} in the store: {_misses(store)}"
            yield Check(name, "error", False, detail, _REMEDIES[name], exit_code=5)
        else:
            yield Check(name, "info", ok=True, detail=now[name][:12])
    yield _chat_template(now["chat_template"], stored.get("chat_template"))


def check_packets(store: Store, prefiller: Prefiller) -> Iterator[Check]:
    """Check of a sample that its keys and records are those that this engine would make."""
    try:
        sample = list(islice(store.packets.iter_packets(), _SAMPLED_PACKETS))
    except CodecError as error:
        yield Check("packet keys", "warning", False, str(error), "`kvps verify --repair`")
        return
    foreign = sum(prefiller.segment_key(m.token_ids) != m.packet_key for m in sample)
    detail = f"{foreign} of {len(sample)} packets looked at are of another identity"
    if foreign:
        remedy = f"ingest the documents again, or {_NEW_STORE}"
        yield Check("packet keys", "error", False, f"{detail}: misses", remedy, exit_code=5)
    else:
        yield Check("packet keys", "info", ok=True, detail=detail)
    yield _kv_dtype(store, sample[:_SAMPLED_RECORDS])


def _misses(store: Store) -> str:
    sizes = store.packets.stats()
    count = sizes.packets + sizes.evicted_packets
    return f"all {count} packets are misses" if count else "no packet is affected"


def _recipe(store: Store) -> Check:
    from kvpacket_store import prefill

    if store.meta.recipe == prefill.PREFILL_RECIPE:
        return Check("recipe", "info", ok=True, detail=store.meta.recipe)
    detail = f"{prefill.PREFILL_RECIPE} here, {store.meta.recipe} in the store: {_misses(store)}"
    remedy = f"use the version of kvpacket-store that made it, or {_NEW_STORE}"
    return Check("recipe", "error", False, detail, remedy, exit_code=5)


def _adapter(store: Store) -> Check:
    meta = store.meta
    try:
        kept_adapter(store.path, meta, hidden_size=1)
    except ModelError as error:
        detail = f"{error}: {_misses(store)}"
        remedy = f"put the original adapter file back, or {_NEW_STORE}"
        return Check("adapter", "error", False, detail, remedy, error.exit_code)
    return Check("adapter", "info", ok=True, detail=meta.adapter or "none")


def _embedder(store: Store) -> Check:
    from kvpacket_store import retrieve

    try:
        embedder = retrieve.MiniLMEmbedder()
        is_same = embedder.digest == store.meta.embedder
    except ModelError as error:
        return Check("embedder", "warning", False, str(error), "see the message")
    if is_same:
        return Check("embedder", "info", ok=True, detail=embedder.name)
    detail = (
        f"{embedder.name} is not what embedded the store's segments: no packet is affected, but "
        f"nothing of {store.packets.count()} documents is retrieved with it"
    )
    remedy = f"pass the original embedder (`Store.open(…, embedder=…)`), or {_NEW_STORE}"
    return Check("embedder", "warning", False, detail, remedy)


def _chat_template(now: str, stored: str | None) -> Check:
    if now == stored:
        return Check("chat_template", "info", ok=True, detail=now[:12])
    detail = "not the store's: questions are put in other words, packets stay valid"
    return Check("chat_template", "warning", False, detail, "nothing, if that is meant")


def _kv_dtype(store: Store, sample: list[PacketManifest]) -> Check:
    """Check that records hold what the store says, by their own heads."""
    expected = store.kv_dtype
    found = {dtype for manifest in sample if (dtype := _record_dtype(store, manifest)) is not None}
    if found - {expected}:
        names = ", ".join(sorted(found - {expected}))
        detail = f"records hold {names}, the store says {expected}: {_misses(store)}"
        return Check("kv_dtype", "error", False, detail, _NEW_STORE, exit_code=5)
    return Check("kv_dtype", "info", ok=True, detail=str(expected))


def _record_dtype(store: Store, manifest: PacketManifest) -> str | None:
    try:
        record = store.packets.read_record(manifest.namespace or "", manifest.packet_key)
        return info(record).kv_dtype
    except KVPacketError:
        return None  # damage is for the check of the structure
