"""What a plain step, a draft step and a verification cost on this machine, and a fit to them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kvpacket_store.api.measured_costs import MeasuredCosts
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.models import Model, RowWork, SlotCache

__all__ = ["CONTEXTS", "calibrate", "fit_costs"]

CONTEXTS = (1000, 4000)
_SHARES = (0.125, 0.25, 0.5)
_ROWS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class _Point:
    """A forward that is timed."""

    kind: str
    slots: int
    rows: int
    times_ms: list[float] = field(default_factory=list)


def calibrate(
    model: Model,
    *,
    contexts: Sequence[int] = CONTEXTS,
    runs: int = 7,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[MeasuredCosts, dict[str, Any]]:
    """Time forwards in turn, so that what else the machine does meets all of them.

    Returns
    -------
    tuple of MeasuredCosts and dict
        The fit; and what was measured, a row a forward, medians beside what the fit says.
    """
    longest = model.max_positions - max(_ROWS)
    points = list(_points(sorted({min(context, longest) for context in contexts})))
    cache = _filled(model, max(point.slots for point in points) + max(_ROWS))
    run = model.row_forward()
    for number in range(runs + 1):
        for point in points:
            elapsed = _time(run, cache, point)
            if number:  # the first of each is not counted
                point.times_ms.append(elapsed)
        progress((number + 1) / (runs + 1))
    medians = [statistics.median(point.times_ms) for point in points]
    measured = fit_costs([(p.slots, p.rows, ms) for p, ms in zip(points, medians, strict=True)])
    rows = [
        {
            "forward": point.kind,
            "slots": point.slots,
            "rows": point.rows,
            "ms": ms,
            "fitted_ms": measured.step_ms(point.slots, point.rows),
        }
        for point, ms in zip(points, medians, strict=True)
    ]
    told = {"model": model.name, "machine": machine(), "runs": runs, "costs": measured.to_dict()}
    return measured, {**told, "rows": rows}


def fit_costs(points: Sequence[tuple[int, int, float]]) -> MeasuredCosts:
    """Return the parts that explain (slots, rows, ms) with the least relative error.

    Examples
    --------
    >>> true = MeasuredCosts(20.0, 0.005, 2.0, 0.001)
    >>> shapes = [(slots, rows) for slots in (100, 400, 1000) for rows in (1, 8)]
    >>> found = fit_costs([(slots, rows, true.step_ms(slots, rows)) for slots, rows in shapes])
    >>> abs(found.row_ms - true.row_ms) < 1e-9
    True
    """
    slots, rows, times = np.array(points, dtype=np.float64).T
    further = rows - 1
    parts = np.stack([np.ones_like(slots), slots, further, further * slots], 1) / times[:, None]
    return MeasuredCosts(*_least_squares(parts).tolist())


def _least_squares(parts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Solve ``parts @ x = 1``; a part that noise makes negative is left out, the first never."""
    used = list(range(parts.shape[1]))
    while True:
        found = np.zeros(parts.shape[1])
        scale = np.abs(parts[:, used]).max(axis=0)
        solved = np.linalg.lstsq(parts[:, used] / scale, np.ones(len(parts)), rcond=None)[0]
        found[used] = solved / scale
        negative = [index for index in used[1:] if found[index] < 0]
        if not negative:
            return found
        used.remove(min(negative, key=lambda index: found[index] * parts[:, index].max()))


def _points(contexts: Sequence[int]) -> Iterator[_Point]:
    for context in contexts:
        for share in _SHARES:
            yield _Point(f"draft step on {share:.1%}", int(share * context), 1)
        for rows in _ROWS:
            kind = "plain step" if rows == 1 else f"verification of {rows} rows"
            yield _Point(kind, context, rows)


def _filled(model: Model, slots: int) -> SlotCache:
    """Return slots of noise: what is read costs the same whatever it says."""
    cache = model.new_cache(slots)
    generator = torch.Generator(device=model.device).manual_seed(0)
    cache.k_slots.normal_(generator=generator)
    cache.v_slots.normal_(generator=generator)
    return cache


def _time(
    run: Callable[[Sequence[RowWork]], list[torch.Tensor]], cache: SlotCache, point: _Point
) -> float:
    cache.set_length(point.slots)
    work = RowWork(cache, tuple(range(1, point.rows + 1)), point.rows)
    started = time.perf_counter()
    int(run((work,))[0][-1].argmax())  # on a GPU this waits for it
    return 1e3 * (time.perf_counter() - started)
