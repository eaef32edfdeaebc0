"""Values that every room shares. No framework is imported here.

16-bit floats travel as ``uint16`` bit patterns, 8-bit ones as ``uint8``, fp32 as ``uint32``: equal
arrays then mean equal bits, NaN payloads and −0 included.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "BitArray",
    "Document",
    "KVDtype",
    "KVLayout",
    "LayerLayout",
    "ModelFingerprint",
    "Report",
    "RopeSpec",
    "Segment",
    "Text",
    "TokenIds",
]

TokenIds: TypeAlias = tuple[int, ...]
BitArray: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]


class KVDtype(enum.StrEnum):
    """The float format that K and V are held in."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"

    @property
    def itemsize_bytes(self) -> int:
        """Bytes a scalar.

        Examples
        --------
        >>> KVDtype.BF16.itemsize_bytes
        2
        """
        return {"bf16": 2, "fp16": 2, "fp32": 4, "fp8_e4m3": 1, "fp8_e5m2": 1}[self.value]

    @property
    def bits_dtype(self) -> np.dtype[Any]:
        """The unsigned integer dtype that carries the bit patterns, little-endian."""
        return np.dtype({1: "|u1", 2: "<u2", 4: "<u4"}[self.itemsize_bytes])


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """One rotary embedding of a model, described so that a change of any field is another identity.

    Parameters
    ----------
    name : str
        Which of the model's embeddings this is: ``"full_attention"``, ``"sliding_attention"``.
    rope_type : str
        ``default``, ``linear``, ``llama3`` or ``yarn``.
    parameters : mapping of str to float, int, str or list
        As the model's configuration has them (base, factors, ...).
    rotary_dim : int
        How many of a head's dimensions are rotated.
    """

    name: str
    rope_type: str
    parameters: Mapping[str, Any]
    rotary_dim: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "parameters": dict(self.parameters)}


@dataclass(frozen=True, slots=True)
class LayerLayout:
    """What one layer keeps in its cache."""

    rope: str
    sliding_window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class KVLayout:
    """The shape of a model's K and V: ``[L, H, T, D]`` for T tokens."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    layers: tuple[LayerLayout, ...]

    def shape(self, num_tokens: int) -> tuple[int, int, int, int]:
        """Return ``(L, H, T, D)`` for ``num_tokens``."""
        return (self.num_layers, self.num_kv_heads, num_tokens, self.head_dim)

    def bytes_per_token(self, kv_dtype: KVDtype) -> int:
        """Return raw bytes of K and V together for one token.

        Examples
        --------
        >>> layers = tuple(LayerLayout("full_attention") for _ in range(30))
        >>> KVLayout(30, 3, 64, layers).bytes_per_token(KVDtype.BF16)
        23040
        """
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * kv_dtype.itemsize_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ModelFingerprint:
    """What a model is, for the purpose of reusing its K and V. Hex SHA-256 digests.

    ``chat_template`` is part of an engine's fingerprint, not of a packet's identity: packets hold
    no preamble.
    """

    weights: str
    tokenizer: str
    config: str
    rope: str
    chat_template: str

    def to_dict(self) -> dict[str, str]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Document:
    """A source text as the caller hands it in.

    Parameters
    ----------
    id : str
        The caller's name for it: data, never a path. Not part of any packet's identity.
    text : str
        Plain text. Control tokens in it stay text.
    metadata : mapping
        JSON values. ``title`` (str), where given, is put before every segment of the document;
        ``media_type`` (str) chooses the cuts: ``text/plain``, ``text/markdown``, ``text/x-python``.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Text:
    """A text that comes with a question and has no id: its packets are found by its content.

    Parameters
    ----------
    text : str
        A document's, or one segment's. Control tokens in it stay text.
    metadata : mapping
        As a `Document` has it.
    """

    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Segment:
    """The span of a document that is prefilled as one packet.

    Parameters
    ----------
    token_ids : tuple of int
        Title, text and closing newline, tokenized alone: no BOS, no control tokens.
    text : str
        The same as a string; this is what retrieval embeds.
    start_char, end_char : int
        The span in the document's text, without the title.
    """

    token_ids: TokenIds
    text: str
    start_char: int
    end_char: int


class Report:
    """Mix-in: a dataclass whose fields are also its JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values, in the order of the contract."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]
