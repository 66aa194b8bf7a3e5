"""Makes one period of a tool's way through space, by the law of ``robolearn/arms/tool_path.py``."""

from __future__ import annotations

import math

import numpy as np

from robolearn.arms.compiled.forms import Norms, PathBounds, PathState
from robolearn.arms.compiled.kernel import kernel, part
from robolearn.arms.compiled.moving_mean import add_row
from robolearn.arms.compiled.vectors import (
    Quat,
    Vec,
    between,
    dot,
    facing,
    four,
    place,
    put_four,
    put_pose,
    put_three,
    size,
    three,
    times,
    total,
    turned,
    unit,
)
from robolearn.arms.shapes import Twist
from robolearn.geometry import Pose
from robolearn.shapes import Floats

# Beyond this angle the shorter way round may change between two ticks; the one begun is kept.
_HALF_TURN = math.pi - 0.1
# Where things are in ``PathState.now``.
PLACE, FACING, SPEED, TURNING, WIDTH = 0, 3, 7, 10, 13


@part
def reset(bounds: PathBounds, state: PathState, at: Vec, q: Quat, v: Vec, w: Vec) -> None:
    """Go on from there, at most at the speeds that are allowed; the goal stays."""
    put_three(state.now, PLACE, at)
    put_four(state.now, FACING, q)
    put_three(state.now, SPEED, _cut(bounds.travel, v))
    put_three(state.now, TURNING, _cut(bounds.turn, w))
    for k in range(len(state.now)):
        for row in range(len(state.newest)):
            state.newest[row, k] = state.now[k]
    _tell(state, state.now, q)


@kernel
def relatch(bounds: PathBounds, state: PathState, T: Pose, twist: Twist) -> None:
    """Go on from ``T [4, 4]`` and ``twist [6]``; the goal stays."""
    reset(bounds, state, place(T), facing(T), three(twist, 0), three(twist, 3))


@kernel
def aim(bounds: PathBounds, state: PathState, T: Pose) -> None:
    """Lead to ``T [4, 4]`` from now on, its place to the border of the workspace."""
    at = place(T)
    for k in range(3):
        state.goal[k] = min(max(at[k], bounds.low[k]), bounds.high[k])
    put_four(state.goal, FACING, facing(T))


@part
def ahead(bounds: PathBounds, state: PathState) -> None:
    """One period on, towards the goal."""
    v, w = three(state.now, SPEED), three(state.now, TURNING)
    turn = between(four(state.now, FACING), four(state.goal, FACING))
    angle = size(turn)
    if angle > _HALF_TURN and dot(turn, w) < 0.0:
        turn = times(1.0 - 2.0 * math.pi / angle, turn)
    way = total(three(state.goal, PLACE), times(-1.0, three(state.now, PLACE)))
    _to(bounds, state, _law(bounds, bounds.travel, way, v), _law(bounds, bounds.turn, turn, w))


@part
def slow(bounds: PathBounds, state: PathState) -> None:
    """One period on, slowing down to rest along the motion."""
    v, w = three(state.now, SPEED), three(state.now, TURNING)
    _to(bounds, state, _braked(bounds.travel, v), _braked(bounds.turn, w))


@part
def moving(state: PathState) -> bool:
    """Whether anything does, of the path or of what is told."""
    for k in range(6):  # noqa: SIM110  (generators do not compile)
        if state.now[SPEED + k] != 0.0 or state.twist[k] != 0.0:
            return True
    return False


@part
def fill_rest(bounds: PathBounds, state: PathState, T: Pose) -> None:
    """Where braking from now on would end, into ``T [4, 4]``, turning about one axis."""
    v, w = three(state.now, SPEED), three(state.now, TURNING)
    travel_s = size(v) / bounds.travel.brake * bounds.period_s
    turn_s = size(w) / bounds.turn.brake * bounds.period_s
    at = total(three(state.now, PLACE), times(0.5 * travel_s, v))
    put_pose(T, at, turned(four(state.now, FACING), w, 0.5 * turn_s))


@kernel
def advance(bounds: PathBounds, state: PathState, braking: bool) -> None:
    """One period on, towards the goal or slowing down to rest along the motion."""
    if braking:
        slow(bounds, state)
    else:
        ahead(bounds, state)


@kernel
def rest(bounds: PathBounds, state: PathState) -> Pose:
    """See :func:`fill_rest`."""
    T = np.eye(4)
    fill_rest(bounds, state, T)
    return T


@part
def _law(bounds: PathBounds, norms: Norms, ahead: Vec, v: Vec) -> Vec:
    """Speed after the period: the law, then what still stops at the target, then the limits."""
    wish = total(times(1.0 - bounds.d, v), times(bounds.k, ahead))
    distance = size(ahead)
    if distance > 1e-9:
        along = times(1.0 / distance, ahead)
        most = stop_speed(distance, dot(v, along), norms.brake, bounds.period_s)
        excess = dot(wish, along) - most
        if excess > 0.0:
            wish = total(wish, times(-excess, along))
    wish = _cut(norms, wish)
    # As far as one period leads.
    change = total(wish, times(-1.0, v))
    length = size(change)
    return wish if length <= norms.change else total(v, times(norms.change / length, change))


@part
def stop_speed(distance: float, v: float, shed: float, period_s: float) -> float:
    """Solves ``w^2 / (2 a) = distance - T (v + w) / 2`` for ``a = shed / T``; where that is too
    late already, what brakes hardest.
    """
    left = distance - 0.5 * period_s * v
    if left <= 0.0:
        return max(0.0, v - shed)
    return shed * (math.sqrt(0.25 + 2.0 * left / (shed * period_s)) - 0.5)


@part
def _cut(norms: Norms, v: Vec) -> Vec:
    """Within the speed."""
    length = size(v)
    return v if length <= norms.speed else times(norms.speed / length, v)


@part
def _braked(norms: Norms, v: Vec) -> Vec:
    """After one period of braking; zeros at the end."""
    length = size(v)
    if length > norms.brake:
        return times(1.0 - norms.brake / length, v)
    return (0.0, 0.0, 0.0)


@part
def _to(bounds: PathBounds, state: PathState, wish: Vec, w: Vec) -> None:
    half = 0.5 * bounds.period_s
    v = _before_walls(bounds, state, wish)
    at = total(three(state.now, PLACE), times(half, total(three(state.now, SPEED), v)))
    q = turned(four(state.now, FACING), total(three(state.now, TURNING), w), half)
    put_three(state.now, PLACE, at)
    put_four(state.now, FACING, q)
    put_three(state.now, SPEED, v)
    put_three(state.now, TURNING, w)
    if len(state.newest) == 1:
        _tell(state, state.now, q)
        return
    mean = np.empty(WIDTH)
    add_row(state.newest, state.next, state.now, mean)
    # Quaternions of neighbours are neighbours: their mean, at length 1, is the rotations'.
    _tell(state, mean, unit(four(mean, FACING)))


@part
def _tell(state: PathState, row: Floats, q: Quat) -> None:
    put_pose(state.T, three(row, PLACE), q)
    put_three(state.twist, 0, three(row, SPEED))
    put_three(state.twist, 3, three(row, TURNING))


@part
def _before_walls(bounds: PathBounds, state: PathState, v: Vec) -> Vec:
    """Each axis stays able to stop before the border; the others' change shrinks for it."""
    shed, period_s = bounds.shed, bounds.period_s
    kept, held, any_held = np.empty(3), np.zeros(3), False
    taken = free = 0.0
    for k in range(3):
        at, was = state.now[PLACE + k], state.now[SPEED + k]
        most = stop_speed(bounds.high[k] - at, was, shed, period_s)
        least = -stop_speed(at - bounds.low[k], -was, shed, period_s)
        kept[k] = max(min(v[k], most), least)
        change = kept[k] - was
        if kept[k] != v[k]:
            held[k], any_held = 1.0, True
            taken += change * change
        else:
            free += change * change
    if not any_held:
        return v
    room = max(0.0, bounds.travel.change * bounds.travel.change - taken)
    share = 1.0 if free <= room else math.sqrt(room / free)
    for k in range(3):
        if held[k] == 0.0:
            was = state.now[SPEED + k]
            kept[k] = was + share * (kept[k] - was)
    return three(kept, 0)
