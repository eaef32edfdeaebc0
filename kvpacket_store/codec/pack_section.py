"""What a record of level ``linear`` says behind its header (``docs/format.md`` §2.1)."""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from typing import NamedTuple

__all__ = [
    "BASE_STEPS",
    "DEFAULT_BASE_STEP",
    "PackSection",
    "Part",
    "are_base_steps",
    "section_bytes",
]

BASE_STEPS: Mapping[str, int] = {"sigma/8": 1, "sigma/4": 2, "sigma/2": 3}
DEFAULT_BASE_STEP = "sigma/4"

_FIXED = struct.Struct("<32sB7s32s")
NUM_SETTINGS = 4


def are_base_steps(pairs: object, num_layers: int) -> bool:
    """Say whether these are the names of two steps, for K and for V, for each of a model's layers.

    Examples
    --------
    >>> are_base_steps([("sigma/8", "sigma/2")], 1), are_base_steps([("sigma/8", "sigma/3")], 1)
    (True, False)
    """
    return (
        isinstance(pairs, list | tuple)
        and len(pairs) == num_layers
        and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs)
        and all(isinstance(step, str) and step in BASE_STEPS for pair in pairs for step in pair)
    )


class Part(enum.IntEnum):
    """Which layers of the packet a record has."""

    WHOLE = 0
    BASE = 1
    ENHANCEMENT = 2


class PackSection(NamedTuple):
    """The codec pack that a record was coded with, and how.

    Parameters
    ----------
    pack : str
        The pack's digest, 64 lower-case hex characters.
    part : Part
        Everything in one record, or one of two layers.
    kv_digest : str
        Of the K and V that were encoded: base and enhancement of two prefills never mix.
    settings : tuple of int
        By layer, K and then V.
    """

    pack: str
    part: Part
    kv_digest: str
    settings: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """Return the section."""
        digests = bytes.fromhex(self.pack), bytes.fromhex(self.kv_digest)
        return _FIXED.pack(digests[0], self.part, bytes(7), digests[1]) + bytes(self.settings)

    @classmethod
    def from_bytes(cls, data: memoryview) -> PackSection | None:
        """Return the section, or None where a reserved value is used."""
        pack, part, reserved, kv_digest = _FIXED.unpack_from(data)
        settings = tuple(data[_FIXED.size :])
        if part > max(Part) or any(reserved) or max(settings, default=0) >= NUM_SETTINGS:
            return None
        if any((setting == 0) != (part == Part.WHOLE) for setting in settings):
            return None
        return cls(pack.hex(), Part(part), kv_digest.hex(), settings)


def section_bytes(level_code: int, num_layers: int) -> int:
    """Return the section's length in a record of that level: 0 of all but ``linear``."""
    return _FIXED.size + 2 * num_layers if level_code == 2 else 0
