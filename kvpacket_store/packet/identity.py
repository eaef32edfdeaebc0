"""Which packet is it? Everything that decides a packet's K and V, hashed into one packet key.

The encoding is normative: ``docs/format.md``, "Packet key". Every field is tagged and carries its
length, so no byte can move from one field into its neighbour and leave the key as it was. A field
that is empty or unknown is an error: a packet of doubtful origin must be a miss, never a hit.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from kvpacket_store.errors import UsageError
from kvpacket_store.types import KVDtype, TokenIds

__all__ = ["NO_ADAPTER", "PACKET_FORMAT_VERSION", "PacketIdentity", "packet_key"]

NO_ADAPTER = "none"
PACKET_FORMAT_VERSION = 1
"""Of what a packet is; a packet of another version is a miss."""

_DOMAIN = b"kvpacket-store packet key 1\n"
_ROLES = ("segment", "header", "preamble")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_RECIPE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_TOKEN_ID_LIMIT = 1 << 32


@dataclass(frozen=True, slots=True)
class PacketIdentity:
    """Everything that decides the K and V of a packet; nothing that does not.

    Parameters
    ----------
    format_version : int
        Version of what a packet is, 1 to 2**32 - 1.
    weights, tokenizer, config, rope : str
        Lower-case hex SHA-256 digests, as in ``ModelFingerprint``.
    kv_dtype : KVDtype
        The float format that K and V are held in.
    adapter : str
        Hex SHA-256 digest of header and trailer, or ``"none"``.
    recipe : str
        Name of the prefill recipe, such as ``"alone-1"``: another way to compute is other bits.
    role : str
        ``"segment"``, ``"header"`` (an adapter's soft tokens alone) or ``"preamble"``.
    token_ids : tuple of int
        uint32 each. A header has none, any other packet at least one.

    Raises
    ------
    UsageError
        A field is empty, unknown or not in its one spelling; pass the model's real digest.
    """

    format_version: int
    weights: str
    tokenizer: str
    config: str
    rope: str
    kv_dtype: KVDtype
    adapter: str
    recipe: str
    role: str
    token_ids: TokenIds

    def __post_init__(self) -> None:
        for name in ("weights", "tokenizer", "config", "rope"):
            _require_digest(name, getattr(self, name))
        if self.adapter != NO_ADAPTER:
            _require_digest("adapter", self.adapter)
        _require_spelling("recipe", self.recipe, _RECIPE, "pass a name such as 'alone-1'")
        if self.role not in _ROLES:
            raise _refused("role", self.role, f"pass one of {', '.join(_ROLES)}")
        object.__setattr__(self, "format_version", _format_version(self.format_version))
        object.__setattr__(self, "kv_dtype", _kv_dtype(self.kv_dtype))
        object.__setattr__(self, "token_ids", _token_ids(self.token_ids))
        self._require_tokens_of_role()

    def _require_tokens_of_role(self) -> None:
        if self.role != "header":
            if not self.token_ids:
                raise _refused("token_ids", (), f"a {self.role} has at least one token")
        elif self.token_ids or self.adapter == NO_ADAPTER:
            raise UsageError("packet identity: a header is an adapter's alone, without token ids")


def packet_key(identity: PacketIdentity) -> str:
    """Return the key that a packet is filed under: 64 hex characters of SHA-256.

    Parameters
    ----------
    identity : PacketIdentity
        Complete by construction.

    Returns
    -------
    str
        Equal exactly where every field is equal.

    Examples
    --------
    >>> digest = "0" * 64
    >>> one = PacketIdentity(1, digest, digest, digest, digest, KVDtype.BF16, "none", "alone-1",
    ...                      "segment", (1, 2))
    >>> packet_key(one)[:16]
    'fc9f8c5c6bc77193'
    """
    return hashlib.sha256(_DOMAIN + b"".join(_encoded_fields(identity))).hexdigest()


def _encoded_fields(identity: PacketIdentity) -> Iterator[bytes]:
    """Yield tag (1 byte), length (8 bytes, little-endian) and value of each field."""
    values = (
        identity.format_version.to_bytes(4, "little"),
        identity.weights.encode("ascii"),
        identity.tokenizer.encode("ascii"),
        identity.config.encode("ascii"),
        identity.rope.encode("ascii"),
        identity.kv_dtype.value.encode("ascii"),
        identity.adapter.encode("ascii"),
        identity.recipe.encode("ascii"),
        identity.role.encode("ascii"),
        np.array(identity.token_ids, dtype="<u4").tobytes(),
    )
    for tag, value in enumerate(values, start=1):
        yield bytes([tag]) + len(value).to_bytes(8, "little") + value


def _require_digest(name: str, value: object) -> None:
    _require_spelling(name, value, _DIGEST, "pass a SHA-256 as 64 lower-case hex characters")


def _require_spelling(name: str, value: object, spelling: re.Pattern[str], remedy: str) -> None:
    if not isinstance(value, str) or not spelling.fullmatch(value):
        raise _refused(name, value, remedy)


def _format_version(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 32:
        raise _refused("format_version", value, "pass a whole number from 1 to 2**32 - 1")
    return value


def _kv_dtype(value: object) -> KVDtype:
    try:
        return KVDtype(value)  # type: ignore[arg-type]
    except ValueError:
        raise _refused("kv_dtype", value, f"pass one of {', '.join(KVDtype)}") from None


def _token_ids(values: Iterable[object]) -> TokenIds:
    try:
        token_ids = tuple(operator.index(value) for value in values)  # type: ignore[arg-type]
    except TypeError:
        raise _refused("token_ids", values, "pass whole numbers") from None
    if any(not 0 <= token_id < _TOKEN_ID_LIMIT for token_id in token_ids):
        raise UsageError("packet identity: a token id is outside 0 to 2**32 - 1")
    return token_ids


def _refused(name: str, value: object, remedy: str) -> UsageError:
    return UsageError(f"packet identity: {name} is {value!r:.80}; {remedy}")
