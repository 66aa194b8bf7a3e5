"""Computes where the links of a serial arm and its tool's tip are, and how joints move the tip."""

from __future__ import annotations

import math

import numpy as np

from robolearn.arms.compiled.forms import Chain
from robolearn.arms.compiled.kernel import kernel, part
from robolearn.arms.compiled.vectors import difference
from robolearn.arms.shapes import Jacobian, Joints, Twist
from robolearn.geometry import Pose
from robolearn.shapes import FloatRows

# A link of the standard convention is a, d and alpha's cosine and sine; any other one d and the
# frame of its joint in the link before it.
_STANDARD = 4


@part
def fill_frames(chain: Chain, q: Joints, frames: FloatRows) -> None:
    """Of the base and of every link ``[dof + 1, 12]``, at ``q [dof]`` or more."""
    links, standard = chain.links, chain.links.shape[1] == _STANDARD
    for k in range(12):
        frames[0, k] = chain.start[k]
    for i in range(len(links)):
        c, s = math.cos(q[i]), math.sin(q[i])
        for k in range(3):
            x, y, z = frames[i, k], frames[i, 3 + k], frames[i, 6 + k]
            p = frames[i, 9 + k]
            if standard:
                # Rz(q) Tz(d) Tx(a) Rx(alpha): y after the turn about z, then about the new x.
                a, d, ca, sa = links[i, 0], links[i, 1], links[i, 2], links[i, 3]
                across, along = c * y - s * x, c * x + s * y
                frames[i + 1, k] = along
                frames[i + 1, 3 + k] = ca * across + sa * z
                frames[i + 1, 6 + k] = ca * z - sa * across
                frames[i + 1, 9 + k] = p + a * along + d * z
            else:
                # To the joint's frame, then Rz(q) Tz(d).
                u = links[i, 1] * x + links[i, 2] * y + links[i, 3] * z
                v = links[i, 4] * x + links[i, 5] * y + links[i, 6] * z
                w = links[i, 7] * x + links[i, 8] * y + links[i, 9] * z
                p += links[i, 10] * x + links[i, 11] * y + links[i, 12] * z
                frames[i + 1, k] = c * u + s * v
                frames[i + 1, 3 + k] = c * v - s * u
                frames[i + 1, 6 + k] = w
                frames[i + 1, 9 + k] = p + links[i, 0] * w


@part
def fill(chain: Chain, q: Joints, frames: FloatRows, T: Pose, J: Jacobian) -> None:
    """All of it; the tip's pose ``[4, 4]``, of whose last row nothing is written, and its Jacobian:
    joint i turns about z of frame i - 1, or of its own.
    """
    fill_frames(chain, q, frames)
    last, end, links = len(chain.links), chain.end, chain.links
    for k in range(3):
        x, y, z = frames[last, k], frames[last, 3 + k], frames[last, 6 + k]
        for column in range(4):
            u, v, w = end[3 * column], end[3 * column + 1], end[3 * column + 2]
            T[k, column] = u * x + v * y + w * z
        T[k, 3] = frames[last, 9 + k] + T[k, 3]
    first = 0 if links.shape[1] == _STANDARD else 1
    for i in range(last):
        f = first + i
        zx, zy, zz = frames[f, 6], frames[f, 7], frames[f, 8]
        rx, ry, rz = T[0, 3] - frames[f, 9], T[1, 3] - frames[f, 10], T[2, 3] - frames[f, 11]
        J[0, i], J[1, i], J[2, i] = zy * rz - zz * ry, zz * rx - zx * rz, zx * ry - zy * rx
        J[3, i], J[4, i], J[5, i] = zx, zy, zz


@kernel
def pose_jacobian_at(chain: Chain, q: Joints) -> tuple[Pose, Jacobian]:
    """The tip's ``[4, 4]`` and ``[6, dof]``."""
    T, J = np.eye(4), np.empty((6, len(chain.links)))
    fill(chain, q, np.empty((len(chain.links) + 1, 12)), T, J)
    return T, J


@kernel
def twist_between(goal: Pose, now: Pose) -> Twist:
    """See :func:`robolearn.arms.kinematics.pose_difference`."""
    (x, y, z), (a, b, c) = difference(goal, now)
    return np.array((x, y, z, a, b, c))
