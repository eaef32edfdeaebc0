"""What each step of a base costs: bits, and harm to a model's answers. From these follow steps.

Harm is not even: of SmolLM2's thirty layers one makes up half of what coarse keys do to answers,
and two two fifths of what coarse values do (docs/adr/0016).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from kvpacket_store.errors import CorruptRecordError, UsageError

from .pack_section import BASE_STEPS

__all__ = ["COSTS_SUFFIX", "DEFAULT_BASE_BITS", "StepCosts", "installed_costs"]

COSTS_SUFFIX = ".steps.json"
DEFAULT_BASE_BITS = 2.4
"""Of a base by costs, on text like that of the costs; short paragraphs take 0.3 more."""


@dataclass(frozen=True, slots=True, eq=False)
class StepCosts:
    """Costs of every step, by side (K, V) and layer; steps are those of ``BASE_STEPS``.

    Parameters
    ----------
    pack : str
        Digest of the codec pack that bases are coded with.
    harm : float64 [2, L, S]
        KL to the exact answers, nats a token, where this alone is that coarse; 0 for the finest.
    bits : float64 [2, L, S]
        Bits a scalar.
    about : mapping
        Where that was measured.

    Raises
    ------
    UsageError
        The arrays do not fit each other, or hold what is no number.

    Examples
    --------
    >>> harm, bits = np.zeros((2, 1, 3)), np.tile([3.0, 2.0, 1.0], (2, 1, 1))
    >>> harm[1, 0] = 0, 1, 9  # V matters, K does not
    >>> StepCosts("", harm, bits).steps_within(2.0)
    (('sigma/2', 'sigma/8'),)
    """

    pack: str
    harm: npt.NDArray[np.float64]
    bits: npt.NDArray[np.float64]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        layers = self.harm.shape[1] if self.harm.ndim == 3 else 0
        shape = (2, layers, len(BASE_STEPS))
        sound = all(a.shape == shape and np.isfinite(a).all() for a in (self.harm, self.bits))
        if not layers or not sound:
            raise UsageError(
                f"step costs are {self.harm.shape} and {self.bits.shape}; both are finite numbers "
                "of K and V, every layer and every step"
            )

    def steps_within(self, bits_per_scalar: float) -> tuple[tuple[str, str], ...]:
        """Return the steps that harm least of those that take so many bits on average.

        From the coarsest on, what saves most harm a bit is made finer, as long as it fits.

        Raises
        ------
        UsageError
            Even the coarsest take more.
        """
        chosen = np.full(self.harm.shape[:2], len(BASE_STEPS) - 1)
        left = (bits_per_scalar - self._mean(self.bits, chosen)) * chosen.size
        if not left >= 0:
            raise UsageError(
                f"a base of {bits_per_scalar} bits a scalar is not to be had; the coarsest takes "
                f"{self._mean(self.bits, chosen):.2f}"
            )
        while (better := self._best(chosen, left)) is not None:
            side, layer, step = better
            left -= self.bits[side, layer, step] - self.bits[side, layer, chosen[side, layer]]
            chosen[side, layer] = step
        names = [*BASE_STEPS]
        return tuple((names[k], names[v]) for k, v in chosen.T)

    def bits_of(self, steps: tuple[tuple[str, str], ...]) -> float:
        """Return bits a scalar of a base of these steps, by layer, for K and for V."""
        names = [*BASE_STEPS]
        return self._mean(self.bits, np.array([[names.index(s) for s in pair] for pair in steps]).T)

    def _best(self, chosen: npt.NDArray[np.intp], left_bits: float) -> tuple[int, int, int] | None:
        """Return side, layer and finer step that save most harm a bit, of those that fit."""
        now = chosen[..., None]
        saved = np.take_along_axis(self.harm, now, 2) - self.harm
        more = self.bits - np.take_along_axis(self.bits, now, 2)
        possible = (np.arange(len(BASE_STEPS)) < now) & (more <= left_bits) & (saved > 0)
        if not possible.any():
            return None
        gain = np.where(possible, saved / np.maximum(more, 1e-9), -1.0)
        side, layer, step = np.unravel_index(int(gain.argmax()), gain.shape)
        return int(side), int(layer), int(step)

    @staticmethod
    def _mean(costs: npt.NDArray[np.float64], chosen: npt.NDArray[np.intp]) -> float:
        return float(np.take_along_axis(costs, chosen[..., None], 2).mean())

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "pack": self.pack,
            "base_steps": [*BASE_STEPS],
            "about": dict(self.about),
            "harm": self.harm.round(9).tolist(),
            "bits": self.bits.round(4).tolist(),
        }

    def to_json(self) -> str:
        """Return the text of a file of costs."""
        return json.dumps(self.to_dict()) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> StepCosts:
        """Read what `to_json` gave.

        Raises
        ------
        CorruptRecordError
            It is not that, or of other steps; measure again.
        """
        try:
            values = json.loads(text)
            if values["base_steps"] != [*BASE_STEPS]:
                raise ValueError(f"they are of steps {values['base_steps']!r:.60}")
            harm, bits = (np.array(values[key], np.float64) for key in ("harm", "bits"))
            return cls(str(values["pack"]), harm, bits, dict(values["about"]))
        except (ValueError, TypeError, KeyError, UsageError) as error:
            raise CorruptRecordError(
                f"step costs cannot be read ({error}); measure them again with `kvps codec steps`"
            ) from error


@functools.cache
def installed_costs(pack: str) -> StepCosts | None:
    """Return the costs that ship for the codec pack of that digest, if there are any."""
    folder = resources.files("kvpacket_store.codec") / "packs"
    file = folder / f"{pack[:16]}{COSTS_SUFFIX}"
    found = StepCosts.from_json(file.read_text("utf-8")) if file.is_file() else None
    return found if found is not None and found.pack == pack else None
