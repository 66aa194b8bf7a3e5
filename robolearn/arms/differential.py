"""Turns a wanted motion of a tool into joint speeds: damped, slowed near singularities and limits.

One step of velocity-level inverse kinematics, without state. Damping grows as the smallest singular
value of the Jacobian falls (Nakamura and Hanafusa 1986; Chiaverini, Siciliano and Egeland 1994):
``l^2 = l_max^2 (1 - (s / eps)^2)`` below ``eps``. Damping alone bounds neither the joints' speeds
nor the way into a singularity, so three things come after it:

* a motion that makes the smallest singular value smaller loses that part of itself, gradually from
  ``slow`` on and wholly at ``stop``; one that makes it larger, or leaves it, is free: an arm can
  always back out,
* all joints are slowed alike until the fastest keeps its speed, on the way in and out,
* a joint that nears its limit takes the turning of the tool away first, then its travel, so that
  the other of the two goes on.

Singular values mix metres and radians, as published; the numbers are for arms of about a metre.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.linalg import get_lapack_funcs  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

from robolearn.arms.shapes import InverseJacobian, Jacobian, Joints, Twist
from robolearn.errors import ConfigError

# LAPACK's divide and conquer directly: numpy's checks cost as much again at this size.
_gesdd: Any = cast("Any", get_lapack_funcs)("gesdd")
# Nearer to a singularity than this every motion leads out of it.
_AT_SINGULARITY = 1e-4
# Joints brake before their limits with this share of the acceleration; further away than this
# [rad] no limit matters.
_BRAKE, _FAR = 0.6, 1.5


class Limited(enum.Flag):
    """What kept a step from being the motion that was asked for."""

    NONE = 0
    SPEED = enum.auto()
    SINGULAR = enum.auto()
    MARGIN = enum.auto()


@dataclass(frozen=True, slots=True)
class Singularity:
    """Smallest singular values at which damping begins, motion inwards is slowed and forbidden.

    Defaults: a UR5e with a gripper has .22 at home, .08 with the wrist bent by .3 rad, .03 by .1.
    """

    damped: float = 0.08
    slow: float = 0.06
    stop: float = 0.03
    # Largest damping factor.
    damping: float = 0.05

    def __post_init__(self) -> None:
        if not (0.0 < self.stop < self.slow <= self.damped < 1.0 and 0.0 < self.damping < 1.0):
            raise ConfigError(
                "singularity: expected 0 < stop < slow <= damped < 1 and damping in (0, 1), got"
                f" {self}"
            )


@dataclass(frozen=True, slots=True)
class Step:
    """Joint speeds ``qd [dof]`` [rad/s], what limited them, the smallest singular value, and the
    damped inverse ``[dof, 6]`` of the Jacobian.
    """

    qd: Joints
    limited: Limited
    smallest: float
    inverse: InverseJacobian


class DampedStep:
    """``low``, ``high`` [rad], ``speed`` [rad/s] and ``acceleration`` [rad/s^2] per joint."""

    def __init__(
        self,
        low: Sequence[float],
        high: Sequence[float],
        speed: Sequence[float],
        acceleration: Sequence[float],
        *,
        tool_acceleration: tuple[float, float] = (math.inf, math.inf),
        singularity: Singularity | None = None,
    ) -> None:
        """``tool_acceleration`` [m/s^2], [rad/s^2]: a joint brakes before its limit so gently that
        the tool's travel and turning stay within it.
        """
        self.singularity = singularity or Singularity()
        self._rows = [*zip(low, high, speed, acceleration, strict=True)]
        self._travel, self._turn = tool_acceleration

    def speeds(self, q: Joints, jacobian: Jacobian, twist: Twist) -> Step:
        """Joint speeds at ``q [dof]`` for a ``twist [6]`` [m/s, rad/s] in the Jacobian's axes."""
        U, S, Vt, info = _gesdd(jacobian, full_matrices=0)
        smallest = float(S[-1])
        if info or not math.isfinite(smallest):
            raise FloatingPointError(f"the Jacobian has no singular values: {jacobian}")
        c = self.singularity
        damping = 0.0
        if smallest < c.damped:
            damping = c.damping * c.damping * (1.0 - (smallest / c.damped) ** 2)
        inverse = (Vt.T * (S / (S * S + damping))).dot(U.T)
        limited = Limited.NONE
        if _AT_SINGULARITY < smallest < c.slow:
            kept = min(1.0, max(0.0, (smallest - c.stop) / (c.slow - c.stop)))
            held = _not_inwards(jacobian, inverse, U[:, -1], Vt[-1], twist, kept)
            if held is not None:
                twist, limited = held, Limited.SINGULAR
        travel, turn = inverse[:, :3].dot(twist[:3]), inverse[:, 3:].dot(twist[3:])
        qd, why = self._slowed(q.tolist(), jacobian, travel.tolist(), turn.tolist())
        # Together only where there are two: an operation of flags takes as long as one of numpy's.
        both = limited | why if limited and why else limited or why
        return Step(np.array(qd), both, smallest, inverse)

    def _slowed(
        self, q: list[float], J: Jacobian, travel: list[float], turn: list[float]
    ) -> tuple[list[float], Limited]:
        limited = Limited.NONE
        qd = [a + b for a, b in zip(travel, turn, strict=True)]
        ceilings = self._ceilings(q, J, qd)
        if ceilings:
            limited = Limited.MARGIN
            share = min((1.0, *(_share(travel[i], c) for i, c in ceilings)))
            travel = [share * v for v in travel]
            rest = min((1.0, *(_share_left(travel[i], turn[i], c) for i, c in ceilings)))
            qd = [a + rest * b for a, b in zip(travel, turn, strict=True)]
        fastest = 1.0
        for v, (_, _, most, _) in zip(qd, self._rows, strict=True):
            fastest = max(fastest, abs(v) / most)
        if fastest > 1.0:
            limited |= Limited.SPEED
            qd = [v / fastest for v in qd]
        return qd, limited

    def _ceilings(self, q: list[float], J: Jacobian, qd: list[float]) -> list[tuple[int, float]]:
        """Joints that near a limit, with the speed that may remain (signed as the limit lies)."""
        found: list[tuple[int, float]] = []
        crossed = False
        for i, (at, v, (low, high, most, a)) in enumerate(zip(q, qd, self._rows, strict=True)):
            if high - at > _FAR and at - low > _FAR:
                continue
            for side, room in ((1.0, high - at), (-1.0, at - low)):
                if room > _FAR:
                    continue
                lever = math.hypot(*J[:3, i].tolist())
                brake = min(a, self._turn, self._travel / max(lever, 1e-9))
                square = 2.0 * _BRAKE * brake * max(room, 0.0)
                # Whether or not it is this one's ceiling that is crossed: shares change them all.
                if square < most * most:
                    found.append((i, side * math.sqrt(square)))
                    crossed = crossed or side * v > math.sqrt(square)
        return found if crossed else []


def _share(speed: float, ceiling: float) -> float:
    """Of ``speed`` that keeps below the ceiling on its side."""
    if speed * math.copysign(1.0, ceiling) <= abs(ceiling):
        return 1.0
    return abs(ceiling / speed)


def _share_left(base: float, more: float, ceiling: float) -> float:
    """Of ``more`` that fits on top of ``base``."""
    side = math.copysign(1.0, ceiling)
    if side * (base + more) <= abs(ceiling) or side * more <= 0.0:
        return 1.0
    return max(0.0, (abs(ceiling) - side * base) / (side * more))


def _not_inwards(
    J: Jacobian, inverse: InverseJacobian, u: Twist, v: Joints, twist: Twist, kept: float
) -> Twist | None:
    """``twist`` with the share ``kept`` of what makes the smallest singular value smaller; None
    where nothing of it does.
    """
    toward = smallest_gradient(J, u, v).dot(inverse)
    rate = float(toward.dot(twist))
    square = float(toward.dot(toward))
    if rate >= 0.0 or square < 1e-18:
        return None
    return twist - (1.0 - kept) * rate / square * toward


def smallest_gradient(J: Jacobian, u: Twist, v: Joints) -> Joints:
    """Gradient ``[dof]`` by the joints of the singular value of ``J`` with the vectors ``u [6]``
    and ``v [dof]``: ``u . (dJ / dq_k) v``.

    Joint ``k`` turns the columns of itself and of those after it about its axis; for the columns
    before it, it moves the tip.
    """
    ux, uy, uz, wx, wy, wz = u.tolist()
    # Of the joints before each: all, less those from it on. Plain numbers, as numpy takes longer.
    cx, cy, cz = J[3:].dot(v).tolist()
    ax = ay = az = bx = by = bz = 0.0
    out: list[float] = []
    for (lx, ly, lz, zx, zy, zz), s in zip(J.T[::-1].tolist(), v[::-1].tolist(), strict=True):
        ax, ay, az = ax + s * lx, ay + s * ly, az + s * lz
        bx, by, bz = bx + s * zx, by + s * zy, bz + s * zz
        cx, cy, cz = cx - s * zx, cy - s * zy, cz - s * zz
        # z . (A x u) + z . (B x w) + l . (u x C)
        out.append(
            zx * (ay * uz - az * uy + by * wz - bz * wy)
            + zy * (az * ux - ax * uz + bz * wx - bx * wz)
            + zz * (ax * uy - ay * ux + bx * wy - by * wx)
            + lx * (uy * cz - uz * cy)
            + ly * (uz * cx - ux * cz)
            + lz * (ux * cy - uy * cx)
        )
    return np.array(out[::-1])
