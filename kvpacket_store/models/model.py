"""The one seam to Hugging Face models: forward, capture, rotate, describe."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from kvpacket_store.errors import UnsupportedModelError
from kvpacket_store.models.attention import ATTENTION_NAME, register_attention
from kvpacket_store.models.capture import capturing
from kvpacket_store.models.describe import fingerprint_of, layout_of
from kvpacket_store.models.dtypes import kv_dtype_of
from kvpacket_store.models.families import family_of
from kvpacket_store.models.rotary import Rotary, layer_types_of, rotaries_of
from kvpacket_store.models.rows import RowForward, RowWork, is_hooked, suits_row_kernels
from kvpacket_store.models.slots import SlotCache
from kvpacket_store.models.swap_cache import SwapCache
from kvpacket_store.models.tokenizer import HFTokenizer
from kvpacket_store.types import KVDtype, KVLayout, ModelFingerprint, TokenIds

__all__ = ["Model"]


class Model:
    """A causal language model and its tokenizer, as the rest of the house sees them.

    Parameters
    ----------
    name : str
        Preset, folder or hub name that it was loaded by.
    hf : transformers.PreTrainedModel
        In eval mode, on its device.
    tokenizer : HFTokenizer
        The model's.
    own_dtypes : mapping, optional
        The parameters' dtypes as stored, where the model computes in another one here.

    Raises
    ------
    UnsupportedModelError
        The architecture, or what its code does, is not among the supported; names the reason.
    """

    def __init__(
        self,
        name: str,
        hf: Any,
        tokenizer: HFTokenizer,
        *,
        own_dtypes: Mapping[str, torch.dtype] | None = None,
    ) -> None:
        register_attention()
        self._own_dtypes = own_dtypes or {n: p.dtype for n, p in hf.named_parameters()}
        self.name = name
        self.hf = hf.eval()
        self.tokenizer = tokenizer
        self.config = hf.config
        self.family = family_of(self.config)
        self.layout: KVLayout = layout_of(self.config)
        hf.set_attn_implementation(ATTENTION_NAME)
        self._decoder = hf.get_decoder()
        self.attentions = [layer.self_attn for layer in self._decoder.layers]
        self.rotaries: dict[str, Rotary] = rotaries_of(
            self._decoder, self.config, self.attentions[0]
        )
        self.layer_types = layer_types_of(self.config)
        # Taps hang on modules that all threads share: one forward at a time.
        self._forwarding = threading.RLock()

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.embedding.weight.device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        """What the model computes in."""
        return self.embedding.weight.dtype  # type: ignore[no-any-return]

    @cached_property
    def slot_dtype(self) -> torch.dtype:
        """What caches hold: fp32 where row kernels can run, which read and write nothing else."""
        return torch.float32 if suits_row_kernels(self) else self.dtype

    @property
    def kv_dtype(self) -> KVDtype:
        """The KV dtype of the model as stored; it may compute in a wider one here."""
        return kv_dtype_of(next(iter(self._own_dtypes.values())))

    @property
    def stored_itemsize(self) -> int:
        """Bytes of a weight as stored, which is what a decoding step reads."""
        return next(iter(self._own_dtypes.values())).itemsize

    @property
    def embedding(self) -> Any:
        """The input embedding module; its output is what adapters are made of."""
        return self.hf.get_input_embeddings()

    @property
    def max_positions(self) -> int:
        """Longest sequence that the model was made for, in tokens."""
        return int(self.config.max_position_embeddings)

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Token ids that end an answer."""
        own = getattr(self.hf.generation_config, "eos_token_id", None)
        ids = own if isinstance(own, list) else [own]
        return frozenset(int(i) for i in ids if i is not None) | self.tokenizer.eos_ids

    @cached_property
    def fingerprint(self) -> ModelFingerprint:
        """What the model is; hashed once (0.3 s for 270 MB of weights)."""
        return fingerprint_of(
            self.hf,
            self._own_dtypes,
            self.config,
            {name: rotary.spec for name, rotary in self.rotaries.items()},
            tokenizer_digest=self.tokenizer.digest,
            chat_template=self.tokenizer.hf.chat_template,
        )

    def new_cache(self, num_slots: int) -> SlotCache:
        """Return an empty cache of ``num_slots`` rows."""
        return SlotCache(self.layout.shape(num_slots), self.slot_dtype, self.device)

    def cache_bytes(self, num_slots: int) -> int:
        """Return what a cache of so many slots takes."""
        return 2 * math.prod(self.layout.shape(num_slots)) * self.slot_dtype.itemsize

    def new_swap_cache(self, num_slots: int, *, kept_from: int) -> SwapCache:
        """Return a cache without memory; slots from ``kept_from`` on are never dropped."""
        shape = self.layout.shape(num_slots)
        return SwapCache(shape, self.slot_dtype, self.device, kept_from=kept_from)

    @torch.inference_mode()
    def embed(self, token_ids: TokenIds) -> torch.Tensor:
        """Return input embeddings ``[n, hidden]`` as the model's first layer gets them."""
        ids = torch.tensor([token_ids], dtype=torch.long, device=self.device)
        embedded: torch.Tensor = self.embedding(ids)[0]
        return embedded

    @torch.inference_mode()
    def forward(
        self,
        inputs: TokenIds | torch.Tensor,
        cache: SlotCache,
        *,
        keep_logits: int = 1,
        block_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Append rows to ``cache``; return the logits ``[keep_logits, vocab]`` of the last ones.

        Parameters
        ----------
        inputs : token ids, or embeddings ``[n, hidden]``
            Placed at the positions that follow the filled slots.
        cache : SlotCache
            Grows by n rows.
        keep_logits : int
            How many of the last rows' logits to compute.
        block_mask : bool ``[Q, T]``, optional
            Who sees whom, where it is not causal over everything.
        """
        named: dict[str, Any]
        if isinstance(inputs, torch.Tensor):
            named = {"inputs_embeds": inputs[None]}
        else:
            named = {"input_ids": torch.tensor([inputs], dtype=torch.long, device=self.device)}
        if block_mask is not None:
            named["attention_mask"] = block_mask[None, None]
        with self._forwarding:
            output = self.hf(
                cache=cache, use_cache=True, logits_to_keep=max(keep_logits, 1), **named
            )
        logits: torch.Tensor = output.logits[0]
        return logits[logits.shape[0] - keep_logits :]

    def row_forward(self) -> Callable[[Sequence[RowWork]], list[torch.Tensor]]:
        """Return what runs a few rows of several requests: a list of works → each one's logits.

        Where `rows_are_alike`, all share one pass over the weights, and a row gets the bits that it
        would get alone. Elsewhere works run one after another, as `forward` runs them.
        """
        if not self.rows_are_alike:
            return lambda works: [self._run_alone(work) for work in works]
        together = RowForward(self)

        def run(works: Sequence[RowWork]) -> list[torch.Tensor]:
            shared: Iterator[torch.Tensor] = iter(())
            if rows := [work for work in works if not work.is_prompt]:
                with self._forwarding:
                    shared = iter(together.run(rows))
            return [self._run_alone(w) if w.is_prompt else next(shared) for w in works]

        return run

    def take_turns_with(self, other: Model) -> None:
        """Let one of the two run at a time, whoever's thread asks. Before either runs.

        Where numba finds neither OpenMP nor TBB, kernels of two threads at once end the process.
        """
        with self._forwarding, other._forwarding:
            self._forwarding = other._forwarding

    @property
    def rows_are_alike(self) -> bool:
        """Whether a row's bits do not depend on the rows that share its forward."""
        with self._forwarding:  # taps of a prefill on another thread are none of the model's
            return suits_row_kernels(self) and not is_hooked(self)

    def row_step(self, cache: SlotCache) -> Callable[[int], torch.Tensor]:
        """Return what appends one token to ``cache`` and gives the next logits ``[vocab]``."""
        run = self.row_forward()
        return lambda token_id: run((RowWork(cache, (token_id,)),))[0][0]

    def _run_alone(self, work: RowWork) -> torch.Tensor:
        return self.forward(tuple(work.token_ids), work.cache, keep_logits=work.keep_logits)

    @torch.inference_mode()
    def capture(
        self, inputs: TokenIds | torch.Tensor, cache: SlotCache
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append rows to ``cache``; return their K before RoPE and V, ``[L, H, n, D]`` each."""
        named: dict[str, Any]
        if isinstance(inputs, torch.Tensor):
            named = {"inputs_embeds": inputs[None]}
        else:
            named = {"input_ids": torch.tensor([inputs], dtype=torch.long, device=self.device)}
        with self._forwarding, capturing(self.attentions, self.family, self.layout) as taps:
            self._decoder(cache=cache, use_cache=True, **named)
        return taps.stacked()

    @torch.inference_mode()
    def run_layers(
        self, token_ids: TokenIds, cache: SlotCache, *, position_ids: torch.Tensor | None = None
    ) -> None:
        """Run rows through all layers, and no head; ``position_ids`` int64 ``[1, n]`` if given."""
        ids = torch.tensor([token_ids], dtype=torch.long, device=self.device)
        with self._forwarding:
            self._decoder(input_ids=ids, position_ids=position_ids, cache=cache, use_cache=True)

    @torch.inference_mode()
    def rotate_keys(self, k: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotate keys ``[L, H, T, D]`` (before RoPE) to ``positions`` int64 ``[T]``.

        Bit for bit the keys that the model computes there: same function, same dtype.
        """
        out = torch.empty_like(k)
        for name, rotary in self.rotaries.items():
            layers = [i for i, kind in enumerate(self.layer_types) if kind == name]
            cos, sin = rotary.cos_sin(positions, k)
            if len(layers) == self.layout.num_layers:
                return rotary.rotate(k, cos, sin)
            out[layers] = rotary.rotate(k[layers], cos, sin)
        return out

    @torch.inference_mode()
    def rotate_layer(self, k: torch.Tensor, positions: torch.Tensor, layer: int) -> torch.Tensor:
        """Rotate one layer's keys ``[H, T, D]``: the bits that `rotate_keys` gives that layer."""
        rotary = self.rotaries[self.layer_types[layer]]
        cos, sin = rotary.cos_sin(positions, k)
        return rotary.rotate(k[None], cos, sin)[0]

    def check_taps(self) -> None:
        """Prove on a few tokens that captured keys, rotated, are the model's own keys.

        Raises
        ------
        UnsupportedModelError
            They are not, bit for bit: the installed model code differs from the family's.
        """
        cache = self.new_cache(7)
        vocabulary = int(self.embedding.weight.shape[0])
        probe = tuple(i % vocabulary for i in (1, 5, 9, 3, 11, 2, 7))
        k, v = self.capture(probe, cache)
        rotated = self.rotate_keys(k, torch.arange(7, device=self.device))
        slots = (cache.k_slots.to(k.dtype), cache.v_slots.to(v.dtype))  # no bit is lost
        if not (torch.equal(rotated, slots[0]) and torch.equal(v, slots[1])):
            raise UnsupportedModelError(
                f"model {self.name!r} ({self.config.model_type}): keys captured before RoPE do not "
                "give its own keys; its code differs from what this version supports"
            )
