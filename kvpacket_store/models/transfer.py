"""Bits of K and V in host memory → tensors on a model's device, in the background.

On CUDA, rows go through pinned buffers on a stream of their own, beside the drafts that run on the
other one; on a CPU they are where they should be. The CUDA side has not run on a device yet: its
test (marker ``gpu``) waits for one, and how much copying hides behind drafting is unmeasured.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kvpacket_store.models.dtypes import bits_to_tensor
from kvpacket_store.models.slots import SlotCache
from kvpacket_store.models.swap_cache import Arrival
from kvpacket_store.types import BitArray, KVDtype

if TYPE_CHECKING:
    from kvpacket_store.models.model import Model

__all__ = ["PinnedTransfer", "Transfer", "transfer_to"]

_BUFFERS = 4  # K and V of a layer on their way, and of the next while it is decoded


class Transfer:
    """Brings rows to a CPU model: at once.

    Parameters
    ----------
    model : Model
        Whose slots they are for.
    kv_dtype : KVDtype
        Of the bits.

    Examples
    --------
    ::

        transfer = transfer_to(model, kv_dtype)
        transfer.begin(cache)  # the thread that made the slots
        with transfer.running():  # the thread that fills them
            place_layer(transfer, cache, 0, k, v, start=0)
            cache.layer_is_here(0, transfer.sent())
    """

    def __init__(self, model: Model, kv_dtype: KVDtype) -> None:
        self.model, self.kv_dtype = model, kv_dtype

    def begin(self, cache: SlotCache) -> None:
        """Hear which slots are written to from here on; called by the thread that made them."""

    def running(self) -> AbstractContextManager[object]:
        """Let what this thread runs on the device run beside the others'."""
        return nullcontext()

    def rows(self, bits: BitArray) -> torch.Tensor:
        """Return bits as the model computes with them, same shape; they are read before it returns.

        On a CPU the tensor may share their memory.
        """
        host = bits_to_tensor(bits, self.kv_dtype)
        return self._to_device(host).to(self.model.dtype)

    def sent(self) -> Arrival | None:
        """Return what stands for all that was run so far; None where it is done already."""
        return None

    def _to_device(self, host: torch.Tensor) -> torch.Tensor:
        return host.to(self.model.device)


class PinnedTransfer(Transfer):
    """Brings rows to a CUDA device through pinned buffers, on a stream of its own.

    A buffer is written to again once its copy has left it. Dtype, rotation and the writing of slots
    run on that stream too; who reads the slots waits for `sent` first.
    """

    def __init__(self, model: Model, kv_dtype: KVDtype) -> None:
        super().__init__(model, kv_dtype)
        self._stream = torch.cuda.Stream(model.device)  # type: ignore[no-untyped-call]
        self._buffers = [_Pinned() for _ in range(_BUFFERS)]
        self._next = 0

    def begin(self, cache: SlotCache) -> None:
        """See `Transfer`.

        The memory may still be read by what was queued before it was freed; and it must not be
        given to others while this stream writes to it.
        """
        self._stream.wait_stream(torch.cuda.current_stream(self.model.device))
        for slots in (cache.k_slots, cache.v_slots):
            slots.record_stream(self._stream)

    def running(self) -> AbstractContextManager[object]:
        """See `Transfer`."""
        return torch.cuda.stream(self._stream)

    def sent(self) -> Arrival:
        """See `Transfer`."""
        return _Sent(self._stream.record_event(), self.model.device)

    def _to_device(self, host: torch.Tensor) -> torch.Tensor:
        buffer = self._buffers[self._next]
        self._next = (self._next + 1) % _BUFFERS
        return buffer.copied(host, self.model.device)


@dataclass(frozen=True, slots=True)
class _Sent:
    """All that was queued on a stream up to an event."""

    event: torch.cuda.Event
    device: torch.device

    def wait(self) -> None:
        """See `Arrival`."""
        torch.cuda.current_stream(self.device).wait_event(self.event)


class _Pinned:
    """A page-locked buffer, which a device reads while the host does other things."""

    def __init__(self) -> None:
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._left: torch.cuda.Event | None = None

    def copied(self, host: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Return ``host`` on the device, queued on this thread's stream."""
        if self._left is not None:
            self._left.synchronize()  # the last copy still reads it
        if self._bytes.nbytes < host.nbytes:
            self._bytes = torch.empty(host.nbytes, dtype=torch.uint8, pin_memory=True)
        staged = self._bytes[: host.nbytes]
        staged.copy_(host.contiguous().view(-1).view(torch.uint8))
        on_device = staged.to(device, non_blocking=True)
        self._left = torch.cuda.current_stream(device).record_event()
        return on_device.view(host.dtype).view(host.shape)


def transfer_to(model: Model, kv_dtype: KVDtype) -> Transfer:
    """Return what brings rows to the device of ``model``."""
    if model.device.type == "cuda":
        return PinnedTransfer(model, kv_dtype)
    return Transfer(model, kv_dtype)
