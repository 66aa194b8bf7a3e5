"""The checks of a set-point, alone."""

import math

import numpy as np
import pytest

from hardware.supervisor.checks import (
    CollisionConfig,
    FollowingCheck,
    RateGate,
    are_angles,
    is_outside,
    too_fast,
)
from robolearn.arms.models import UR5E

HOME = np.array([0.0, -1.57, 1.57, -1.57, -1.57, 0.0])


@pytest.mark.parametrize(("rate_hz", "every"), [(500.0, 2), (1000.0, 4), (250.0, 1), (50.0, 1)])
def test_ways_and_set_points_are_looked_at_once_per_period_each(rate_hz, every):
    guard = CollisionConfig().guard(UR5E, rate_hz)
    assert guard is not None
    guard.begin(HOME)
    ahead, gate = [], []
    for _ in range(8 * every):
        guard.tick()
        ahead.append(guard.ahead_due)
        gate.append(guard.gate_due)
    # The way ahead of the very first set-point, and then each as often as the other.
    assert np.flatnonzero(ahead).tolist() == list(range(0, 8 * every, every))
    assert np.flatnonzero(gate).tolist() == list(range(every // 2, 8 * every, every))
    assert every == 1 or not np.any(np.logical_and(ahead, gate)), "no tick carries both"


@pytest.mark.parametrize("limit", [np.array(5.0), np.full(3, 5.0)])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_no_slow_motion(limit, poison):
    gate = RateGate(limit, None, 100.0)
    gate.reset(np.zeros(3))
    assert gate.broken(np.zeros(3)) == ""
    assert "acceleration" in gate.broken(np.array([0.0, poison, 0.0]))


def test_jerk_is_that_of_the_last_four_set_points():
    gate = RateGate(np.full(1, 1e6), np.full(1, 1000.0), 100.0)
    gate.reset(np.zeros(1))
    # Third differences in units of the limit (1.1 allowed): 1, then -3 of a step that ends.
    assert gate.broken(np.array([1e-3])) == ""
    assert "jerk" in gate.broken(np.array([1e-3]))


def test_a_gate_takes_what_it_was_begun_with():
    """Compiled code looks at no size: what is longer would be written beyond an array."""
    with pytest.raises(ValueError, match="expected 3 values"):
        RateGate(np.full(3, 5.0), None, 100.0).reset(np.zeros(4))
    gate = RateGate(np.array(5.0), None, 100.0)
    with pytest.raises(ValueError, match="expected 1 values"):
        gate.broken(np.zeros(3))
    gate.reset(np.zeros(3))
    for wrong in (np.zeros(2), np.zeros(4)):
        with pytest.raises(ValueError, match="expected 3 values"):
            gate.broken(wrong)
    assert gate.broken(np.zeros(3)) == ""


def test_angles_are_so_many_finite_numbers():
    assert are_angles(HOME, 6)
    assert not are_angles(HOME, 7)
    for poison in (math.nan, math.inf, -math.inf):
        assert not are_angles(np.array([*HOME[:5], poison]), 6)


def test_limits_are_those_of_every_joint_on_both_sides():
    low, high = [-1.0, -2.0], [1.0, 2.0]
    assert not is_outside(np.array([1.0, -2.0]), low, high)
    assert is_outside(np.array([np.nextafter(1.0, 2.0), 0.0]), low, high)
    assert is_outside(np.array([0.0, np.nextafter(-2.0, -3.0)]), low, high)
    at = np.zeros(2)
    assert too_fast(np.array([0.1, -0.19]), at, 0.1, [1.0, 2.0]) == ""
    assert "beyond" in too_fast(np.array([0.1, -0.21]), at, 0.1, [1.0, 2.0])


def test_a_following_error_is_that_to_the_nearest_of_the_newest_set_points():
    check = FollowingCheck(2, 10.0, 0.3)
    check.reset(np.zeros(2))
    for v in (0.1, 0.2, 0.3, 0.4):
        check.sent(np.array([v, -v]))
    # Of three set-points that are kept; the worst joint of each counts.
    assert check.error(np.array([0.2, -0.25])) == pytest.approx(0.05)
    assert check.error(np.zeros(2)) == pytest.approx(0.2)


def test_a_following_error_that_is_small_enough_needs_no_search():
    check = FollowingCheck(2, 100.0, 0.1)
    check.reset(np.zeros(2))
    for k in range(5):
        check.sent(np.array([0.1 * k, 0.0]))
    at = np.array([0.21, 0.0])
    # The nearest is .01 away, the newest .19.
    assert check.error(at) == pytest.approx(0.01)
    assert check.error(at, enough=0.1) == pytest.approx(0.01)
    assert check.error(at, enough=0.2) == pytest.approx(0.19)
    assert not check.error(np.array([np.nan, 0.9]), enough=0.2) <= 0.2
