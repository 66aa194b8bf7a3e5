"""What the emulated controller does with commands, without sockets or time."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.emulators.plant import KinematicPlant
from hardware.emulators.ur.controller import SERVO_J, UrEmulator, UrEmulatorConfig
from hardware.emulators.ur.motion import JointMotion, MotionLimits

DT = 0.002
LIMITS = MotionLimits()


def motion():
    return JointMotion(np.zeros(6), LIMITS)


def ramp(arm, speed, seconds, lookahead=0.1, gain=300.0):
    for i in range(round(seconds / DT)):
        target = np.full(6, speed * (i + 1) * DT)
        assert arm.servo(target, 0.002, lookahead, gain, DT) == ""
        assert arm.step(DT) == ""
    return target


@pytest.mark.parametrize(("lookahead", "gain"), [(0.03, 300.0), (0.1, 300.0), (0.1, 1200.0)])
def test_servo_lags_a_ramp_by_the_lookahead_time(lookahead, gain):
    arm = motion()
    target = ramp(arm, 0.5, 2.0, lookahead, gain)
    lag_s = float((target - arm.q)[0]) / 0.5
    assert lag_s == pytest.approx(lookahead * math.sqrt(300.0 / gain), abs=DT)
    np.testing.assert_allclose(arm.qd, 0.5, rtol=2e-3)  # sampled where a saw-tooth is lowest


def test_stop_decelerates_at_the_given_rate_along_the_direction_of_motion():
    arm = motion()
    ramp(arm, 1.0, 1.0)
    before, v = arm.q.copy(), float(arm.qd[0])
    arm.stop(10.0)
    ticks = 0
    while not arm.at_rest:
        assert arm.step(DT) == ""
        ticks += 1
    assert ticks == math.ceil(round(v / 10.0 / DT, 6))
    np.testing.assert_allclose(arm.q - before, v * v / 20.0, rtol=2e-3)


@settings(max_examples=20, deadline=None)
@given(
    target=st.lists(st.floats(-6, 6), min_size=6, max_size=6),
    speed=st.floats(0.5, 3.3),
    accel=st.floats(1, 40),
)
def test_move_ends_exactly_within_its_limits(target, speed, accel):
    arm = motion()
    assert arm.move(np.array(target), speed, accel) == ""
    previous, fastest, ticks = arm.qd, 0.0, 0
    step = 0.01
    while not arm.at_rest and ticks < 100_000:
        arm.step(step)
        assert np.abs(arm.qd - previous).max() <= accel * step * 1.001 + 1e-9
        fastest, previous, ticks = max(fastest, float(np.abs(arm.qd).max())), arm.qd, ticks + 1
    np.testing.assert_array_equal(arm.q, target)
    assert fastest <= speed * 1.0001


def test_a_move_from_motion_stops_first():
    arm = motion()
    ramp(arm, 1.0, 0.5)
    assert arm.move(np.zeros(6), 1.0, 5.0) == ""
    while not arm.at_rest:
        arm.step(DT)
        assert np.abs(arm.qd).max() <= 1.05
    np.testing.assert_array_equal(arm.q, np.zeros(6))


def test_speed_changes_at_the_given_acceleration():
    arm = motion()
    assert arm.speed(np.array([1.0, 0, 0, 0, 0, 0]), 5.0) == ""
    for _ in range(50):
        arm.step(DT)
    np.testing.assert_allclose(arm.qd[0], 0.5)
    for _ in range(100):
        arm.step(DT)
    np.testing.assert_allclose(arm.qd[0], 1.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 7.0])
def test_targets_that_are_not_finite_or_out_of_range_are_refused(bad):
    q = np.array([bad, 0, 0, 0, 0, 0])
    for problem in (
        motion().servo(q, 0.002, 0.1, 300.0, DT),
        motion().speed(q, 1.0),
        motion().move(q, 1.0, 1.0),
    ):
        assert problem
    arm = motion()
    assert arm.servo(np.zeros(6), 0.002, math.nan, 300.0, DT)
    assert arm.speed(np.zeros(6), math.nan)
    assert arm.move(np.ones(6), math.nan, 1.0)
    assert arm.at_rest


@given(jump=st.floats(0.001, 3.0), since=st.floats(0.002, 0.5))
def test_a_setpoint_is_refused_when_it_implies_more_than_the_joint_speed(jump, since):
    arm = motion()
    problem = arm.servo(np.array([jump, 0, 0, 0, 0, 0]), 0.002, 0.1, 300.0, since)
    allowed = LIMITS.joint_speed_rad_s * since + LIMITS.jump_slack_rad
    assert bool(problem) == (jump > allowed)


@settings(max_examples=30, deadline=None)
@given(gap=st.floats(0.002, 0.3), seed=st.integers(0, 1000))
def test_bursts_of_setpoints_never_drive_a_joint_beyond_its_speed_limit(gap, seed):
    arm, rng = motion(), np.random.default_rng(seed)
    for _ in range(20):
        jump = rng.uniform(-1, 1, 6) * LIMITS.joint_speed_rad_s * gap
        if arm.servo(arm.q + jump, 0.002, 0.03, 500.0, gap):
            continue
        for _ in range(10):
            before = arm.q
            assert arm.step(DT) == ""
            assert np.abs(arm.qd).max() <= LIMITS.joint_speed_rad_s * (1 + 1e-9)
            assert np.abs(arm.q - before).max() <= LIMITS.joint_speed_rad_s * DT * (1 + 1e-9)


@pytest.mark.parametrize(("gap_s", "refused"), [(0.002, True), (0.03, False)])
def test_a_step_after_a_host_stood_still_is_judged_by_the_time_that_passed(gap_s, refused):
    emulator = UrEmulator(KinematicPlant(np.zeros(6)), UrEmulatorConfig())
    emulator._start_program()
    emulator.int_in[0] = SERVO_J
    start_ns = emulator._last_input_ns = time.monotonic_ns()
    for t_s, angle in ((0.0, 0.0), (gap_s, 0.06)):
        values = np.array([*[angle] * 6, 0.0, 0.0, 0.002, 0.03, 500.0])
        emulator._setpoints.append((start_ns + round(t_s * 1e9), values))
        emulator.control(start_ns)
    assert emulator.status.protective is refused
