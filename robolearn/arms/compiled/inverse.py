"""Finds joint positions for a pose by damped least squares; see ``robolearn.arms.kinematics``."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from robolearn.arms.compiled.chain import fill
from robolearn.arms.compiled.forms import Chain
from robolearn.arms.compiled.kernel import kernel, part
from robolearn.arms.compiled.vectors import difference, put_three
from robolearn.arms.shapes import Jacobian, Joints, Twist
from robolearn.geometry import Pose
from robolearn.shapes import FloatRows, Floats


class Search(NamedTuple):
    """How long is looked, and what is enough; ``pull``: towards the posture in every step."""

    tolerance: float
    iterations: int
    accept: float
    pull: float


@kernel
def tracked(
    chain: Chain,
    goal: Pose,
    near: Joints,
    low: Joints,
    high: Joints,
    posture: Joints,
    search: Search,
) -> tuple[Joints, float]:
    """``q [dof]`` and the norm of what is left of the pose's error. ``posture [dof]``, or ``[0]``
    for none.
    """
    n, left = len(near), search.iterations
    T, J, frames = np.eye(4), np.empty((6, n)), np.empty((n + 1, 12))
    error, step, free = np.empty(6), np.empty(n), np.empty(n)
    q, moved, wish = near.copy(), np.empty(n), np.zeros(n)
    while True:
        fill(chain, q, frames, T, J)
        way, turn = difference(goal, T)
        put_three(error, 0, way)
        put_three(error, 3, turn)
        norm2 = _square(error)
        if left == 0 or norm2 < search.tolerance * search.tolerance:
            return q, math.sqrt(norm2)
        left -= 1
        damping = 0.5 * norm2 + 1e-12
        for i in range(len(posture)):
            wish[i] = search.pull * (posture[i] - q[i])
        _fill_step(J, error, damping, wish, step)
        inside = True
        for i in range(n):
            moved[i] = q[i] + step[i]
            inside = inside and low[i] <= moved[i] <= high[i]
        if inside:
            if norm2 < search.accept * search.accept:
                return moved, norm2
        else:
            # Without the joints that a step would push out at their limits.
            for i in range(n):
                below = moved[i] < low[i] and q[i] <= low[i]
                above = moved[i] > high[i] and q[i] >= high[i]
                free[i] = 0.0 if below or above else 1.0
                wish[i] = free[i] * wish[i]
                for j in range(6):
                    J[j, i] = J[j, i] * free[i]
            _fill_step(J, error, damping, wish, step)
            for i in range(n):
                moved[i] = min(max(q[i] + step[i], low[i]), high[i])
        for i in range(n):
            q[i] = moved[i]


@part
def _square(v: Twist) -> float:
    total = 0.0
    for k in range(len(v)):
        total += v[k] * v[k]
    return total


@part
def _fill_step(J: Jacobian, error: Twist, damping: float, wish: Joints, out: Joints) -> None:
    """``J+ error`` plus the part of ``wish`` that the task does not see."""
    n = J.shape[1]
    # Of fewer joints than directions the normal equations are the regular ones.
    narrow = n < 6
    m = n if narrow else 6
    A, b = np.zeros((m, m)), np.zeros(m)
    for i in range(m):
        for k in range(i + 1):
            for j in range(6 if narrow else n):
                A[i, k] += J[j, i] * J[j, k] if narrow else J[i, j] * J[k, j]
        A[i, i] += damping
        for j in range(6 if narrow else n):
            b[i] += J[j, i] * error[j] if narrow else -J[i, j] * wish[j]
        b[i] += 0.0 if narrow else error[i]
    _solve(A, b)
    for i in range(n):
        if narrow:
            out[i] = b[i]
            continue
        out[i] = wish[i]
        for j in range(6):
            out[i] += J[j, i] * b[j]


@part
def _solve(A: FloatRows, b: Floats) -> None:
    """``b`` becomes ``A^-1 b`` by Cholesky's factors, of a positive ``A`` whose lower half is told;
    NaN where it is none.
    """
    m = len(b)
    for i in range(m):
        for k in range(i + 1):
            value = A[i, k]
            for j in range(k):
                value -= A[i, j] * A[k, j]
            A[i, k] = math.sqrt(value) if i == k else value / A[k, k]
        for k in range(i):
            b[i] -= A[i, k] * b[k]
        b[i] = b[i] / A[i, i]
    for i in range(m - 1, -1, -1):
        for k in range(i + 1, m):
            b[i] -= A[k, i] * b[k]
        b[i] = b[i] / A[i, i]
