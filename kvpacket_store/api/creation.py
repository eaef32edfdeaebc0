"""What a new store is made for: every choice checked before anything is written."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kvpacket_store.adapters import Adapter
from kvpacket_store.api.adapter_choice import choose_adapter, keep_adapter
from kvpacket_store.api.codec_choice import (
    BaseStep,
    PackNeed,
    choose_base_step,
    choose_layers,
    choose_pack,
)
from kvpacket_store.api.codec_packs import CodecPacks
from kvpacket_store.api.step_costs import find_costs
from kvpacket_store.assemble import Corrector
from kvpacket_store.errors import UsageError
from kvpacket_store.models import Model, load_model
from kvpacket_store.prefill import PREFILL_RECIPE, Prefiller
from kvpacket_store.store import PacketStore, StoreMeta
from kvpacket_store.types import KVDtype

if TYPE_CHECKING:
    from kvpacket_store.codec.linear.pack import CodecPack

__all__ = ["create_packet_store", "load"]


def load(model: str | Model) -> Model:
    """Return the model, loaded if it was named."""
    return load_model(model) if isinstance(model, str) else model


def create_packet_store(
    path: Path,
    model: Model,
    *,
    adapter: str | Adapter | None,
    codec: str,
    layers: int | None,
    codec_pack: CodecPack | str | Path | None,
    base_step: BaseStep | None,
    kv_dtype: str | KVDtype | None,
    max_bytes: int | None,
    packet_ttl_s: int | None,
    segment_tokens: int,
    importance: bool,
    embedder_digest: str,
) -> PacketStore:
    """Check the choices (see ``Store.create``), describe them, and make the folder."""
    num_layers = choose_layers(codec, layers)
    model.check_taps()
    if not 16 <= segment_tokens <= model.max_positions // 2:
        raise UsageError(
            f"segment_tokens is {segment_tokens}; take 16 to {model.max_positions // 2}"
        )
    chosen = choose_adapter(adapter, model)
    prefiller = Prefiller(model, chosen, _dtype(kv_dtype, model))
    Corrector(chosen, model)  # refuses a correction for another model
    need = PackNeed(model.fingerprint.weights, prefiller.kv_dtype, model.layout)
    pack = choose_pack(codec, codec_pack, need)
    digest = None if pack is None else pack.digest
    costs = find_costs(None, digest)
    steps = choose_base_step(base_step, num_layers, model.layout.num_layers, costs)
    meta = StoreMeta(
        model=_durable_name(model.name),
        fingerprint=model.fingerprint.to_dict(),
        layout=model.layout.to_dict(),
        rope=tuple(rotary.spec.to_dict() for rotary in model.rotaries.values()),
        adapter=None if chosen.is_none else chosen.name,
        adapter_digest=chosen.prefill_digest,
        correction_digest=chosen.correction_digest,
        codec=codec,
        layers=num_layers,
        codec_pack=digest,
        base_step=steps,
        kv_dtype=prefiller.kv_dtype.value,
        recipe=PREFILL_RECIPE,
        segment_tokens=segment_tokens,
        importance=importance,
        max_bytes=max_bytes,
        packet_ttl_s=packet_ttl_s,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        embedder=embedder_digest,
    )

    def furnish(folder: Path) -> None:
        keep_adapter(chosen, folder)
        if pack is not None:
            CodecPacks(folder).keep(pack)

    # both are in the folder before the folder is there: no store without what it needs
    return PacketStore.create(path, meta, furnish=furnish)


def _dtype(kv_dtype: str | KVDtype | None, model: Model) -> KVDtype:
    try:
        return KVDtype(kv_dtype) if kv_dtype is not None else model.kv_dtype
    except ValueError:
        raise UsageError(f"kv_dtype is {kv_dtype!r}; it is one of {', '.join(KVDtype)}") from None


def _durable_name(name: str) -> str:
    """Return a folder as an absolute path: the store may be opened from elsewhere."""
    return str(Path(name).resolve()) if os.sep in name and Path(name).is_dir() else name
