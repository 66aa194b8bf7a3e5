"""Computes with vectors, quaternions and poses for kernels: tuples of plain numbers."""

from __future__ import annotations

import math

import numpy as np

from robolearn.arms.compiled.kernel import part
from robolearn.geometry import Pose, Rotation
from robolearn.shapes import OwnFloats

Vec = tuple[float, float, float]
# Real part first.
Quat = tuple[float, float, float, float]


@part
def total(a: Vec, b: Vec) -> Vec:
    """``a + b``."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@part
def times(s: float, v: Vec) -> Vec:
    """``s v``."""
    return s * v[0], s * v[1], s * v[2]


@part
def dot(a: Vec, b: Vec) -> float:
    """``a . b``."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@part
def size(v: Vec) -> float:
    """``|v|``."""
    return math.sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2])


@part
def three(a: OwnFloats, at: int) -> Vec:
    """Of ``a [n]``, from there on."""
    return a[at], a[at + 1], a[at + 2]


@part
def put_three(a: OwnFloats, at: int, v: Vec) -> None:
    """Into ``a [n]``, from there on."""
    a[at], a[at + 1], a[at + 2] = v


@part
def four(a: OwnFloats, at: int) -> Quat:
    """Of ``a [n]``, from there on."""
    return a[at], a[at + 1], a[at + 2], a[at + 3]


@part
def put_four(a: OwnFloats, at: int, q: Quat) -> None:
    """Into ``a [n]``, from there on."""
    a[at], a[at + 1], a[at + 2], a[at + 3] = q


@part
def unit(q: Quat) -> Quat:
    """``q`` at length 1."""
    length = math.sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
    return q[0] / length, q[1] / length, q[2] / length, q[3] / length


@part
def product(a: Quat, b: Quat) -> Quat:
    """Hamilton's: first the rotation ``b``, then ``a``."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )


@part
def turned(q: Quat, w: Vec, time_s: float) -> Quat:
    """``q`` after turning by ``w`` [rad/s] for a time, at length 1."""
    speed = size(w)
    half = 0.5 * speed * time_s
    s = math.sin(half) / speed if speed > 1e-12 else 0.5 * time_s
    return unit(product((math.cos(half), s * w[0], s * w[1], s * w[2]), q))


@part
def between(q: Quat, goal: Quat) -> Vec:
    """Rotation vector that leads from ``q`` to ``goal``, the shorter way."""
    w, x, y, z = product(goal, (q[0], -q[1], -q[2], -q[3]))
    if w < 0.0:
        w, x, y, z = -w, -x, -y, -z
    sine = size((x, y, z))
    scale = 2.0 * math.atan2(sine, w) / sine if sine > 1e-12 else 2.0
    return scale * x, scale * y, scale * z


@part
def facing(R: Rotation) -> Quat:
    """Of a rotation ``[3, 3]`` (or the pose that begins with it), its real part not negative."""
    a, e, i = R[0, 0], R[1, 1], R[2, 2]
    # Four times the quaternion times its largest component.
    if a + e + i >= max(a, e, i):
        q = (1.0 + a + e + i, R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1])
    elif a >= max(e, i):
        q = (R[2, 1] - R[1, 2], 1.0 + a - e - i, R[0, 1] + R[1, 0], R[0, 2] + R[2, 0])
    elif e >= i:
        q = (R[0, 2] - R[2, 0], R[0, 1] + R[1, 0], 1.0 - a + e - i, R[1, 2] + R[2, 1])
    else:
        q = (R[1, 0] - R[0, 1], R[0, 2] + R[2, 0], R[1, 2] + R[2, 1], 1.0 - a - e + i)
    w, x, y, z = unit(q)
    return (-w, -x, -y, -z) if w < 0.0 else (w, x, y, z)


@part
def place(T: Pose) -> Vec:
    """Of ``T [4, 4]``."""
    return T[0, 3], T[1, 3], T[2, 3]


@part
def put_pose(T: Pose, at: Vec, q: Quat) -> None:
    """Into ``T [4, 4]``, whose last row stays."""
    w, x, y, z = q
    T[0, 0], T[0, 1], T[0, 2] = (
        1.0 - 2.0 * (y * y + z * z),
        2.0 * (x * y - w * z),
        2.0 * (x * z + w * y),
    )
    T[1, 0], T[1, 1], T[1, 2] = (
        2.0 * (x * y + w * z),
        1.0 - 2.0 * (x * x + z * z),
        2.0 * (y * z - w * x),
    )
    T[2, 0], T[2, 1], T[2, 2] = (
        2.0 * (x * z - w * y),
        2.0 * (y * z + w * x),
        1.0 - 2.0 * (x * x + y * y),
    )
    T[0, 3], T[1, 3], T[2, 3] = at


@part
def difference(goal: Pose, now: Pose) -> tuple[Vec, Vec]:
    """Translation and rotation vector that lead from ``now [4, 4]`` to ``goal``."""
    # Of R = R_goal R_now^T, what its axis and angle need.
    a = _row_dot(goal, 0, now, 0)
    e = _row_dot(goal, 1, now, 1)
    i = _row_dot(goal, 2, now, 2)
    x = 0.5 * (_row_dot(goal, 2, now, 1) - _row_dot(goal, 1, now, 2))
    y = 0.5 * (_row_dot(goal, 0, now, 2) - _row_dot(goal, 2, now, 0))
    z = 0.5 * (_row_dot(goal, 1, now, 0) - _row_dot(goal, 0, now, 1))
    sine, cosine = size((x, y, z)), 0.5 * (a + e + i - 1.0)
    turn = (x, y, z)
    if cosine < -0.9:
        # The skew part loses its direction at half a turn.
        turn = between((1.0, 0.0, 0.0, 0.0), facing(_across(goal, now)))
    elif sine > 1e-12:
        turn = times(math.atan2(sine, cosine) / sine, turn)
    return (goal[0, 3] - now[0, 3], goal[1, 3] - now[1, 3], goal[2, 3] - now[2, 3]), turn


@part
def _across(goal: Pose, now: Pose) -> Rotation:
    """``R_goal R_now^T [3, 3]``."""
    R = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            R[i, j] = _row_dot(goal, i, now, j)
    return R


@part
def _row_dot(A: Pose, i: int, B: Pose, j: int) -> float:
    return A[i, 0] * B[j, 0] + A[i, 1] * B[j, 1] + A[i, 2] * B[j, 2]
