"""Rigid-body geometry in SI units: quaternions ``wxyz``, rotations ``[3, 3]``, poses ``[4, 4]``.

``T_a_b`` maps coordinates in frame b to frame a. Formulas: Lynch and Park, "Modern Robotics"
(2017), chapter 3; quaternion extraction after Shepperd (1978), which never divides by a small
number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_SMALL = 1e-12


def rot_x(angle: float) -> Array:
    """Rotation about x by ``angle`` [rad]."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])


def rot_y(angle: float) -> Array:
    """Rotation about y by ``angle`` [rad]."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])


def rot_z(angle: float) -> Array:
    """Rotation about z by ``angle`` [rad]."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def pose(rotation: Array | None = None, position: Sequence[float] | Array | None = None) -> Array:
    """A pose ``[4, 4]`` from a rotation ``[3, 3]`` and a position ``[3]`` [m] (default: none)."""
    T = np.eye(4)
    if rotation is not None:
        T[:3, :3] = rotation
    if position is not None:
        T[:3, 3] = np.asarray(position, dtype=np.float64)
    return T


def pose_from_rpy(values: Sequence[float]) -> Array:
    """A pose ``[4, 4]`` from x, y, z [m] and roll, pitch, yaw [rad] about fixed axes (URDF)."""
    x, y, z, roll, pitch, yaw = values
    return pose(rot_z(yaw) @ rot_y(pitch) @ rot_x(roll), (x, y, z))


def inverse(T: Array) -> Array:
    """Inverse of a pose ``[4, 4]`` without a general matrix inversion."""
    R = T[:3, :3]
    return pose(R.T, -(R.T @ T[:3, 3]))


def skew(v: Array) -> Array:
    """The matrix ``[3, 3]`` with ``skew(v) @ u == cross(v, u)``."""
    x, y, z = (float(c) for c in v)
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def rotation_from_rotvec(rotvec: Array) -> Array:
    """Rotation ``[3, 3]`` from axis times angle ``[3]`` [rad] (Rodrigues' formula)."""
    angle = float(np.linalg.norm(rotvec))
    K = skew(rotvec)
    if angle < 1e-8:
        return np.eye(3) + K + 0.5 * K @ K
    return (
        np.eye(3) + math.sin(angle) / angle * K + (1.0 - math.cos(angle)) / (angle * angle) * K @ K
    )


def rotvec_from_rotation(R: Array) -> Array:
    """Axis times angle ``[3]`` [rad], angle in [0, pi], of a rotation ``[3, 3]``."""
    w, x, y, z = quat_from_rotation(R).tolist()
    n = math.sqrt(x * x + y * y + z * z)
    if n < _SMALL:
        return 2.0 * np.array([x, y, z])
    return np.array([x, y, z]) * (2.0 * math.atan2(n, w) / n)


def quat_multiply(a: Array, b: Array) -> Array:
    """Hamilton product of two quaternions ``wxyz [4]``: first rotate by b, then by a."""
    aw, ax, ay, az = a.tolist()
    bw, bx, by, bz = b.tolist()
    return np.array(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ]
    )


def quat_conjugate(q: Array) -> Array:
    """The inverse of a unit quaternion ``wxyz [4]``."""
    return q * np.array([1.0, -1.0, -1.0, -1.0])


def rotation_from_quat(q: Array) -> Array:
    """Rotation ``[3, 3]`` from a quaternion ``wxyz [4]`` (normalised here)."""
    w, x, y, z = (q / np.linalg.norm(q)).tolist()
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def quat_from_rotation(R: Array) -> Array:
    """Unit quaternion ``wxyz [4]`` with ``w >= 0`` from a rotation ``[3, 3]`` (Shepperd)."""
    (a, b, c), (d, e, f), (g, h, i) = R.tolist()
    candidates = (a + e + i, a, e, i)
    best = max(range(4), key=candidates.__getitem__)
    if best == 0:
        q = np.array([1.0 + a + e + i, h - f, c - g, d - b])
    elif best == 1:
        q = np.array([h - f, 1.0 + a - e - i, b + d, c + g])
    elif best == 2:
        q = np.array([c - g, b + d, 1.0 - a + e - i, f + h])
    else:
        q = np.array([d - b, c + g, f + h, 1.0 - a - e + i])
    q = q / np.linalg.norm(q)
    return -q if q[0] < 0.0 else q


def yaw_of(R: Array) -> float:
    """Heading [rad] of the frame's x axis in the xy plane."""
    return math.atan2(float(R[1, 0]), float(R[0, 0]))


def pose_error(T_a: Array, T_b: Array) -> tuple[float, float]:
    """Distance [m] and rotation angle [rad] between two poses."""
    R = T_a[:3, :3].T @ T_b[:3, :3]
    return (
        float(np.linalg.norm(T_a[:3, 3] - T_b[:3, 3])),
        float(np.linalg.norm(rotvec_from_rotation(R))),
    )
