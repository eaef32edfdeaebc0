"""Which model the commands on adapters load."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvpacket_store.models import Model

__all__ = ["load_for"]


def load_for(name: str | None, store: str | None, dtype: str = "auto") -> Model:
    """Load the model of that name, else the store's, else smollm2."""
    from kvpacket_store import models

    if name is None:
        name = "smollm2" if store is None else _stores_model(store)
    if dtype == "auto":
        return models.load_model(name)
    import torch

    wanted = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    return models.load_model(name, compute=wanted)


def _stores_model(store: str) -> str:
    from kvpacket_store.store import PacketStore

    with PacketStore.open(store, read_only=True) as packets:
        return packets.meta.model
