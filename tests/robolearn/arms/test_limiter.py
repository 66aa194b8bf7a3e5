"""The limiter never emits a set-point outside its limits, whatever it is fed."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.arms.limiter import (
    PathLimits,
    Setpoint,
    SetpointGenerator,
    TableMapping,
    tool_limits,
)
from robolearn.arms.models import UR5E
from robolearn.errors import ConfigError, DataError

MAPPING = TableMapping.level(
    (-0.806, 0.256, 0.0),
    -math.pi / 2,
    tool_length_m=0.12,
    tip_height_m=0.005,
    tool_yaw=math.pi,
    home=(-0.3345, -1.3191, 2.4190, -2.6707, -1.5708, -0.3345),
)
LIMITS = PathLimits()


def generator(dt_s: float = 0.01, limits: PathLimits = LIMITS, xy=(0.256, 0.4)):
    g = SetpointGenerator(UR5E, MAPPING, limits, dt_s)
    g.reset(MAPPING.joints(UR5E, xy))
    return g


def check(points: list[Setpoint], dt: float, limits: PathLimits = LIMITS, start=None) -> None:
    """No violation of position, speed or acceleration; velocity is the derivative of position."""
    xy = np.array([p.xy for p in points])
    q = np.array([p.q for p in points])
    qd = np.array([p.qd for p in points])
    assert all(p.finite for p in points)
    slack = 1e-9
    assert np.all(xy >= np.array(limits.workspace_low) - slack)
    assert np.all(xy <= np.array(limits.workspace_high) + slack)
    assert np.all(q > np.array(UR5E.low) + limits.joint_margin)
    assert np.all(q < np.array(UR5E.high) - limits.joint_margin)
    assert np.abs(qd).max() <= limits.max_joint_speed
    v = np.diff(xy, axis=0) / dt
    assert np.linalg.norm(v, axis=1).max() <= limits.max_tool_speed
    a = np.diff(v, axis=0) / dt
    assert np.linalg.norm(a, axis=1).max() <= limits.max_tool_acceleration * (1 + 1e-6)
    assert np.abs(np.diff(qd, axis=0)).max() / dt <= limits.max_joint_acceleration
    if limits.max_tool_jerk is not None:
        jerk = np.linalg.norm(np.diff(a, axis=0), axis=1) / dt
        assert jerk.max() <= limits.max_tool_jerk * (1 + 1e-6)
    # C1: positions advance by the mean of the two speeds, up to the curvature within a step.
    np.testing.assert_allclose(np.diff(q, axis=0), (qd[1:] + qd[:-1]) / 2 * dt, atol=2e-3 * dt)


finite = st.floats(-0.3, 0.9)
wild = st.one_of(
    st.tuples(finite, finite),
    st.tuples(st.floats(), st.floats()),
    st.sampled_from([(math.nan, 0.1), (1e300, -1e300), (0.0, 0.0), (0.512, 0.512), (math.inf, 0)]),
)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(wild, st.integers(1, 12)), min_size=1, max_size=10),
    st.booleans(),
    st.sampled_from([None, 100.0, 400.0]),
)
def test_any_targets_no_violation_and_rest_after_hold(sequence, fast: bool, jerk) -> None:
    dt = 0.004 if fast else 0.01
    limits = dataclasses.replace(LIMITS, max_tool_jerk=jerk)
    g = generator(dt, limits)
    points = [g.step()]
    for k, (xy, steps) in enumerate(sequence):
        try:
            g.set_target(xy, 0.1 * k)
        except DataError:
            assert not np.all(np.isfinite(xy))
        points += [g.step() for _ in range(steps)]
    g.hold()
    bound = math.ceil(g.stop_time_s / dt)
    tail = [g.step() for _ in range(bound)]
    assert g.at_rest
    np.testing.assert_array_equal(tail[-1].qd, 0.0)
    check(points + tail, dt, limits)


@pytest.mark.parametrize("dt", [0.002, 0.008, 0.01])
def test_corner_to_corner(dt: float) -> None:
    g = generator(dt)
    points: list[Setpoint] = []
    limited: set[str] = set()
    for k, target in enumerate([(5.0, 5.0), (-5.0, -5.0), (5.0, -5.0), (-5.0, 5.0), (0.1, 9.0)]):
        g.set_target(target, float(k))
        points += [g.step() for _ in range(round(0.7 / dt))]
        limited |= {name for p in points for name in p.limited}
    check(points, dt)
    assert {"target", "acceleration", "speed"} <= limited


def test_overshoot_is_stopped_at_the_border() -> None:
    g = generator(xy=(0.30, 0.3))
    points = []
    # Targets that run ahead and then stay just inside make the law itself overshoot the border.
    for k in range(60):
        g.set_target((0.512, 0.3 + 0.01 * (k % 2)), 0.1 * k)
        points += [g.step() for _ in range(2)]
    check(points, g.dt_s)


def gym_path(start: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """gym-pusht 0.1.8's agent, ten 10 ms steps per target; position at the start of each tick."""
    x, v, out = start.copy(), np.zeros(2), []
    for target in targets:
        out.append(x.copy())
        for _ in range(10):
            v = v + (100.0 * (target - x) - 20.0 * v) * 0.01
            x = x + v * 0.01
    return np.array(out)


@pytest.mark.parametrize("dt", [0.002, 0.005, 0.01])
def test_follows_as_gym_pusht_at_ten_hertz(dt: float) -> None:
    rng = np.random.default_rng(3)
    targets = np.clip(np.cumsum(rng.normal(0, 0.012, (20, 2)), axis=0) + 0.25, 0.05, 0.45)
    g = generator(dt, xy=targets[0])
    path, xy = [], targets[0]
    for k, target in enumerate(targets):
        path.append(xy)
        g.set_target(target, 0.1 * k)
        for _ in range(round(0.1 / dt)):
            xy = g.step().xy
    error = np.linalg.norm(np.array(path) - gym_path(targets[0], targets), axis=1)
    assert np.median(error) < 0.5e-3
    assert error.max() < 1.5e-3


@pytest.mark.parametrize("bad", [(math.nan, 0.0), (0.1,), (0.1, 0.2, 0.3), "left", (0.1, math.inf)])
def test_a_bad_target_changes_nothing(bad) -> None:
    one, two = generator(), generator()
    for g in (one, two):
        g.set_target((0.3, 0.3), 0.0)
        for _ in range(5):
            g.step()
    with pytest.raises(DataError):
        one.set_target(bad, 0.1)
    for _ in range(20):
        np.testing.assert_array_equal(one.step().q, two.step().q)


def test_targets_come_in_order_and_after_a_start() -> None:
    g = generator()
    g.set_target((0.3, 0.3), 1.0)
    with pytest.raises(DataError, match="before"):
        g.set_target((0.3, 0.3), 0.9)
    with pytest.raises(DataError, match="before"):
        g.set_target((0.3, 0.3), math.nan)
    fresh = SetpointGenerator(UR5E, MAPPING, LIMITS, 0.01)
    with pytest.raises(DataError, match="reset"):
        fresh.step()


def test_reset_refuses_what_does_not_fit() -> None:
    g = generator()
    q = MAPPING.joints(UR5E, (0.2, 0.3))
    before = g.step().q
    with pytest.raises(DataError, match="finite"):
        g.reset(np.full(6, np.nan))
    with pytest.raises(DataError, match="finite"):
        g.reset(np.zeros(5))
    with pytest.raises(DataError, match="above the table"):
        g.reset(UR5E.ik(MAPPING.flange((0.2, 0.3), lift_m=0.1), q))
    with pytest.raises(DataError, match="outside the workspace"):
        g.reset(MAPPING.joints(UR5E, (0.2, -0.05)))
    with pytest.raises(DataError, match="wrist_3"):
        g.reset(q + np.array([0, 0, 0, 0, 0, 0.1]))
    flipped = UR5E.ik(MAPPING.flange((0.2, 0.3)), q + np.array([0, 0.5, -0.5, 3.1, 3.14, 3.14]))
    with pytest.raises(DataError, match="belongs"):
        g.reset(flipped)
    np.testing.assert_array_equal(g.step().q, before)


def test_a_slightly_different_start_is_blended_in() -> None:
    g = SetpointGenerator(UR5E, MAPPING, LIMITS, 0.002)
    q = MAPPING.joints(UR5E, (0.2, 0.3)) + np.array([0.0, 0.004, 0.003, -0.01, 0.01, -0.02])
    g.reset(q)
    points = [g.step() for _ in range(10)]
    assert np.abs(points[0].q - q).max() < 1e-5
    g.set_target((0.3, 0.2), 0.0)
    points += [g.step() for _ in range(520)]
    check(points, 0.002)
    np.testing.assert_allclose(points[-1].q, MAPPING.joints(UR5E, points[-1].xy), atol=1e-9)


def test_hold_goes_on_along_the_motion() -> None:
    g = generator()
    g.set_target((0.1, 0.1), 0.0)
    for _ in range(15):
        point = g.step()
    at, v = np.array(point.xy), g.velocity
    g.hold()
    path = np.array([g.step().xy for _ in range(60)]) - at
    across = path @ np.array([-v[1], v[0]]) / np.linalg.norm(v)
    assert np.abs(across).max() < 1e-9
    assert np.all(np.diff(path @ v) >= -1e-12)
    assert g.at_rest


def test_mapping_and_forward_kinematics_agree() -> None:
    for xy in ((0.0, 0.0), (0.512, 0.1), (0.256, 0.512)):
        q = MAPPING.joints(UR5E, xy)
        np.testing.assert_allclose(MAPPING.xy(UR5E, q), xy, atol=1e-9)
        tip = MAPPING.tip(UR5E, q)
        np.testing.assert_allclose(tip[:3, 2], [0, 0, -1], atol=1e-9)
        assert tip[2, 3] == pytest.approx(0.005)


def test_workcell_is_reachable_with_margin() -> None:
    wide = tool_limits(UR5E, MAPPING, dataclasses.replace(LIMITS, workspace_margin=0.015))
    assert wide.speed > 0.43
    assert tool_limits(UR5E, MAPPING, LIMITS).speed > 0.47
    low = np.full(6, np.inf)
    for x in np.linspace(-0.015, 0.527, 9):
        for y in np.linspace(-0.015, 0.527, 9):
            q = MAPPING.joints(UR5E, (x, y))
            low = np.minimum(low, np.minimum(q - np.array(UR5E.low), np.array(UR5E.high) - q))
            assert abs(np.linalg.det(UR5E.jacobian(q))) > 0.015
            # Wrist 1 stays clear of the shoulder.
            assert np.linalg.norm(UR5E.frames(q)[3][:2, 3]) > 0.14
    assert low.min() > 0.3


def test_bad_configurations_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_tool_speed"):
        PathLimits(max_tool_speed=0.0)
    with pytest.raises(ConfigError, match="workspace"):
        PathLimits(workspace_low=(0.6, 0.0))
    with pytest.raises(ConfigError, match="rigid"):
        TableMapping(((1.0, 0.0, 0.0, 0.0),) * 4, 0.1, 0.0, 0.0, MAPPING.home)
    with pytest.raises(ConfigError, match="cannot hold"):
        tool_limits(UR5E, MAPPING, PathLimits(workspace_high=(1.5, 0.512)))
    with pytest.raises(ConfigError, match="servo period"):
        SetpointGenerator(UR5E, MAPPING, LIMITS, 1.0)
    with pytest.raises(ConfigError, match="natural_frequency"):
        SetpointGenerator(UR5E, MAPPING, PathLimits(natural_frequency=60.0), 0.01)
    with pytest.raises(ConfigError, match="leave the tool"):
        tool_limits(UR5E, MAPPING, PathLimits(max_joint_acceleration=0.2))
    with pytest.raises(ConfigError, match="joint limit"):
        tool_limits(UR5E, MAPPING, PathLimits(joint_margin=0.6))
