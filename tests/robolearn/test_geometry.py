"""Rotations and poses obey their algebra."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn import geometry as geo

angle = st.floats(-math.pi, math.pi)
coordinate = st.floats(-5.0, 5.0)
vector = st.tuples(coordinate, coordinate, coordinate).map(np.array)


@st.composite
def quaternions(draw: st.DrawFn) -> np.ndarray:
    q = np.array([draw(st.floats(-1, 1)) for _ in range(4)])
    norm = np.linalg.norm(q)
    return q / norm if norm > 1e-3 else np.array([1.0, 0.0, 0.0, 0.0])


@given(quaternions())
def test_quaternion_and_matrix_are_inverse(q: np.ndarray) -> None:
    R = geo.rotation_from_quat(q)
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(R) == pytest.approx(1.0)
    back = geo.quat_from_rotation(R)
    assert back[0] >= 0
    assert min(np.abs(back - q).max(), np.abs(back + q).max()) < 1e-9


@given(quaternions(), quaternions())
def test_quaternion_product_is_the_matrix_product(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_allclose(
        geo.rotation_from_quat(geo.quat_multiply(a, b)),
        geo.rotation_from_quat(a) @ geo.rotation_from_quat(b),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        geo.quat_multiply(a, geo.quat_conjugate(a)), [1.0, 0.0, 0.0, 0.0], atol=1e-12
    )


@given(vector, st.floats(1e-12, math.pi - 1e-4))
def test_rotation_vector_round_trip(axis: np.ndarray, turn: float) -> None:
    length = np.linalg.norm(axis)
    rotvec = turn * (axis / length if length > 1e-3 else np.array([0.0, 0.0, 1.0]))
    R = geo.rotation_from_rotvec(rotvec)
    np.testing.assert_allclose(geo.rotvec_from_rotation(R), rotvec, atol=1e-7)


@given(angle)
def test_elementary_rotations_agree_with_rotation_vectors(a: float) -> None:
    for rot, axis in ((geo.rot_x, 0), (geo.rot_y, 1), (geo.rot_z, 2)):
        np.testing.assert_allclose(rot(a), geo.rotation_from_rotvec(a * np.eye(3)[axis]), atol=1e-9)
    assert geo.yaw_of(geo.rot_z(a)) == pytest.approx(a)


@settings(max_examples=50)
@given(quaternions(), vector, vector)
def test_inverse_undoes_a_pose(q: np.ndarray, p: np.ndarray, point: np.ndarray) -> None:
    T = geo.pose(geo.rotation_from_quat(q), p)
    np.testing.assert_allclose(geo.inverse(T) @ T, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(geo.skew(p) @ point, np.cross(p, point), atol=1e-9)


def test_pose_error_by_hand() -> None:
    distance, turn = geo.pose_error(geo.pose(), geo.pose(geo.rot_y(0.5), np.array([3.0, 4.0, 0.0])))
    assert distance == pytest.approx(5.0)
    assert turn == pytest.approx(0.5)
