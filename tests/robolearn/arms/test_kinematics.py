"""The UR5e's kinematics: published numbers, inverse against forward, Jacobian, errors."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.arms.kinematics import ik_dls
from robolearn.arms.models import ARMS, UR5E
from robolearn.errors import DataError
from robolearn.geometry import pose, pose_error, rot_x, rotation_from_rotvec

turn = st.floats(-2 * math.pi, 2 * math.pi)
joints = st.tuples(turn, turn, st.floats(-math.pi, math.pi), turn, turn, turn).map(np.array)
GENERIC = dataclasses.replace(UR5E, solver="dls")


def test_forward_kinematics_of_the_stretched_arm() -> None:
    # All joints at zero: the arm lies stretched along -x, the flange beside it looks along -y.
    T = UR5E.fk(np.zeros(6))
    np.testing.assert_allclose(T[:3, 3], [-0.8172, -0.2329, 0.0628], atol=1e-9)
    np.testing.assert_allclose(T[:3, 2], [0.0, -1.0, 0.0], atol=1e-12)


def test_published_totals() -> None:
    assert sum(link.mass_kg for link in UR5E.links) == pytest.approx(17.7)
    assert UR5E.dof == 6
    assert all(name == arm.name for name, arm in ARMS.items())


@settings(max_examples=200, deadline=None)
@given(joints)
def test_inverse_reaches_the_pose_on_the_nearest_branch(q: np.ndarray) -> None:
    T = UR5E.fk(q)
    found = UR5E.ik(T, q)
    distance, angle = pose_error(UR5E.fk(found), T)
    assert distance < 1e-7
    assert angle < 1e-6
    assert UR5E.within_limits(found)
    # The nearest solution is at least as near as the one the pose was made from.
    # On the very limit of a joint, rounding may put it outside and the next turn is the answer.
    on_limit = bool((np.abs(np.abs(q) - 2 * math.pi) < 1e-6).any())
    near = np.linalg.norm(found - q) < 1e-3
    assert near or on_limit or abs(math.sin(q[4])) < 1e-3 or _folded(q)


def _folded(q: np.ndarray) -> bool:
    """Near a singular shape small pose errors are large joint errors: skip the comparison."""
    return abs(np.linalg.det(UR5E.jacobian(q))) < 1e-5


@pytest.mark.parametrize("spread", [0.05, 0.5])
def test_no_other_solution_is_nearer(spread: float) -> None:
    rng = np.random.default_rng(0)
    for q in rng.uniform(-3.0, 3.0, (60, 6)):
        if _folded(q):
            continue
        T = UR5E.fk(q)
        # Asked from everywhere around it, the inverse tells every solution there is.
        starts = rng.uniform(UR5E.low, UR5E.high, (100, 6))
        solutions = np.array([UR5E.ik(T, start) for start in starts])
        assert len(np.unique(np.sin(solutions).round(6), axis=0)) >= 2
        # Between two of them it is hard to tell.
        one, other = rng.choice(solutions, 2)
        near = one + rng.uniform(0.3, 0.7) * (other - one) + spread * rng.normal(size=6)
        turned = solutions + 2 * math.pi * np.round((near - solutions) / (2 * math.pi))
        within = np.abs(turned) <= UR5E.high
        distances = np.linalg.norm(np.where(within, turned, solutions) - near, axis=1)
        assert np.linalg.norm(UR5E.ik(T, near) - near) <= distances.min() + 1e-9


@settings(max_examples=60, deadline=None)
@given(joints)
def test_inverse_recovers_configurations(q: np.ndarray) -> None:
    if abs(np.linalg.det(UR5E.jacobian(q))) < 1e-4:
        return
    np.testing.assert_allclose(UR5E.ik(UR5E.fk(q), q + 0.01), np.array(q), atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(joints)
def test_jacobian_is_the_derivative(q: np.ndarray) -> None:
    J, h = UR5E.jacobian(q), 1e-6
    T = UR5E.fk(q)
    for i in range(6):
        step = np.zeros(6)
        step[i] = h
        moved = UR5E.fk(q + step)
        np.testing.assert_allclose((moved[:3, 3] - T[:3, 3]) / h, J[:3, i], atol=1e-5)
        W = (moved[:3, :3] @ T[:3, :3].T - np.eye(3)) / h
        np.testing.assert_allclose([W[2, 1], W[0, 2], W[1, 0]], J[3:, i], atol=1e-5)


def test_generic_solver_agrees_with_the_closed_form() -> None:
    rng = np.random.default_rng(0)
    home = np.array([-0.3, -1.3, 2.4, -2.7, -1.57, -0.3])
    for _ in range(20):
        q = home + rng.uniform(-0.3, 0.3, 6)
        T = UR5E.fk(q)
        near = q + rng.uniform(-0.05, 0.05, 6)
        np.testing.assert_allclose(GENERIC.ik(T, near), UR5E.ik(T, near), atol=1e-7)


def test_wrist_singularity_keeps_the_last_joint() -> None:
    q = np.array([0.3, -1.2, 1.5, -0.8, 0.0, 0.7])
    found = UR5E.ik(UR5E.fk(q), q)
    assert found[5] == pytest.approx(0.7, abs=1e-3)
    assert max(pose_error(UR5E.fk(found), UR5E.fk(q))) < 1e-6


@pytest.mark.parametrize("arm", [UR5E, GENERIC])
def test_out_of_reach_is_a_readable_error(arm) -> None:
    far = pose(rot_x(math.pi), (1.5, 0.0, 0.2))
    with pytest.raises(DataError, match=r"1\.500, 0\.000, 0\.200"):
        arm.ik(far, np.zeros(6))


def test_not_finite_is_refused() -> None:
    with pytest.raises(DataError, match="finite"):
        UR5E.ik(np.full((4, 4), np.nan), np.zeros(6))


def test_too_near_the_axis_and_limits() -> None:
    with pytest.raises(DataError):
        UR5E.ik(pose(rot_x(math.pi), (0.05, 0.0, 0.2)), np.zeros(6))
    narrow = dataclasses.replace(UR5E, low=(-0.1,) * 6, high=(0.1,) * 6)
    with pytest.raises(DataError, match="limits"):
        narrow.ik(UR5E.fk(np.array([1.0, -1.0, 1.0, 0.5, 1.0, 0.0])), np.zeros(6))


def test_whole_turns_are_chosen_near_the_start_and_within_limits() -> None:
    q = np.array([3.0, -1.2, 1.5, -0.8, 1.2, 6.0])
    T = UR5E.fk(q)
    np.testing.assert_allclose(UR5E.ik(T, q), q, atol=1e-9)
    # Asked near 6.3 + a bit, joint 6 has to come back a whole turn.
    near = q.copy()
    near[5] += 2 * math.pi
    assert UR5E.within_limits(UR5E.ik(T, near))


def test_ik_dls_from_a_moderate_distance() -> None:
    q = np.array([-0.3, -1.3, 2.4, -2.7, -1.57, -0.3])
    T = UR5E.fk(q)
    T[:3, :3] = T[:3, :3] @ rotation_from_rotvec(np.array([0.1, -0.2, 0.1]))
    assert max(pose_error(UR5E.fk(ik_dls(UR5E, T, q)), T)) < 1e-8
