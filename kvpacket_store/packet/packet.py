"""The packet itself: immutable arrays beside what they are the K and V of."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from kvpacket_store.errors import UsageError
from kvpacket_store.types import BitArray, KVDtype, TokenIds

__all__ = ["Packet"]

_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, eq=False)
class Packet:
    """K and V of ``[header | segment | trailer]``, prefilled alone from position 0.

    The packet takes the arrays over and makes them read-only. Two packets are the same where their
    keys are; compare ``k`` and ``v`` for equal bits.

    Parameters
    ----------
    key : str
        The packet key: 64 hex characters.
    token_ids : tuple of int
        The segment's own, without soft tokens.
    k, v : uint8, uint16 or uint32 [L, H, T, D]
        Bit patterns in ``kv_dtype``; ``k`` before RoPE.
    kv_dtype : KVDtype
        What the bit patterns mean.
    header_tokens, trailer_tokens : int
        Soft tokens before and after the segment; no header where it was left behind.

    Raises
    ------
    UsageError
        Shapes, dtypes and token counts do not fit together.

    Examples
    --------
    >>> k = np.zeros((2, 1, 3, 4), np.uint16)
    >>> packet = Packet("0" * 64, (5, 6, 7), k, k.copy(), KVDtype.BF16)
    >>> packet.num_positions, packet.k.flags.writeable
    (3, False)
    """

    key: str
    token_ids: TokenIds
    k: BitArray = field(repr=False)
    v: BitArray = field(repr=False)
    kv_dtype: KVDtype
    header_tokens: int = 0
    trailer_tokens: int = 0

    def __post_init__(self) -> None:
        _require_key(self.key)
        object.__setattr__(self, "token_ids", tuple(self.token_ids))
        object.__setattr__(self, "kv_dtype", self._known_dtype())
        self._require_bits("k", self.k)
        self._require_bits("v", self.v)
        if self.k.shape != self.v.shape:
            raise self._refused(
                f"k is {self.k.shape} and v is {self.v.shape}; shapes must be equal"
            )
        self._require_positions()
        for array in (self.k, self.v):
            array.flags.writeable = False

    @property
    def num_positions(self) -> int:
        """T: header, segment and trailer together."""
        return int(self.k.shape[2])

    def _known_dtype(self) -> KVDtype:
        try:
            return KVDtype(self.kv_dtype)
        except ValueError:
            known = ", ".join(KVDtype)
            raise self._refused(f"no KV dtype {self.kv_dtype!r:.80}; pass one of {known}") from None

    def _require_bits(self, name: str, array: object) -> None:
        wanted = self.kv_dtype.bits_dtype
        if not isinstance(array, np.ndarray) or array.ndim != 4 or array.dtype != wanted:
            raise self._refused(f"{name} must be a {wanted.name} array [L, H, T, D]")

    def _require_positions(self) -> None:
        if min(self.header_tokens, self.trailer_tokens) < 0:
            raise self._refused("header_tokens and trailer_tokens must not be negative")
        expected = self.header_tokens + len(self.token_ids) + self.trailer_tokens
        if expected != self.num_positions:
            raise self._refused(
                f"k and v have {self.num_positions} positions; header, segment, trailer {expected}"
            )

    def _refused(self, reason: str) -> UsageError:
        return UsageError(f"packet {self.key[:12]}: {reason}")


def _require_key(key: object) -> None:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise UsageError(f"packet key {key!r:.80} is not 64 lower-case hex characters")
