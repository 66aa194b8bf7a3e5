"""Makes one period of ``robolearn/arms/tool_drive.py``: a supervisor calls it in every tick."""

from __future__ import annotations

import math

import numpy as np

from robolearn.arms.compiled import differential, joints, tool_path
from robolearn.arms.compiled.chain import fill
from robolearn.arms.compiled.drive_forms import bounds_of, state_of
from robolearn.arms.compiled.forms import DriveBounds, DriveState
from robolearn.arms.compiled.kernel import kernel, part
from robolearn.arms.compiled.vectors import (
    Quat,
    Vec,
    difference,
    dot,
    facing,
    place,
    put_three,
    size,
    three,
    times,
    total,
    turned,
)
from robolearn.arms.shapes import Jacobian, Joints, Twist
from robolearn.geometry import Pose
from robolearn.shapes import OwnFloats, OwnIndex

# Speeds stay this far inside their limits.
_INSIDE = 0.98
# How fast the tool is led back onto its path [1/s].
_GAIN = 20.0
# A step is held back where it loses more than this share of its twist, and than this [m/s, rad/s].
_LOST, _LITTLE = 0.1, 0.01
# The path may be so far ahead of the tool [m], [rad].
_LEAD_M, _LEAD_RAD = 0.005, 0.03
_NOWHERE = (0.0, 0.0, 0.0)
# Where things are in ``DriveState.told`` and in ``DriveState.flags``.
SHARE, SMALLEST = 0, 1
PARKED, LIMITED = 0, 1


@kernel
def advance(
    numbers: OwnFloats, state_numbers: OwnFloats, marks: OwnIndex, sizes: OwnIndex, braking: bool
) -> bool:
    """One period on, towards the goal or slowing down to rest along the motion; False where the
    Jacobian has no singular values. Bounds and state as ``packed`` makes them, here and below.
    """
    bounds, state = bounds_of(numbers, sizes), state_of(state_numbers, marks, sizes)
    if braking and state.flags[PARKED]:
        return True
    n = len(state.joints.q)
    T, J, frames = np.eye(4), np.empty((6, n)), np.empty((n + 1, 12))
    fill(bounds.chain, state.joints.sent, frames, T, J)
    way, turn = _lead(bounds, state, T, J)
    if state.flags[PARKED]:
        _relatch(bounds, state, place(T), facing(T), _NOWHERE, _NOWHERE)
        way = turn = _NOWHERE
    if braking:
        tool_path.slow(bounds.path, state.path)
    else:
        tool_path.ahead(bounds.path, state.path)
    told = state.path.twist
    travel = total(three(told, 0), times(_GAIN, way))
    rotation = total(three(told, 3), times(_GAIN, turn))
    # What is left of the lead is let go of at the end.
    resting = braking and not tool_path.moving(state.path)
    if resting:
        travel = rotation = _NOWHERE
    done = _drive(bounds, state, J, travel, rotation)
    state.flags[PARKED] = 1 if resting and not joints.moving(state.joints) else 0
    return done


@kernel
def reset(numbers: OwnFloats, state_numbers: OwnFloats, marks: OwnIndex, sizes: OwnIndex) -> None:
    """At rest where the joints are."""
    bounds, state = bounds_of(numbers, sizes), state_of(state_numbers, marks, sizes)
    n = len(state.joints.q)
    T, frames = np.eye(4), np.empty((n + 1, 12))
    fill(bounds.chain, state.joints.sent, frames, T, state.jacobian)
    _relatch(bounds, state, place(T), facing(T), _NOWHERE, _NOWHERE)
    for k in range(len(state.path.goal)):
        state.path.goal[k] = state.path.now[k]
    for i in range(n):
        for j in range(6):
            state.inverse[i, j] = 0.0
    state.flags[PARKED], state.flags[LIMITED] = 1, differential.NONE


@kernel
def aim(
    numbers: OwnFloats, state_numbers: OwnFloats, marks: OwnIndex, sizes: OwnIndex, T: Pose
) -> None:
    """See ``ToolPath.follow``."""
    bounds, state = bounds_of(numbers, sizes), state_of(state_numbers, marks, sizes)
    tool_path.aim(bounds.path, state.path, T)


@kernel
def rest(
    numbers: OwnFloats, state_numbers: OwnFloats, marks: OwnIndex, sizes: OwnIndex, q: Joints
) -> Joints:
    """Where braking from the newest set-point ``q [dof]`` ends, to first order."""
    bounds, state = bounds_of(numbers, sizes), state_of(state_numbers, marks, sizes)
    n = len(q)
    end, T, J, frames = np.eye(4), np.eye(4), np.empty((6, n)), np.empty((n + 1, 12))
    tool_path.fill_rest(bounds.path, state.path, end)
    fill(bounds.chain, q, frames, T, J)
    way, turn = difference(end, T)
    out = np.empty(n)
    for i in range(n):
        x, y, z, a, b, c = (
            *(state.inverse[i, 0], state.inverse[i, 1], state.inverse[i, 2]),
            *(state.inverse[i, 3], state.inverse[i, 4], state.inverse[i, 5]),
        )
        out[i] = q[i] + (dot((x, y, z), way) + dot((a, b, c), turn))
    return out


@part
def _lead(bounds: DriveBounds, state: DriveState, T: Pose, J: Jacobian) -> tuple[Vec, Vec]:
    """How far the path is ahead of the tool; it comes back to where that is too far."""
    way, turn = difference(state.path.T, T)
    lead, angle = size(way), size(turn)
    if lead > _LEAD_M or angle > _LEAD_RAD:
        way = times(min(1.0, _LEAD_M / max(lead, 1e-9)), way)
        turn = times(min(1.0, _LEAD_RAD / max(angle, 1e-9)), turn)
        n = len(state.joints.q)
        qd, twist = np.empty(n), np.empty(6)
        for i in range(n):
            qd[i] = state.joints.sent[n + i]
        fill_product(J, qd, twist)
        at, q = total(place(T), way), turned(facing(T), turn, 1.0)
        _relatch(bounds, state, at, q, three(twist, 0), three(twist, 3))
    return way, turn


@part
def _relatch(bounds: DriveBounds, state: DriveState, at: Vec, q: Quat, v: Vec, w: Vec) -> None:
    """The tool is there and moves so: the path goes on from there to the same goal."""
    tool_path.reset(bounds.path, state.path, at, q, v, w)


@part
def _drive(bounds: DriveBounds, state: DriveState, J: Jacobian, travel: Vec, turn: Vec) -> bool:
    n = len(state.joints.q)
    qd, wish, out = np.empty(n), np.empty(n), np.empty((2, n))
    asked, followed, made, bend = np.empty(6), np.empty(6), np.empty(6), np.empty(6)
    change = np.empty(n)
    resting = size(travel) == 0.0 and size(turn) == 0.0
    put_three(asked, 0, times(_slower(travel, _INSIDE * bounds.speed), travel))
    put_three(asked, 3, times(_slower(turn, _INSIDE * bounds.rotation), turn))
    for i in range(n):
        qd[i] = state.joints.sent[n + i]
        for j in range(6):
            state.jacobian[j, i] = J[j, i] - state.jacobian[j, i]
    # What the tool's speed changes by in a period because the arm's shape does.
    fill_product(state.jacobian, qd, bend)
    for j in range(6):
        for i in range(n):
            state.jacobian[j, i] = J[j, i]
        asked[j] = asked[j] - bend[j]
        followed[j] = asked[j]
    by, smallest = differential.step(
        bounds.step, state.joints.sent, J, followed, wish, state.inverse
    )
    if math.isnan(smallest):
        return False
    state.told[SMALLEST] = smallest
    for i in range(n):
        wish[i] = 0.0 if resting else wish[i]
    # Near a singularity the tool moves otherwise than it was asked to, but no faster.
    fill_product(J, wish, made)
    state.flags[LIMITED] = _limited(bounds, state, by, asked, made)
    most = min(
        _slower(three(made, 0), _INSIDE * bounds.speed),
        _slower(three(made, 3), _INSIDE * bounds.rotation),
    )
    for i in range(n):
        wish[i] = most * wish[i]
        change[i] = wish[i] - qd[i]
    fill_product(J, change, made)
    share = min(
        _share(three(made, 0), three(bend, 0), bounds.change),
        _share(three(made, 3), three(bend, 3), bounds.turn),
    )
    joints.drive_to(bounds.joints, state.joints, wish, share, out)
    return True


@part
def fill_product(J: Jacobian, v: Joints, out: Twist) -> None:
    """``J v`` into ``out [6]``."""
    for j in range(6):
        out[j] = 0.0
        for i in range(len(v)):
            out[j] += J[j, i] * v[i]


@part
def _limited(bounds: DriveBounds, state: DriveState, by: int, asked: Twist, made: Twist) -> int:
    """What limits a step that makes less than it was asked for; damping has no other name."""
    lost2 = asked2 = made2 = 0.0
    for j in range(6):
        lost2 += (asked[j] - made[j]) * (asked[j] - made[j])
        asked2 += asked[j] * asked[j]
        made2 += made[j] * made[j]
    if lost2 <= max(_LOST * _LOST * asked2, _LITTLE * _LITTLE):
        return differential.NONE
    state.told[SHARE] = math.sqrt(made2 / asked2)
    if by == differential.NONE and state.told[SMALLEST] < bounds.step.damped:
        return differential.SINGULAR
    return by


@part
def _slower(v: Vec, most: float) -> float:
    """Share of ``v`` that is not beyond ``most``."""
    length = size(v)
    return 1.0 if length <= most else most / length


@part
def _share(change: Vec, base: Vec, most: float) -> float:
    """The largest share of ``change`` that keeps it and ``base`` within ``most`` together; where
    none does, the one that comes nearest.
    """
    a, b, c = dot(change, change), dot(change, base), dot(base, base) - most * most
    if a + 2.0 * b + c <= 0.0 or a < 1e-24:
        return 1.0
    inside = b * b - a * c
    return min(1.0, max(0.0, (math.sqrt(max(inside, 0.0)) - b) / a))
