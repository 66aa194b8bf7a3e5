"""Says how far recorded actions, commanded again open loop in the simulator, lead away from what
the recordings show, and how fast that grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.shapes import Floats

# Looked at so long after the start [s].
AFTER_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
# Fewer recordings say nothing of a median.
_LEAST = 3


@dataclass(frozen=True, slots=True)
class Replay:
    """One recording: error of the moved object ``position_m [T]``, ``rotation_rad [T]``."""

    rate_hz: float
    position_m: Floats
    rotation_rad: Floats


@dataclass(frozen=True, slots=True)
class ErrorAfter:
    """Median and 90th percentile over ``recordings`` that are so long."""

    after_s: float
    recordings: int
    position_mm: tuple[float, float]
    rotation_deg: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Trajectories:
    """Agreement of whole motions, of ``source`` replayed in ``world``. ``doubles_s``: in how long
    the median error of the position doubles (None: it does not grow, or is too short to tell);
    ``diverged``: in how many recordings the physics did.
    """

    source: str
    world: str
    rows: tuple[ErrorAfter, ...]
    doubles_s: float | None
    diverged: int


def trajectories(
    replays: Sequence[Replay], source: str, world: str, diverged: int = 0
) -> Trajectories:
    """Sum recordings up; times that fewer than three of them reach are left out."""
    rows: list[ErrorAfter] = []
    for after_s in AFTER_S:
        at = [(r, round(after_s * r.rate_hz)) for r in replays]
        reached = [(r.position_m[k], r.rotation_rad[k]) for r, k in at if k < len(r.position_m)]
        if len(reached) < _LEAST:
            continue
        place, turn = np.array(reached).T
        rows.append(ErrorAfter(after_s, len(reached), _two(1e3 * place), _two(np.degrees(turn))))
    return Trajectories(source, world, tuple(rows), _doubles(rows), diverged)


def _two(values: Floats) -> tuple[float, float]:
    middle, most = np.percentile(values, (50.0, 90.0))
    return float(middle), float(most)


def _doubles(rows: Sequence[ErrorAfter]) -> float | None:
    """From the slope of the logarithm of the median over time."""
    told = [(r.after_s, r.position_mm[0]) for r in rows if r.position_mm[0] > 0.0]
    if len(told) < 2:
        return None
    t_s, error = np.array(told).T
    slope = float(np.polyfit(t_s, np.log2(error), 1)[0])
    return 1.0 / slope if slope > 1e-6 else None
