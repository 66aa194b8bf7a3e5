"""The joint path: limits always, target reached, smooth."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.arms.joint_path import JointLimits, JointPath
from robolearn.errors import ConfigError, DataError

LIMITS = JointLimits((-1.0, -0.5), (1.0, 2.0), (2.0, 0.7), (7.5, 20.0))
PERIOD, ROWS = 0.05, 5


def path(frequency: float = 30.0) -> JointPath:
    made = JointPath(LIMITS, PERIOD, ROWS, frequency)
    made.reset((0.0, 0.0))
    return made


targets = st.lists(
    st.tuples(st.floats(-3, 3), st.floats(-3, 3)).map(np.array), min_size=1, max_size=40
)


@settings(max_examples=100, deadline=None)
@given(targets, st.sampled_from([3.0, 30.0, 300.0]))
def test_limits_hold_whatever_the_targets(goals: list[np.ndarray], frequency: float) -> None:
    made = path(frequency)
    q, v = made.q, made.qd
    for goal in goals:
        rows, speeds = made.advance(goal.tolist())
        assert np.all(rows >= np.array(LIMITS.low) - 1e-9)
        assert np.all(rows <= np.array(LIMITS.high) + 1e-9)
        assert np.all(np.abs(speeds) <= np.array(LIMITS.speed) + 1e-9)
        steps = np.vstack([v, speeds])
        assert np.all(
            np.abs(np.diff(steps, axis=0)) <= np.array(LIMITS.acceleration) * PERIOD / ROWS + 1e-9
        )
        # Trapezoid: positions are the integral of the piecewise linear speeds.
        moved = np.cumsum(0.5 * (steps[1:] + steps[:-1]), axis=0) * PERIOD / ROWS
        np.testing.assert_allclose(rows, q + moved, atol=1e-12)
        q, v = rows[-1], speeds[-1]


@settings(max_examples=60, deadline=None)
@given(targets, st.sampled_from([3.0, 30.0]), st.integers(0, 20))
def test_jerk_is_limited_too_and_braking_ends_at_rest(goals, frequency: float, brakes: int) -> None:
    limits = dataclasses.replace(LIMITS, jerk=(150.0, 300.0))
    made = JointPath(limits, 0.01, 1, frequency)
    made.reset((0.0, 0.0))
    rows = [made.q] * 3
    for goal in goals:
        rows += [made.advance(goal.tolist())[0][-1] for _ in range(7)]
    rows += [made.brake()[0][-1] for _ in range(brakes)]
    end = made.rest
    while not made.still:
        rows.append(made.brake()[0][-1])
    np.testing.assert_allclose(made.q, end, atol=0.03)
    q = np.array(rows)
    assert np.all((q >= np.array(limits.low) - 1e-9) & (q <= np.array(limits.high) + 1e-9))
    for order, bound in enumerate((limits.speed, limits.acceleration, limits.jerk), start=1):
        assert np.all(np.abs(np.diff(q, n=order, axis=0)) / 0.01**order <= np.array(bound) + 1e-6)


@settings(max_examples=60, deadline=None)
@given(targets, st.tuples(st.floats(0.1, 1.0), st.floats(0.1, 1.0)), st.integers(0, 20))
def test_a_weighted_sum_of_speeds_keeps_its_budget(goals, weights, brakes: int) -> None:
    made = JointPath(LIMITS, 0.01, 1, 30.0)
    made.reset((0.0, 0.0))
    speeds = [made.qd]
    for goal in goals:
        for _ in range(7):
            made.advance(goal.tolist(), weights, 0.4)
            speeds.append(made.qd)
    for _ in range(brakes):
        made.brake()
        speeds.append(made.qd)
    v = np.array(speeds)
    assert (np.abs(v) @ np.array(weights)).max() <= 0.4 + 1e-9
    assert np.all(np.abs(np.diff(v, axis=0)) <= np.array(LIMITS.acceleration) * 0.01 + 1e-9)


def test_a_budget_slows_down_and_does_not_stop_short() -> None:
    made = JointPath(LIMITS, 0.01, 1, 30.0)
    made.reset((0.0, 0.0))
    for _ in range(600):
        made.advance((0.9, 1.5), (0.8, 0.5), 0.4)
    np.testing.assert_allclose(made.q, (0.9, 1.5), atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.floats(-1, 1), st.floats(-0.5, 2))
def test_a_constant_target_is_reached_without_overshoot(a: float, b: float) -> None:
    made, goal = path(), np.array([a, b])
    for _ in range(120):
        rows, _ = made.advance(goal.tolist())
        assert np.all((rows - goal) * np.sign(goal) <= 1e-9)
    np.testing.assert_allclose(made.q, goal, atol=1e-6)
    np.testing.assert_allclose(made.qd, 0.0, atol=1e-5)


def test_both_poles_are_where_they_are_said_to_be() -> None:
    made = path()
    made.reset((0.0, 0.0))
    p = np.exp(-30.0 * PERIOD)
    distance = [1e-4]
    for _ in range(6):
        made.advance([1e-4, 0.0])
        distance.append(1e-4 - made.q[0])
    d = np.array(distance)
    np.testing.assert_allclose(d[2:], 2 * p * d[1:-1] - p * p * d[:-2], atol=1e-15)


def test_bad_limits_and_starts() -> None:
    with pytest.raises(ConfigError, match="below high"):
        JointLimits((1.0,), (0.0,), (1.0,), (1.0,))
    with pytest.raises(ConfigError, match="positive"):
        JointLimits((0.0,), (1.0,), (0.0,), (1.0,))
    with pytest.raises(ConfigError, match="one value per joint"):
        JointLimits((0.0,), (1.0,), (1.0, 1.0), (1.0,))
    for wrong in ((1.0, 1.0), (0.0,), (float("nan"),), (1e-3,)):
        with pytest.raises(ConfigError, match=r"jerk|one value per joint"):
            JointLimits((0.0,), (1.0,), (1.0,), (1.0,), wrong)
    with pytest.raises(ConfigError, match="positive period"):
        JointPath(LIMITS, 0.0, 5, 10.0)
    with pytest.raises(DataError, match="joint limits"):
        path().reset((5.0, 0.0))
    with pytest.raises(DataError, match="2 finite"):
        path().reset((0.0,))


def test_braking_is_as_fast_as_allowed_and_ends_at_rest():
    made = JointPath(LIMITS, 0.01, 1, 20.0)
    made.reset(np.zeros(len(LIMITS.low)))
    for _ in range(15):
        made.advance(LIMITS.high)
    before = made.qd
    assert np.all(before > 0.0)
    speeds = []
    while np.any(made.qd):
        made.brake()
        speeds.append(made.qd)
        assert len(speeds) < 1000
    steps = np.diff(np.array([before, *speeds]), axis=0) / 0.01
    assert np.all(steps <= 0.0)
    assert np.all(steps >= -np.array(LIMITS.acceleration) - 1e-9)
    assert np.all(made.q <= LIMITS.high)
