"""Computes rigid-body geometry in SI units: quaternions ``wxyz``, rotations, poses ``[4, 4]``.

``T_a_b`` maps coordinates in frame b to frame a. Formulas: Lynch and Park, "Modern Robotics"
(2017), chapter 3; quaternion extraction after Shepperd (1978), which never divides by a small
number; rotations as six numbers after Zhou et al. (2019).

Quaternions, and rotations from and to them, may have any number of leading dimensions; a single one
is computed with plain numbers, ten times faster than with arrays of one.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64
from numpy.typing import NDArray

Vector = Float64[NDArray[np.float64], "3"]
Rotation = Float64[NDArray[np.float64], "3 3"]
Pose = Float64[NDArray[np.float64], "4 4"]
PoseRows = Float64[NDArray[np.float64], "n 4 4"]
# Of a camera [px].
CameraMatrix = Float64[NDArray[np.float64], "3 3"]
# In a plane or a picture.
XY = Float64[NDArray[np.float64], "2"]
XYRows = Float64[NDArray[np.float64], "n 2"]
# x, y [m] and yaw [rad], as objects lie on a table.
PlanarPose = Float64[NDArray[np.float64], "3"]
# Position [m] and quaternion, real part first, as objects move in space.
PoseValues = Float64[NDArray[np.float64], "7"]
# Where an object is: on a table, or in space.
ObjectPose = PlanarPose | PoseValues
PlanarPoseRows = Float64[NDArray[np.float64], "n 3"]
PlanarPoses = Float64[NDArray[np.float64], "*batch 3"]
VectorRows = Float64[NDArray[np.float64], "n 3"]
Vectors = Float64[NDArray[np.float64], "*batch 3"]
Quaternions = Float64[NDArray[np.float64], "*batch 4"]
# Of recordings, too, which may be of single precision.
AnyQuaternions = Float[NDArray[Any], "*batch 4"]
Named = Bool[NDArray[np.bool_], "*batch"]
Rotations = Float64[NDArray[np.float64], "*batch 3 3"]
SixD = Float64[NDArray[np.float64], "*batch 6"]
# Position and quaternion.
Poses = Float64[NDArray[np.float64], "*batch 7"]
# Position [m] and rotation vector [rad].
RotvecPose = Float64[NDArray[np.float64], "6"]
Angles = Float64[NDArray[np.float64], "*batch"]
Directions = Float64[NDArray[np.float64], "*batch n"]
# One for all of them, or one each.
SpareDirections = Float64[NDArray[np.float64], "... n"]

# What the numbers of a pose in space are called.
POSE_COMPONENTS = ("x", "y", "z", "qw", "qx", "qy", "qz")
_SMALL = 1e-12


def rot_x(angle: float) -> Rotation:
    """Rotation about x by ``angle`` [rad]."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])


def rot_y(angle: float) -> Rotation:
    """Rotation about y by ``angle`` [rad]."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])


def rot_z(angle: float) -> Rotation:
    """Rotation about z by ``angle`` [rad]."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def pose(
    rotation: Rotation | None = None, position: Sequence[float] | Vector | None = None
) -> Pose:
    """A pose ``[4, 4]`` from a rotation ``[3, 3]`` and a position ``[3]`` [m] (default: none)."""
    T = np.eye(4)
    if rotation is not None:
        T[:3, :3] = rotation
    if position is not None:
        T[:3, 3] = np.asarray(position, dtype=np.float64)
    return T


def pose_from_rpy(values: Sequence[float]) -> Pose:
    """A pose ``[4, 4]`` from x, y, z [m] and roll, pitch, yaw [rad] about fixed axes (URDF)."""
    x, y, z, roll, pitch, yaw = values
    return pose(rot_z(yaw) @ rot_y(pitch) @ rot_x(roll), (x, y, z))


def inverse(T: Pose) -> Pose:
    """Inverse of a pose ``[4, 4]`` without a general matrix inversion."""
    R = T[:3, :3]
    return pose(R.T, -(R.T @ T[:3, 3]))


def skew(v: Vector) -> Rotation:
    """The matrix ``[3, 3]`` with ``skew(v) @ u == cross(v, u)``."""
    x, y, z = (float(c) for c in v)
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def rotation_from_rotvec(rotvec: Vector) -> Rotation:
    """Rotation ``[3, 3]`` from axis times angle ``[3]`` [rad] (Rodrigues' formula)."""
    angle = float(np.linalg.norm(rotvec))
    K = skew(rotvec)
    if angle < 1e-8:
        return np.eye(3) + K + 0.5 * K @ K
    return (
        np.eye(3) + math.sin(angle) / angle * K + (1.0 - math.cos(angle)) / (angle * angle) * K @ K
    )


def rotvecs_from_rotations(R: Rotations) -> Vectors:
    """Axes times angles ``[..., 3]`` [rad], angles in [0, pi], of rotations ``[..., 3, 3]``."""
    q = quat_from_rotation(R)
    n = np.linalg.norm(q[..., 1:], axis=-1, keepdims=True)
    angle = 2.0 * np.arctan2(n, q[..., :1])
    return q[..., 1:] * np.where(n < _SMALL, 2.0, angle / np.where(n < _SMALL, 1.0, n))


def rotvec_from_rotation(R: Rotation) -> Vector:
    """Axis times angle ``[3]`` [rad], angle in [0, pi], of a rotation ``[3, 3]``."""
    w, x, y, z = quat_from_rotation(R).tolist()
    n = math.sqrt(x * x + y * y + z * z)
    if n < _SMALL:
        return 2.0 * np.array([x, y, z])
    return np.array([x, y, z]) * (2.0 * math.atan2(n, w) / n)


def quat_multiply(a: Quaternions, b: Quaternions) -> Quaternions:
    """Hamilton product of quaternions ``wxyz [..., 4]``: first rotate by b, then by a."""
    aw, ax, ay, az = _components(a)
    bw, bx, by, bz = _components(b)
    return _stacked(
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )


def quat_conjugate(q: Quaternions) -> Quaternions:
    """The inverse of unit quaternions ``wxyz [..., 4]``."""
    return q * np.array([1.0, -1.0, -1.0, -1.0])


def quat_positive(q: Quaternions) -> Quaternions:
    """Of the two quaternions of a rotation ``[..., 4]`` the one with ``w >= 0``."""
    if q.ndim == 1:
        return -q if q[0] < 0.0 else q
    return np.where(q[..., :1] < 0.0, -q, q)


def quat_rotate(q: Quaternions, v: Vectors) -> Vectors:
    """Vectors ``[..., 3]`` rotated by unit quaternions ``wxyz [..., 4]``."""
    u, w = q[..., 1:], q[..., :1]
    t = 2 * np.cross(u, v)
    return v + w * t + np.cross(u, t)


def quat_heading(q: Quaternions) -> Angles:
    """Heading [rad] ``[...]`` of the x axis in the xy plane, of unit quaternions ``[..., 4]``."""
    w, x, y, z = (q[..., i] for i in range(4))
    return np.arctan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z))


def rotation_from_quat(q: Quaternions) -> Rotations:
    """Rotations ``[..., 3, 3]`` from quaternions ``wxyz [..., 4]`` (normalised here)."""
    w, x, y, z = _components(q / _length(q))
    first, second = _two_columns(w, x, y, z)
    third = (2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y))
    columns = (first, second, third)
    if q.ndim == 1:
        return np.array(list(zip(*columns, strict=True)))
    return np.stack([np.stack(column, axis=-1) for column in columns], axis=-1)


def names_rotation(q: AnyQuaternions) -> Named:
    """Which of the quaternions ``[..., 4]`` are rotations ``[...]``: a goal that nobody named is a
    pose of zeros, which turns nothing and lies nowhere.
    """
    return np.asarray(q.any(axis=-1))


def quat_from_rotation(R: Rotations) -> Quaternions:
    """Unit quaternions ``wxyz [..., 4]`` with ``w >= 0`` from rotations ``[..., 3, 3]``."""
    if R.ndim == 2:
        (a, b, c), (d, e, f), (g, h, i) = R.tolist()
    else:
        (a, b, c), (d, e, f), (g, h, i) = ([R[..., j, k] for k in range(3)] for j in range(3))
    # Each is four times the quaternion times one of its components, of which the largest is taken.
    multiples = (
        (1.0 + a + e + i, h - f, c - g, d - b),
        (h - f, 1.0 + a - e - i, b + d, c + g),
        (c - g, b + d, 1.0 - a + e - i, f + h),
        (d - b, c + g, f + h, 1.0 - a - e + i),
    )
    sizes = (a + e + i, a, e, i)
    if R.ndim == 2:
        q = np.array(multiples[max(range(4), key=sizes.__getitem__)])
    else:
        every = np.stack([np.stack(multiple, axis=-1) for multiple in multiples], axis=-2)
        best = np.argmax(np.stack(sizes, axis=-1), axis=-1)
        q = np.take_along_axis(every, best[..., None, None], axis=-2)[..., 0, :]
    return quat_positive(q / _length(q))


def six_d_from_quat(q: Quaternions) -> SixD:
    """First and second column ``[..., 6]`` of the rotations of unit quaternions ``wxyz [..., 4]``:
    numbers without a jump anywhere.
    """
    first, second = _two_columns(*_components(q))
    return _stacked(*first, *second)


def rotation_from_six_d(values: SixD) -> Rotations:
    """Inverse of :func:`six_d_from_quat` as matrices ``[..., 3, 3]``; columns that are not quite
    orthonormal are made so (Gram-Schmidt), and what is missing of a rotation is made up.
    """
    a, b = values[..., :3], values[..., 3:]
    first = unit(a, np.array([1.0, 0.0, 0.0]))
    rest = b - (first * b).sum(axis=-1, keepdims=True) * first
    # Any direction that is not parallel to the first stands in for a second one that is missing.
    spare = np.where(np.abs(first[..., 1:2]) < 0.9, [0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    spare = spare - (first * spare).sum(axis=-1, keepdims=True) * first
    second = unit(rest, spare / np.linalg.norm(spare, axis=-1, keepdims=True))
    return np.stack([first, second, np.cross(first, second)], axis=-1)


def unit(values: Directions, otherwise: SpareDirections) -> Directions:
    """Vectors ``[..., n]`` at length 1; ``otherwise`` where they have none to speak of."""
    length = np.sqrt((values * values).sum(axis=-1, keepdims=True))
    long_enough = length > 1e-9
    return np.where(long_enough, values / np.where(long_enough, length, 1.0), otherwise)


def _two_columns(w: Any, x: Any, y: Any, z: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Of the rotation of a unit quaternion."""
    return (
        (1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)),
        (2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)),
    )


def _components(q: Quaternions) -> Sequence[Any]:
    """Four numbers, or four arrays of them."""
    return q.tolist() if q.ndim == 1 else [q[..., i] for i in range(4)]


def _stacked(*parts: Any) -> NDArray[np.float64]:
    """Numbers or arrays as the last dimension of one array."""
    return np.array(parts) if isinstance(parts[0], float) else np.stack(parts, axis=-1)


def _length(q: Quaternions) -> Any:
    # Of one numpy's norm takes five times as long as what it computes.
    return np.sqrt(q.dot(q)) if q.ndim == 1 else np.linalg.norm(q, axis=-1, keepdims=True)


def yaw_of(R: Rotation) -> float:
    """Heading [rad] of the frame's x axis in the xy plane."""
    return math.atan2(float(R[1, 0]), float(R[0, 0]))


def pose_error(T_a: Pose, T_b: Pose) -> tuple[float, float]:
    """Distance [m] and rotation angle [rad] between two poses."""
    R = T_a[:3, :3].T @ T_b[:3, :3]
    return (
        float(np.linalg.norm(T_a[:3, 3] - T_b[:3, 3])),
        float(np.linalg.norm(rotvec_from_rotation(R))),
    )
