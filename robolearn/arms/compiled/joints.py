"""Applies the laws and saturations of ``robolearn/arms/joint_path.py`` to all joints at once."""

from __future__ import annotations

import math

import numpy as np

from robolearn.arms.compiled.forms import JointBounds, JointState
from robolearn.arms.compiled.kernel import kernel, part
from robolearn.arms.compiled.moving_mean import add_row
from robolearn.arms.shapes import Joints
from robolearn.shapes import FloatRows, Floats


@part
def stop(distance: float, v: float, brake: float, period_s: float) -> float:
    """Largest speed after the period from which ``distance`` suffices to stop.

    The plan is a ramp to zero over whole periods: after ``w`` and ``n`` periods the joint has moved
    ``T (v + w) / 2 + n T w / 2`` with a deceleration ``w / n`` per period. The next period's plan
    may always be the rest of this one, so the bound can be kept for ever, and nothing overshoots
    inside a period.
    """
    room = 2.0 / period_s * distance - v
    if room < 0.0:
        return room
    periods = np.floor(math.sqrt(0.25 + room / brake) - 0.5)
    return max(periods * brake, room / (periods + 2.0))


@part
def kept(bounds: JointBounds, i: int, q: float, v: float, wish: float) -> float:
    """``wish`` as far as joint ``i`` can still stop before its limits."""
    if wish > 0.0:
        room = stop(bounds.high[i] - q, v, bounds.brake[i], bounds.period_s)
        wish = min(wish, bounds.speed[i], room)
    elif wish < 0.0:
        room = stop(q - bounds.low[i], -v, bounds.brake[i], bounds.period_s)
        wish = max(wish, -bounds.speed[i], -room)
    return min(max(wish, v - bounds.change[i]), v + bounds.change[i])


@part
def followed(bounds: JointBounds, i: int, q: float, v: float, goal: float, share: float) -> float:
    """Speed of joint ``i`` at the end of the period: ``share`` of the law, then the saturations."""
    if goal > bounds.high[i]:
        goal = bounds.high[i]
    elif goal < bounds.low[i]:
        goal = bounds.low[i]
    most, brake, period_s = bounds.speed[i], bounds.brake[i], bounds.period_s
    ahead = goal - q
    wish = v + bounds.k * ahead - bounds.d * v
    if share < 1.0:
        wish = share * min(max(wish, -most), most)
    # Never faster than what still stops at the target, or at the limit when moving away.
    if wish > 0.0:
        room = ahead if ahead > 0.0 else bounds.high[i] - q
        wish = min(wish, most, stop(room, v, brake, period_s))
    elif wish < 0.0:
        room = -ahead if ahead < 0.0 else q - bounds.low[i]
        wish = max(wish, -most, -stop(room, -v, brake, period_s))
    return min(max(wish, v - bounds.change[i]), v + bounds.change[i])


@kernel
def advance(
    bounds: JointBounds, state: JointState, target: Joints, weights: Floats, budget: float
) -> FloatRows:
    """Rows of positions, then of speeds ``[2 rows, n]``; ``weights`` are of every joint or none."""
    n, share = len(state.q), 1.0
    after = np.empty(n)
    if len(weights):
        weighed = 0.0
        for i in range(n):
            q, v = state.q[i], state.qd[i]
            wish = min(bounds.speed[i], abs(v + bounds.k * (target[i] - q) - bounds.d * v))
            weighed += weights[i] * abs(wish)
        share = min(1.0, budget / max(weighed, 1e-12))
    for i in range(n):
        after[i] = followed(bounds, i, state.q[i], state.qd[i], target[i], share)
    if len(weights):
        _within(after, state.qd, weights, budget)
    out = np.empty((len(bounds.basis), n))
    to(bounds, state, after, out)
    return out


@part
def _within(after: Joints, before: Joints, weights: Floats, budget: float) -> None:
    """Joints gain speed only as far as the others leave them some; slowing down is free."""
    n = len(after)
    base = np.zeros(n)
    gained = left = 0.0
    for i in range(n):
        v, w = before[i], after[i]
        if v * w > 0.0:
            base[i] = math.copysign(min(abs(v), abs(w)), w)
        gained += weights[i] * abs(w)
        left += weights[i] * abs(base[i])
    more, left = gained - left, max(0.0, budget - left)
    if more > left:
        for i in range(n):
            after[i] = base[i] + (after[i] - base[i]) * left / more


@kernel
def drive(bounds: JointBounds, state: JointState, speeds: Joints, share: float) -> FloatRows:
    """As :func:`advance`, towards ``speeds [n]``, all of them changed by the same share."""
    out = np.empty((len(bounds.basis), len(speeds)))
    drive_to(bounds, state, speeds, share, out)
    return out


@part
def drive_to(
    bounds: JointBounds, state: JointState, speeds: Joints, share: float, out: FloatRows
) -> None:
    """The same, rows into ``out [2 rows, n]``; ``speeds`` become those at the end."""
    n = len(state.q)
    for i in range(n):
        change = abs(speeds[i] - state.qd[i])
        if not change <= bounds.brake[i]:
            share = min(share, bounds.brake[i] / change)
    for i in range(n):
        v = state.qd[i]
        speeds[i] = kept(bounds, i, state.q[i], v, v + share * (speeds[i] - v))
    to(bounds, state, speeds, out)


@kernel
def brake(bounds: JointBounds, state: JointState) -> FloatRows:
    """As :func:`advance`, every joint slowing down to rest as fast as it may."""
    after = np.empty(len(state.q))
    for i in range(len(after)):
        v = state.qd[i]
        after[i] = math.copysign(max(0.0, abs(v) - bounds.brake[i]), v)
    out = np.empty((len(bounds.basis), len(after)))
    to(bounds, state, after, out)
    return out


@part
def to(bounds: JointBounds, state: JointState, after: Joints, out: FloatRows) -> None:
    """Make the period that ends at the speeds ``after [n]``; its rows into ``out [2 rows, n]``."""
    rows, n, basis = len(out) // 2, len(after), bounds.basis
    for r in range(2 * rows):
        for i in range(n):
            x, v = state.q[i], state.qd[i]
            out[r, i] = basis[r, 0] * x + basis[r, 1] * v + basis[r, 2] * after[i]
    for i in range(n):
        state.q[i], state.qd[i] = out[rows - 1, i], after[i]
        state.sent[i], state.sent[n + i] = state.q[i], state.qd[i]
    if len(state.newest) == 1:
        return
    row = np.empty(2 * n)
    for r in range(rows):
        for i in range(n):
            row[i], row[n + i] = out[r, i], out[rows + r, i]
        add_row(state.newest, state.next, row, state.sent)
        for i in range(n):
            out[r, i], out[rows + r, i] = state.sent[i], state.sent[n + i]


@part
def moving(state: JointState) -> bool:
    """Whether anything does, of the path or of what is sent."""
    n = len(state.q)
    for i in range(n):  # noqa: SIM110  (generators do not compile)
        if state.qd[i] != 0.0 or state.sent[n + i] != 0.0:
            return True
    return False
