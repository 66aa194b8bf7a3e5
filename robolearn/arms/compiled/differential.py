"""Makes one step of ``robolearn/arms/differential.py``."""

from __future__ import annotations

import math

import numpy as np

from robolearn.arms.compiled.forms import StepBounds
from robolearn.arms.compiled.kernel import kernel, part
from robolearn.arms.shapes import InverseJacobian, Jacobian, Joints, Twist
from robolearn.shapes import FloatRows, Floats

# Nearer to a singularity than this every motion leads out of it.
_AT_SINGULARITY = 1e-4
# Joints brake before their limits with this share of the acceleration; further away than this
# [rad] no limit matters.
_BRAKE, _FAR = 0.6, 1.5
# Rows are orthogonal when their product is below this share of that of their lengths, or of all
# squares: rounding does not add up to it. What is off falls by its square in every sweep, of which
# there are hardly ever more than seven.
_ROUNDING, _NOTHING, _SWEEPS = 2e-15, 1e-30, 40
# What limited a step, as ``Limited`` names it.
NONE, SPEED, SINGULAR, MARGIN = 0, 1, 2, 4


@kernel
def solve(
    bounds: StepBounds, q: Joints, J: Jacobian, twist: Twist, qd: Joints, inverse: InverseJacobian
) -> tuple[int, float]:
    """Fill ``qd`` and the damped ``inverse``; what limited them, and the smallest singular value:
    NaN where the Jacobian has none. ``twist`` becomes the part of it that is followed.
    """
    return step(bounds, q, J, twist, qd, inverse)


@part
def step(
    bounds: StepBounds, q: Joints, J: Jacobian, twist: Twist, qd: Joints, inverse: InverseJacobian
) -> tuple[int, float]:
    """See :func:`solve`; ``q`` may go on behind the joints."""
    n = J.shape[1]
    # Singular values times the vectors of one side, and the vectors of the other.
    few, many = min(6, n), max(6, n)
    A, V, squares = np.empty((few, many)), np.zeros((few, few)), np.empty(few)
    for i in range(6):
        for j in range(n):
            if n < 6:
                A[j, i] = J[i, j]
            else:
                A[i, j] = J[i, j]
    if not _orthogonal(A, V, squares):
        return NONE, math.nan
    last = 0
    for k in range(few):
        if squares[k] < squares[last]:
            last = k
    smallest, damping = math.sqrt(squares[last]), 0.0
    if smallest < bounds.damped:
        share = smallest / bounds.damped
        damping = bounds.damping * bounds.damping * (1.0 - share * share)
    for i in range(n):
        for j in range(6):
            value = 0.0
            for k in range(few):
                two = V[k, i] * A[k, j] if n < 6 else A[k, i] * V[k, j]
                value += two / (squares[k] + damping)
            inverse[i, j] = value
    limited = NONE
    if _AT_SINGULARITY < smallest < bounds.slow:
        u, v = np.empty(6), np.empty(n)
        for j in range(6):
            u[j] = A[last, j] / smallest if n < 6 else V[last, j]
        for i in range(n):
            v[i] = V[last, i] if n < 6 else A[last, i] / smallest
        share = min(1.0, max(0.0, (smallest - bounds.stop) / (bounds.slow - bounds.stop)))
        if _turn_back(J, inverse, u, v, twist, share):
            limited = SINGULAR
    return limited | _slowed(bounds, q, J, inverse, twist, qd), smallest


@part
def _orthogonal(A: FloatRows, V: FloatRows, squares: Floats) -> bool:
    """Turn the rows of ``A [few, many]`` until they are orthogonal, by ``V [few, few]``: then
    ``squares [few]`` are those of its singular values. False where there is no such thing.

    One-sided Jacobi rotations (Hestenes 1958): at this size faster than LAPACK, and the numbers are
    the same on every machine.
    """
    few, many = A.shape
    scale = 0.0
    for k in range(few):
        for j in range(few):
            V[k, j] = 1.0 if j == k else 0.0
        for j in range(many):
            scale += A[k, j] * A[k, j]
    if not scale < math.inf:
        return False
    for _ in range(_SWEEPS):
        done = True
        for p in range(few - 1):
            for r in range(p + 1, few):
                a = b = c = 0.0
                for j in range(many):
                    a += A[p, j] * A[p, j]
                    b += A[r, j] * A[r, j]
                    c += A[p, j] * A[r, j]
                if abs(c) <= _ROUNDING * math.sqrt(a * b) + _NOTHING * scale:
                    continue
                done = False
                half = (b - a) / (2.0 * c)
                t = math.copysign(1.0, half) / (abs(half) + math.sqrt(1.0 + half * half))
                cosine = 1.0 / math.sqrt(1.0 + t * t)
                _turn_rows(A, p, r, cosine, t * cosine)
                _turn_rows(V, p, r, cosine, t * cosine)
        if done:
            for k in range(few):
                squares[k] = 0.0
                for j in range(many):
                    squares[k] += A[k, j] * A[k, j]
            return True
    return False


@part
def _turn_rows(A: FloatRows, p: int, r: int, cosine: float, sine: float) -> None:
    for j in range(A.shape[1]):
        x, y = A[p, j], A[r, j]
        A[p, j], A[r, j] = cosine * x - sine * y, sine * x + cosine * y


@part
def _turn_back(
    J: Jacobian, inverse: InverseJacobian, u: Twist, v: Joints, twist: Twist, share: float
) -> bool:
    """Leave of ``twist``, in place, this share of what makes the smallest singular value smaller;
    False where nothing of it does.
    """
    gradient, toward = np.empty(len(v)), np.zeros(6)
    fill_gradient(J, u, v, gradient)
    rate = square = 0.0
    for j in range(6):
        for i in range(len(v)):
            toward[j] += gradient[i] * inverse[i, j]
        rate += toward[j] * twist[j]
        square += toward[j] * toward[j]
    if rate >= 0.0 or square < 1e-18:
        return False
    for j in range(6):
        twist[j] -= (1.0 - share) * rate / square * toward[j]
    return True


@kernel
def gradient_of(J: Jacobian, u: Twist, v: Joints) -> Joints:
    """See :func:`robolearn.arms.differential.smallest_gradient`."""
    out = np.empty(len(v))
    fill_gradient(J, u, v, out)
    return out


@part
def fill_gradient(J: Jacobian, u: Twist, v: Joints, out: Joints) -> None:
    """The same, into ``out [dof]``."""
    n = len(v)
    ux, uy, uz, wx, wy, wz = u[0], u[1], u[2], u[3], u[4], u[5]
    ax = ay = az = bx = by = bz = cx = cy = cz = 0.0
    # Of the joints before each: all, less those from it on.
    for i in range(n):
        cx, cy, cz = cx + J[3, i] * v[i], cy + J[4, i] * v[i], cz + J[5, i] * v[i]
    for k in range(n):
        i = n - 1 - k
        lx, ly, lz, zx, zy, zz = J[0, i], J[1, i], J[2, i], J[3, i], J[4, i], J[5, i]
        s = v[i]
        ax, ay, az = ax + s * lx, ay + s * ly, az + s * lz
        bx, by, bz = bx + s * zx, by + s * zy, bz + s * zz
        cx, cy, cz = cx - s * zx, cy - s * zy, cz - s * zz
        # z . (A x u) + z . (B x w) + l . (u x C)
        out[i] = (
            zx * (ay * uz - az * uy + by * wz - bz * wy)
            + zy * (az * ux - ax * uz + bz * wx - bx * wz)
            + zz * (ax * uy - ay * ux + bx * wy - by * wx)
            + lx * (uy * cz - uz * cy)
            + ly * (uz * cx - ux * cz)
            + lz * (ux * cy - uy * cx)
        )


@part
def _slowed(
    bounds: StepBounds,
    q: Joints,
    J: Jacobian,
    inverse: InverseJacobian,
    twist: Twist,
    qd: Joints,
) -> int:
    """Fill ``qd``: before a limit the turning of the tool goes first, then its travel; then all
    joints alike for the fastest.
    """
    n, limited = J.shape[1], NONE
    travel, turn = np.zeros(n), np.zeros(n)
    for i in range(n):
        for j in range(3):
            travel[i] += inverse[i, j] * twist[j]
            turn[i] += inverse[i, 3 + j] * twist[3 + j]
        qd[i] = travel[i] + turn[i]
    # Of each joint towards its upper and its lower limit.
    ceilings = np.empty((n, 2))
    if _crossed(bounds, q, J, qd, ceilings):
        limited = MARGIN
        share = rest = 1.0
        for i in range(n):
            share = min(share, _share(travel[i], ceilings[i, 0]))
            share = min(share, _share(-travel[i], ceilings[i, 1]))
        for i in range(n):
            travel[i] *= share
            rest = min(rest, _share_left(travel[i], turn[i], ceilings[i, 0]))
            rest = min(rest, _share_left(-travel[i], -turn[i], ceilings[i, 1]))
        for i in range(n):
            qd[i] = travel[i] + rest * turn[i]
    fastest = 1.0
    for i in range(n):
        fastest = max(fastest, abs(qd[i]) / bounds.speed[i])
    if fastest > 1.0:
        limited |= SPEED
        for i in range(n):
            qd[i] /= fastest
    return limited


@part
def _crossed(bounds: StepBounds, q: Joints, J: Jacobian, qd: Joints, ceilings: FloatRows) -> bool:
    """The speeds that may remain where joints near their limits, infinite elsewhere; whether any of
    them is exceeded: whichever it is, shares change them all.
    """
    crossed = False
    for i in range(J.shape[1]):
        lever = math.sqrt(J[0, i] * J[0, i] + J[1, i] * J[1, i] + J[2, i] * J[2, i])
        brake = min(bounds.acceleration[i], bounds.turn, bounds.travel / max(lever, 1e-09))
        for side in range(2):
            room = bounds.high[i] - q[i] if side == 0 else q[i] - bounds.low[i]
            ceilings[i, side] = math.inf
            if room > _FAR:
                continue
            square = 2.0 * _BRAKE * brake * max(room, 0.0)
            if square < bounds.speed[i] * bounds.speed[i]:
                ceilings[i, side] = math.sqrt(square)
                crossed = crossed or (qd[i] if side == 0 else -qd[i]) > ceilings[i, side]
    return crossed


@part
def _share(speed: float, ceiling: float) -> float:
    """Of ``speed`` that keeps below the ceiling."""
    return 1.0 if speed <= ceiling else ceiling / speed


@part
def _share_left(base: float, more: float, ceiling: float) -> float:
    """Of ``more`` that fits on top of ``base``."""
    if base + more <= ceiling or more <= 0.0:
        return 1.0
    return max(0.0, (ceiling - base) / more)
