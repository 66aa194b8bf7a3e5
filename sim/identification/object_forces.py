"""Finds what an object weighs and how hard it slides, from the force at the tool that handled it.

Lifting: while the tool carries the object, the force at the tool is its weight more than before.
Pushing: from rest to rest all the work that the tool does on the object goes into friction with
the table, which is a force times the way of what the object stands on. The work is the force times
the velocity of the object's material *at the tool*: what slides between tool and object is not in
it, and where exactly they touch does not matter, since the force points there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.signal import savgol_filter
from scipy.stats import binom
from scipy.stats import t as student

from robolearn.geometry import Vector, VectorRows
from robolearn.shapes import Flags, FloatRows, Floats
from sim.identification.arm_motion import Sent, SentColumns, on_grid

Status = Literal["identified", "ratio", "assumed"]
# What an object stands on, in its frame: x, y [m] and its share of the friction.
Feet = Float64[NDArray[np.float64], "feet 3"]

# Of streams with times of their own.
Seconds = Float64[NDArray[np.float64], "_"]
Threes = Float64[NDArray[np.float64], "_ 3"]
Fours = Float64[NDArray[np.float64], "_ 4"]

G = 9.81
_HZ = 100.0
# Poses of a tracker are smoothed over this [s].
_SMOOTH_S = 0.15
# Lifted so high [m] it is carried if it moves as the tool does [m/s], for so long [s].
_LIFTED_M, _WITH_TOOL_M_S, _CARRIED_S = 0.015, 0.03, 0.3
# The arm's state is at most so much later than the tracker's [s]; another time explains what is
# seen if the two are so much less apart then.
_MOST_LATE_S, _CLEARLY = 0.08, 0.8
# At grasp and release the force is not the weight alone [s].
_EDGE_S = 0.1
# So much of the weight may pull sideways.
_ASIDE = 0.15
# Slower it rests [m/s]; so far from its outermost point the tool touches nothing [m].
_REST_M_S, _AWAY_M = 0.01, 0.03
_MOVES_M_S, _FREE_S = 0.05, 0.2
# A push goes this far at least [m].
_PUSHED_M = 0.01
_LEAST = 3
# From so many on the order of the values says how sure their median is.
_FEW = 8


@dataclass(frozen=True, slots=True)
class Handling:
    """One object in one episode, in the table's frame, z up: the force on the tool ``force [s, 3]``
    [N], the tool's tip ``tool [s, 3]`` and the object ``place [s, 4]`` (x, y, z [m], heading
    [rad]), each with its times [s] of one clock; ``radius_m`` of the object about its origin.
    """

    radius_m: float
    force_t_s: Seconds
    force: Threes
    tool_t_s: Seconds
    tool: Threes
    object_t_s: Seconds
    place: Fours


@dataclass(frozen=True, slots=True)
class Told:
    """A number with its 95 % interval, from ``count`` lifts or pushes; ``why`` it is not known."""

    value: float
    low: float
    high: float
    count: int
    status: Status
    why: str = ""


def told_document(told: Told, before: float | None) -> dict[str, Any]:
    """Plain values of one number; ``before``: the scene's, None where it has none."""
    if told.status == "assumed":
        return {"before": before, "status": "assumed", "why": told.why}
    return {
        "before": before,
        "after": float(told.value),
        # As YAML has them: numpy's are none.
        "interval": [float(told.low), float(told.high)],
        "from": told.count,
        "status": told.status,
    }


@dataclass(frozen=True, slots=True)
class _Grid:
    """All streams at the same times; ``free``: the tool touches nothing, ``lifted``."""

    force: VectorRows
    tool: VectorRows
    tool_speed: VectorRows
    place: FloatRows
    speed: FloatRows
    free: Flags
    lifted: Flags


def mass_of(handled: Sequence[Handling]) -> Told:
    """What the object weighs [kg], from the times that it was carried."""
    weighed: list[float] = []
    unknown_zero = touched = 0
    for one in handled:
        grid = _grid(one)
        if grid is None:
            continue
        zero = _zero(grid)
        for a, b in _runs(_carried(grid), _CARRIED_S + 2 * _EDGE_S):
            if zero is None:
                unknown_zero += 1
                continue
            inside = slice(a + round(_EDGE_S * _HZ), b - round(_EDGE_S * _HZ))
            up = np.gradient(grid.tool_speed, 1.0 / _HZ, axis=0)[inside] + (0.0, 0.0, G)
            weight = zero - grid.force[inside]
            mass = float(up[:, 2] @ weight[:, 2] / (up[:, 2] @ up[:, 2]))
            # In the air the force is along that: else something else was touched.
            aside = np.linalg.norm((weight - mass * up).mean(axis=0)[:2])
            if aside > _ASIDE * abs(mass) * G:
                touched += 1
                continue
            weighed.append(mass)
    if unknown_zero and not weighed:
        return _nothing("the tool was never away from the object, so its own force is not known")
    also = f" ({touched} more with something else touching)" if touched else ""
    told = _mean(weighed, f"carried freely{also}")
    if told.high < 0.0:
        return _nothing(
            "the forces at the tool pull a carried object up: their sign or axes are not those of"
            " forces on the tool in the arm's base frame"
        )
    if told.status == "identified" and told.low <= 0.0:
        return _nothing(f"it is too light to be told: at most {told.high:.3g} kg")
    return told


def friction_of(handled: Sequence[Handling], feet: Feet) -> Told:
    """The force of friction with the table [N], from pushes, of an object that stands on ``feet``.

    Work over way, each summed over all pushes; the interval is the jackknife's over pushes.
    """
    work: list[float] = []
    way: list[float] = []
    for one in handled:
        grid = _grid(one)
        if grid is None:
            continue
        zero = _zero(grid)
        if zero is None:
            continue
        done, slid = _power(grid, zero, feet)
        moving = np.hypot(*grid.speed[:, :2].T) + 0.03 * np.abs(grid.speed[:, 3]) > _REST_M_S
        for a, b in _runs(_wider(moving, 0.1), 0.1):
            rests = a > 0 and b < len(moving)
            if rests and not grid.lifted[a:b].any() and slid[a:b].sum() > _PUSHED_M:
                work.append(float(done[a:b].sum()))
                way.append(float(slid[a:b].sum()))
    count = len(work)
    if count < _LEAST:
        return _nothing(f"it was pushed from rest to rest {count} times, at least {_LEAST} needed")
    W, L = np.array(work), np.array(way)
    value = float(W.sum() / L.sum())
    without = (W.sum() - W) / (L.sum() - L)
    spread = float(np.sqrt((count - 1) / count * np.sum((without - without.mean()) ** 2)))
    half = float(student.ppf(0.975, count - 1)) * spread
    if value - half <= 0.0:
        return _nothing(f"too little force was felt: 0 to {value + half:.2g} N explain the pushes")
    return Told(value, value - half, value + half, count, "identified")


def _grid(one: Handling) -> _Grid | None:
    """At 100 Hz where all streams are there; None where that is too short. While an object is
    carried it moves as the tool does: by how much later that is seen of the one than of the other
    (a state that a controller tells late), joints and forces are moved.
    """
    grid = _gridded(one, 0.0)
    late_s = 0.0 if grid is None else _late_s(grid)
    return _gridded(one, late_s) if late_s else grid


def _late_s(grid: _Grid) -> float:
    """How much later the tool is seen to move than what it carries [s]; 0 where that is not told:
    little is carried, or no shift fits clearly better.
    """
    reach = round(_MOST_LATE_S * _HZ)
    at = np.flatnonzero(grid.lifted)
    at = at[(at >= reach) & (at < len(grid.lifted) - reach)]
    if len(at) < _CARRIED_S * _HZ:
        return 0.0
    moves = grid.speed[at, :3]
    apart = [
        float(np.median(np.linalg.norm(moves - grid.tool_speed[at + k], axis=1)))
        for k in range(-reach, reach + 1)
    ]
    best = int(np.argmin(apart))
    if not 0 < best < 2 * reach or apart[best] > _CLEARLY * apart[reach]:
        return 0.0
    return (best - reach) / _HZ


def _gridded(one: Handling, late_s: float) -> _Grid | None:
    """Joints and forces ``late_s`` [s] earlier than they were told."""
    force_t_s, tool_t_s = one.force_t_s - late_s, one.tool_t_s - late_s
    streams = (force_t_s, tool_t_s, one.object_t_s)
    if min(map(len, streams)) < 2:
        return None
    t_s = np.arange(max(s[0] for s in streams), min(s[-1] for s in streams), 1.0 / _HZ)
    window = 2 * round(0.5 * _SMOOTH_S * _HZ) + 1
    if len(t_s) < 3 * window:
        return None
    heading = one.place.copy()
    heading[:, 3] = np.unwrap(heading[:, 3])
    raw = on_grid(t_s, one.object_t_s, heading)
    tool = on_grid(t_s, tool_t_s, one.tool)
    place, speed = _smooth(raw, window, 0), _smooth(raw, window, 1)
    tool_speed = _smooth(tool, window, 1)
    lifted = place[:, 2] > np.percentile(place[:, 2], 5) + _LIFTED_M
    away = np.linalg.norm(tool - place[:, :3], axis=1) > one.radius_m + _AWAY_M
    # A tool that moves beside an object that rests does not touch it either.
    away |= np.linalg.norm(tool_speed, axis=1) > _MOVES_M_S
    rests = ~_wider(np.linalg.norm(speed[:, :3], axis=1) > _REST_M_S, _EDGE_S)
    free = away & ~lifted & rests
    force = _averaged(t_s, force_t_s, one.force)
    return _Grid(force, tool, tool_speed, place, speed, free, lifted)


def _smooth(rows: FloatRows, window: int, derivative: int) -> FloatRows:
    found = savgol_filter(rows, window, 2, deriv=derivative, delta=1.0 / _HZ, axis=0)
    return np.asarray(found, dtype=np.float64)


def _averaged(t_s: Floats, at_s: Sent, rows: SentColumns) -> FloatRows:
    """Means over the grid's periods: forces are noisier and faster than motions."""
    summed = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)])
    half = 0.5 / _HZ
    low, high = (np.searchsorted(at_s, t_s + s) for s in (-half, half))
    count = (high - low)[:, None]
    means = (summed[high] - summed[low]) / np.maximum(count, 1)
    return np.where(count > 0, means, on_grid(t_s, at_s, rows))


def _zero(grid: _Grid) -> Vector | None:
    """What the sensor says of nothing ``[3]``; None where the tool was never free."""
    if grid.free.sum() < _FREE_S * _HZ:
        return None
    return np.median(grid.force[grid.free], axis=0)


def _carried(grid: _Grid) -> Flags:
    apart = np.linalg.norm(grid.speed[:, :3] - grid.tool_speed, axis=1)
    return grid.lifted & (apart < _WITH_TOOL_M_S)


def _power(grid: _Grid, zero: Vector, feet: Feet) -> tuple[Floats, Floats]:
    """Work of the tool on the object [J] and way of its feet [m] per period."""
    push = zero[:2] - grid.force[:, :2]
    turn = grid.speed[:, 3]
    at_tool = grid.speed[:, :2] + _turned(turn, grid.tool[:, :2] - grid.place[:, :2])
    c, s = np.cos(grid.place[:, 3]), np.sin(grid.place[:, 3])
    slid = np.zeros(len(turn))
    for x, y, share in feet.tolist():
        arm = np.stack([c * x - s * y, s * x + c * y], axis=1)
        slid += share * np.hypot(*(grid.speed[:, :2] + _turned(turn, arm)).T)
    return (push * at_tool).sum(axis=1) / _HZ, slid / _HZ


def _turned(turn: Floats, arm: FloatRows) -> FloatRows:
    """``turn [n]`` [rad/s] times an arm ``[n, 2]`` of the plane."""
    return turn[:, None] * np.stack([-arm[:, 1], arm[:, 0]], axis=1)


def _runs(flags: Flags, least_s: float) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    spans = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(a, b) for a, b in spans if b - a >= least_s * _HZ]


def _wider(flags: Flags, by_s: float) -> Flags:
    reach = np.ones(2 * round(by_s * _HZ) + 1)
    return np.convolve(flags, reach, mode="same") > 0.5


def _mean(values: Sequence[float], done: str) -> Told:
    """The median and the order statistics around it: single handlings go wrong (Conover, 1999)."""
    count = len(values)
    if count < _LEAST:
        return _nothing(f"it was {done} {count} times, at least {_LEAST} needed")
    ordered = np.sort(values)
    middle = float(np.median(ordered))
    if count < _FEW:
        half = float(student.ppf(0.975, count - 1)) * float(np.std(ordered, ddof=1)) / count**0.5
        return Told(middle, middle - half, middle + half, count, "identified")
    outside = int(binom.ppf(0.025, count, 0.5))
    at = max(0, outside - 1)
    return Told(middle, float(ordered[at]), float(ordered[-1 - at]), count, "identified")


def _nothing(why: str) -> Told:
    return Told(float("nan"), 0.0, float("inf"), 0, "assumed", why)
