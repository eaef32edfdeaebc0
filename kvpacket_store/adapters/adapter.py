"""Header and trailer as a value with a digest. Knows no model and no framework."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kvpacket_store.adapters.correction import Correction
from kvpacket_store.errors import AdapterError

__all__ = ["NO_ADAPTER_DIGEST", "Adapter", "answers_digest"]

NO_ADAPTER_DIGEST = "none"


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """Soft tokens before and after every segment, in the model's input-embedding space.

    Parameters
    ----------
    name : str
        How people call it; not part of any identity.
    header, trailer : float32 ``[n, hidden]``
        n may be 0. Kept in fp32: bf16 spacing near 0.01 is 6e-5, which loses late training steps.
    header_stays : bool
        False: the header stands before a segment while that is prefilled, and is left behind. It
        takes no slot of a prompt, and no attention in a request.
    correction : Correction, optional
        Of packets behind others, where they are placed; packets do not depend on it.

    Raises
    ------
    AdapterError
        Another rank or dtype, two hidden sizes, or numbers that are not finite.

    Examples
    --------
    >>> a = Adapter("demo", np.zeros((2, 4), np.float32), np.ones((1, 4), np.float32))
    >>> a.header_tokens, a.trailer_tokens, len(a.digest)
    (2, 1, 64)
    >>> Adapter.none(4).digest
    'none'
    """

    name: str
    header: npt.NDArray[np.float32]
    trailer: npt.NDArray[np.float32]
    header_stays: bool = True
    correction: Correction | None = None

    def __post_init__(self) -> None:
        for part, array in (("header", self.header), ("trailer", self.trailer)):
            if array.ndim != 2 or array.dtype != np.float32:
                raise AdapterError(
                    f"adapter {self.name!r}: {part} is {array.dtype}{list(array.shape)}, "
                    "float32 [tokens, hidden] is needed"
                )
            if not np.isfinite(array).all():
                raise AdapterError(f"adapter {self.name!r}: {part} has numbers that are not finite")
            array.setflags(write=False)
        if self.header.shape[1] != self.trailer.shape[1]:
            raise AdapterError(f"adapter {self.name!r}: header and trailer differ in hidden size")

    @classmethod
    def none(cls, hidden_size: int) -> Adapter:
        """Return the adapter of no soft tokens."""
        empty = np.zeros((0, hidden_size), np.float32)
        return cls("none", empty, empty.copy())

    @classmethod
    def untrained(
        cls, embeddings: npt.NDArray[Any], *, num_tokens: int = 8, seed: int = 0
    ) -> Adapter:
        """Return random soft tokens with the mean and spread of an embedding table ``[V, hidden]``.

        Where training starts; as it is, it helps nobody's answers.
        """
        table = embeddings.astype(np.float32)
        random = np.random.default_rng(seed)
        shape = (2, num_tokens, table.shape[1])
        drawn = random.normal(float(table.mean()), float(table.std()), shape).astype(np.float32)
        return cls("untrained", drawn[0], drawn[1].copy())

    @property
    def header_tokens(self) -> int:
        """Soft tokens before a segment."""
        return int(self.header.shape[0])

    @property
    def header_slots(self) -> int:
        """Slots that the header takes before each segment of a prompt."""
        return self.header_tokens if self.header_stays else 0

    @property
    def trailer_tokens(self) -> int:
        """Soft tokens after a segment."""
        return int(self.trailer.shape[0])

    @property
    def hidden_size(self) -> int:
        """Width of the model's embeddings."""
        return int(self.header.shape[1])

    @property
    def is_none(self) -> bool:
        """Whether there are no soft tokens at all, and no correction."""
        return self.correction is None and not self._has_tokens

    @property
    def _has_tokens(self) -> bool:
        return self.header_tokens > 0 or self.trailer_tokens > 0

    @property
    def digest(self) -> str:
        """Hex SHA-256 of all that decides answers; ``"none"`` without soft tokens or correction."""
        return answers_digest(self.prefill_digest, self.correction_digest)

    @property
    def correction_digest(self) -> str | None:
        """Hex SHA-256 of the correction; None without one."""
        return None if self.correction is None else self.correction.digest

    @property
    def prefill_digest(self) -> str:
        """Hex SHA-256 of what packets depend on: shapes, values and what stays."""
        if not self._has_tokens:
            return NO_ADAPTER_DIGEST
        digest = hashlib.sha256(b"kvpacket-adapter-1")
        for array in (self.header, self.trailer):
            digest.update(np.array(array.shape, "<u8").tobytes())
            digest.update(np.ascontiguousarray(array, "<f4").tobytes())
        if self.header_slots < self.header_tokens:
            digest.update(b"header left behind")
        return digest.hexdigest()


def answers_digest(prefill_digest: str, correction_digest: str | None) -> str:
    """Return the digest of an adapter by those of its two parts.

    Examples
    --------
    >>> answers_digest("none", None)
    'none'
    """
    if correction_digest is None:
        return prefill_digest
    return hashlib.sha256(f"{prefill_digest}|{correction_digest}".encode()).hexdigest()
