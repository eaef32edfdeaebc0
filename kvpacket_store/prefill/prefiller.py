"""Token ids → K and V of a packet, always computed the same way.

The header is prefilled once per adapter; each body (segment and trailer) runs on top of it, alone,
in its own exact length. No row's bits then depend on what else is ingested: the same engine gives
the same bits again, which is what repair, retries and shared stores rest on. (Padding to common
shapes, or batching bodies, changes bits: measured, docs/adr/0003.)
"""

from __future__ import annotations

import platform
import threading
from dataclasses import dataclass

import torch

from kvpacket_store.adapters import Adapter
from kvpacket_store.errors import AdapterError, ContextOverflowError
from kvpacket_store.models import Model, tensor_to_bits
from kvpacket_store.packet import PACKET_FORMAT_VERSION, PacketIdentity, packet_key
from kvpacket_store.types import BitArray, KVDtype, TokenIds

__all__ = ["PREFILL_RECIPE", "BodyKV", "Prefiller"]

PREFILL_RECIPE = "alone-1"


@dataclass(frozen=True, slots=True)
class BodyKV:
    """K (before RoPE) and V ``[L, H, n, D]`` as bits; n = segment + trailer tokens, or header."""

    k: BitArray
    v: BitArray

    @property
    def nbytes(self) -> int:
        """Bytes of K and V together."""
        return self.k.nbytes + self.v.nbytes


class Prefiller:
    """Prefills packets for one model, adapter and KV dtype.

    Parameters
    ----------
    model : Model
        Computes.
    adapter : Adapter
        Soft tokens around every segment.
    kv_dtype : KVDtype, optional
        What packets hold; default the model's own. Another one rounds, once, here.

    Raises
    ------
    AdapterError
        The adapter's hidden size is not the model's.
    """

    def __init__(self, model: Model, adapter: Adapter, kv_dtype: KVDtype | None = None) -> None:
        width = int(model.embedding.weight.shape[1])
        if adapter.hidden_size != width:
            raise AdapterError(
                f"adapter {adapter.name!r} has hidden size {adapter.hidden_size}, "
                f"model {model.name!r} has {width}; use an adapter trained for this model"
            )
        self.model = model
        self.adapter = adapter
        self.kv_dtype = kv_dtype or model.kv_dtype
        self._header_lock = threading.Lock()
        self._header: tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def engine(self) -> str:
        """What computes, in words; on another engine the bits may differ."""
        model = self.model
        dtypes = str(model.dtype)
        if model.slot_dtype != model.dtype:
            dtypes += f" attention {model.slot_dtype}"
        return (
            f"torch {torch.__version__} {model.device.type} {platform.machine()} {dtypes} "
            f"{torch.get_num_threads()} threads"
        )

    def identity(self, role: str, token_ids: TokenIds) -> PacketIdentity:
        """Return the identity of a segment's packet, the header's or the preamble's."""
        fingerprint = self.model.fingerprint
        return PacketIdentity(
            format_version=PACKET_FORMAT_VERSION,
            weights=fingerprint.weights,
            tokenizer=fingerprint.tokenizer,
            config=fingerprint.config,
            rope=fingerprint.rope,
            kv_dtype=self.kv_dtype,
            # No soft token is in the preamble: it is the same under every adapter.
            adapter="none" if role == "preamble" else self.adapter.prefill_digest,
            recipe=PREFILL_RECIPE,
            role=role,
            token_ids=token_ids,
        )

    def segment_key(self, token_ids: TokenIds) -> str:
        """Return the packet key of a segment."""
        return packet_key(self.identity("segment", token_ids))

    def header(self) -> BodyKV:
        """Return K and V of the header as prompts hold it (n = 0 where none stays)."""
        k, v = self._header_tensors()
        slots = self.adapter.header_slots
        return self._bits(k[:, :, :slots], v[:, :, :slots])

    def prefilled_header(self) -> BodyKV:
        """Return K and V of the header that segments are prefilled behind, even if it is left."""
        return self._bits(*self._header_tensors())

    def segment(self, token_ids: TokenIds) -> BodyKV:
        """Prefill ``[segment | trailer]`` on top of the header.

        Raises
        ------
        ContextOverflowError
            Header, segment and trailer need more positions than the model has.
        """
        header_tokens, trailer_tokens = self.adapter.header_tokens, self.adapter.trailer_tokens
        num_slots = header_tokens + len(token_ids) + trailer_tokens
        if num_slots > self.model.max_positions:
            raise ContextOverflowError(
                f"a segment of {len(token_ids)} tokens and its adapter need {num_slots} positions, "
                f"model {self.model.name!r} has {self.model.max_positions}; use shorter segments"
            )
        body = self.model.embed(token_ids)
        if trailer_tokens:
            body = torch.cat([body, self._soft(self.adapter.trailer)])
        cache = self.model.new_cache(num_slots)
        if header_tokens:
            k, v = self._header_tensors()
            positions = torch.arange(header_tokens, device=self.model.device)
            cache.k_slots[:, :, :header_tokens] = self.model.rotate_keys(k, positions)
            cache.v_slots[:, :, :header_tokens] = v
            cache.set_length(header_tokens)
        return self._bits(*self.model.capture(body, cache))

    def preamble(self, token_ids: TokenIds) -> BodyKV:
        """Prefill the preamble: from position 0, with nothing around it."""
        cache = self.model.new_cache(len(token_ids))
        return self._bits(*self.model.capture(self.model.embed(token_ids), cache))

    def _soft(self, tokens: object) -> torch.Tensor:
        return torch.tensor(tokens, dtype=self.model.dtype, device=self.model.device)

    def _header_tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        with self._header_lock:
            if self._header is None:
                num_tokens = self.adapter.header_tokens
                if num_tokens:
                    soft = self._soft(self.adapter.header)
                    self._header = self.model.capture(soft, self.model.new_cache(num_tokens))
                else:
                    empty = self.model.new_cache(0).k_slots
                    self._header = (empty, empty)
            return self._header

    def _bits(self, k: torch.Tensor, v: torch.Tensor) -> BodyKV:
        return BodyKV(tensor_to_bits(k, self.kv_dtype), tensor_to_bits(v, self.kv_dtype))
