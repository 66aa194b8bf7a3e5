"""Redundant arms: inverse kinematics within limits, posture, out of reach."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.arms.compiled.chain import pose_jacobian_at
from robolearn.arms.kinematics import ik_dls, pose_difference, track
from robolearn.arms.models import ARMS, PANDA
from robolearn.errors import DataError
from robolearn.geometry import pose, rot_x, rotation_from_rotvec

HOME = np.array([0.0, -0.0418, 0.0, -2.3343, 0.0, 2.2925, 0.7854])
small = st.tuples(*[st.floats(-0.3, 0.3)] * 6).map(np.array)


def test_the_published_ready_pose_of_the_panda() -> None:
    # libfranka's ready pose; the flange is 0.3069 m in front and 0.5903 m above the base
    # (documented end-effector pose of the start position, less the hand).
    q = np.array([0, -math.pi / 4, 0, -3 * math.pi / 4, 0, math.pi / 2, math.pi / 4])
    T = PANDA.fk(q)
    np.testing.assert_allclose(T[:3, 3], [0.3069, 0.0, 0.5903], atol=1e-4)
    np.testing.assert_allclose(T[:3, 2], [0.0, 0.0, -1.0], atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(small)
def test_near_poses_are_reached_within_the_limits(change: np.ndarray) -> None:
    T = PANDA.fk(HOME)
    T[:3, 3] += 0.3 * change[:3]
    T[:3, :3] = rotation_from_rotvec(change[3:]) @ T[:3, :3]
    q, error = track(PANDA, T, HOME, tolerance=1e-8, iterations=50, posture=HOME)
    assert error < 1e-8
    assert PANDA.within_limits(q)
    assert np.abs(pose_difference(T, PANDA.fk(q))).max() < 1e-8


def test_posture_uses_the_freedom_that_the_pose_leaves() -> None:
    away: np.ndarray = HOME + np.array([0.5, 0.0, -0.5, 0.0, 0.3, 0.0, 0.0])
    T = PANDA.fk(away)
    q, error = track(PANDA, T, away, tolerance=0.0, iterations=100, posture=HOME)
    assert error < 1e-9
    assert np.linalg.norm(q - HOME) < 0.8 * np.linalg.norm(away - HOME)


@settings(max_examples=40, deadline=None)
@given(small.filter(lambda v: np.linalg.norm(v) > 1e-3))
def test_a_trusted_step_leaves_an_error_of_second_order(change: np.ndarray) -> None:
    change = 0.02 * change / np.linalg.norm(change)
    T = PANDA.fk(HOME)
    T[:3, 3] += change[:3]
    T[:3, :3] = rotation_from_rotvec(change[3:]) @ T[:3, :3]
    q, estimate = track(PANDA, T, HOME, tolerance=1e-6, iterations=9, posture=HOME, accept=0.04)
    left = float(np.linalg.norm(pose_difference(T, PANDA.fk(q))))
    assert estimate == pytest.approx(4e-4, rel=1e-6)
    assert left < 2.0 * estimate


def test_out_of_reach_ends_at_the_nearest_pose_within_the_limits() -> None:
    T = pose(rot_x(math.pi), (1.2, 0.0, 0.3))
    q, error = track(PANDA, T, HOME, tolerance=1e-6, iterations=200)
    assert 0.2 < error < 2.0
    assert PANDA.within_limits(q)
    assert PANDA.fk(q)[0, 3] > 0.7
    with pytest.raises(DataError, match="panda: no configuration near"):
        ik_dls(PANDA, T, HOME)


@pytest.mark.parametrize("name", sorted(ARMS))
def test_jacobian_is_the_derivative_for_every_arm(name: str) -> None:
    arm, h = ARMS[name], 1e-6
    rng = np.random.default_rng(0)
    for _ in range(5):
        q = rng.uniform(arm.low, arm.high)
        T, J = arm.fk_jacobian(q)
        np.testing.assert_array_equal(T, arm.fk(q))
        for plain, compiled in zip((T, J), pose_jacobian_at(arm.chain, q), strict=True):
            np.testing.assert_allclose(compiled, plain, rtol=0, atol=1e-12)
        for i in range(arm.dof):
            step = np.zeros(arm.dof)
            step[i] = h
            difference = pose_difference(arm.fk(q + step), arm.fk(q - step)) / (2 * h)
            np.testing.assert_allclose(difference, J[:, i], atol=1e-7)


@pytest.mark.parametrize("name", sorted(ARMS))
def test_one_step_is_that_of_the_damped_pseudoinverse(name: str) -> None:
    arm, rng = ARMS[name], np.random.default_rng(1)
    (low, high), compared = arm.bounds, 0
    for _ in range(20):
        q = rng.uniform(low + 0.3, high - 0.3)
        T = arm.fk(q + rng.normal(0.0, 0.02, arm.dof))
        posture = rng.uniform(low, high)
        J, error = arm.jacobian(q), pose_difference(T, arm.fk(q))
        damping = 0.5 * error @ error + 1e-12
        inverse = np.linalg.solve(J.T @ J + damping * np.eye(arm.dof), J.T)
        wish = 0.1 * (posture - q) if arm.dof >= 6 else np.zeros(arm.dof)
        expected = q + wish + inverse @ (error - J @ wish)
        found, _ = track(arm, T, q, tolerance=0.0, iterations=1, posture=posture)
        if np.all((expected > low) & (expected < high)):
            np.testing.assert_allclose(found, expected, atol=1e-6)
            compared += 1
        assert arm.within_limits(found)
    assert compared > 10


def test_joint_positions_of_another_arm_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 7 joint positions"):
        track(PANDA, PANDA.fk(HOME), np.zeros(6), tolerance=1e-6, iterations=9)
