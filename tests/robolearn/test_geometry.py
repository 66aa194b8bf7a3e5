"""Rotations and poses obey their algebra, and are those of scipy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

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


def scipys(q: np.ndarray) -> Rotation:
    """Quaternions ``wxyz [n, 4]`` as scipy has them."""
    return Rotation.from_quat(q[:, [1, 2, 3, 0]])


@st.composite
def batches(draw: st.DrawFn) -> np.ndarray:
    """Unit quaternions ``[n, 4]``: any, and turns by (nearly) nothing or half of one, where signs
    and largest components change.
    """
    special = st.sampled_from(
        [
            np.array([w, *axis])
            for w in (0.0, 1e-9, -1e-9, 1.0, -1.0)
            for axis in (*np.eye(3), *(1e-9 * np.eye(3)), np.ones(3), [1.0, 1.0, 0.0])
            if w * w + np.dot(axis, axis) > 1e-6
        ]
    )
    rows = np.array(draw(st.lists(quaternions() | special, min_size=1, max_size=6)))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def assert_same_rotations(found: np.ndarray, wanted: Rotation) -> None:
    np.testing.assert_allclose(
        geo.rotation_from_quat(found), wanted.as_matrix(), atol=1e-9, rtol=0.0
    )


@given(batches())
def test_conversions_are_those_of_scipy(q: np.ndarray) -> None:
    turns = scipys(q)
    matrices = turns.as_matrix()
    np.testing.assert_allclose(geo.rotation_from_quat(q), matrices, atol=1e-12)
    back = geo.quat_from_rotation(matrices)
    assert (back[:, 0] >= 0).all()
    assert_same_rotations(back, turns)
    columns = np.concatenate([matrices[:, :, 0], matrices[:, :, 1]], axis=1)
    np.testing.assert_allclose(geo.six_d_from_quat(q), columns, atol=1e-12)
    np.testing.assert_allclose(geo.rotation_from_six_d(columns), matrices, atol=1e-9)
    # Straight up or down there is no heading.
    level = np.hypot(matrices[:, 1, 0], matrices[:, 0, 0]) > 1e-6
    headings = np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0])
    apart = np.angle(np.exp(1j * (geo.quat_heading(q) - headings)))
    np.testing.assert_allclose(apart[level], 0.0, atol=1e-6)
    for row, turn in zip(matrices, turns, strict=True):
        rotvec = geo.rotvec_from_rotation(row)
        assert np.linalg.norm(rotvec) <= math.pi + 1e-12
        np.testing.assert_allclose(
            geo.rotation_from_rotvec(rotvec), turn.as_matrix(), atol=1e-7, rtol=0.0
        )


@given(batches(), quaternions(), vector)
def test_products_and_rotated_vectors_are_those_of_scipy(
    a: np.ndarray, b: np.ndarray, v: np.ndarray
) -> None:
    several = np.tile(b, (len(a), 1))
    assert_same_rotations(geo.quat_multiply(a, several), scipys(a) * scipys(several))
    assert_same_rotations(geo.quat_conjugate(a), scipys(a).inv())
    np.testing.assert_allclose(
        geo.quat_rotate(a, np.tile(v, (len(a), 1))), scipys(a).apply(v), atol=1e-9
    )


@given(batches(), quaternions())
def test_one_and_many_are_the_same_to_the_last_bits(a: np.ndarray, b: np.ndarray) -> None:
    several = np.tile(b, (len(a), 1))
    for many, one in (
        (geo.quat_multiply(a, several), [geo.quat_multiply(q, b) for q in a]),
        (geo.quat_conjugate(a), [geo.quat_conjugate(q) for q in a]),
        (geo.quat_positive(a), [geo.quat_positive(q) for q in a]),
        (geo.six_d_from_quat(a), [geo.six_d_from_quat(q) for q in a]),
    ):
        np.testing.assert_array_equal(many, np.array(one))
    R = geo.rotation_from_quat(a)
    # A length of four numbers may be summed in another order: a few of the last bits.
    last = 8.0 * np.finfo(float).eps
    np.testing.assert_allclose(R, [geo.rotation_from_quat(q) for q in a], atol=last, rtol=0.0)
    np.testing.assert_allclose(
        geo.quat_from_rotation(R[None])[0], [geo.quat_from_rotation(r) for r in R], atol=last
    )


@pytest.mark.parametrize(
    "values", [np.zeros(6), np.array([1.0, 0, 0, 1.0, 0, 0]), np.array([0, 0, 0, 0, 0, 1.0])]
)
def test_six_numbers_that_are_no_rotation_become_one(values: np.ndarray) -> None:
    R = geo.rotation_from_six_d(values)
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(R) == pytest.approx(1.0)
