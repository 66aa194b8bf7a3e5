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

import numpy as np

from robolearn.arms.compiled.forms import StepBounds
from robolearn.arms.shapes import InverseJacobian, Jacobian, Joints, Twist
from robolearn.errors import ConfigError


class Limited(enum.Flag):
    """What kept a step from being the motion that was asked for; kernels know the numbers."""

    NONE = 0
    SPEED = 1
    SINGULAR = 2
    MARGIN = 4


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
        # Compiled, and numba loaded, where one is made.
        from robolearn.arms.compiled.differential import solve

        self.singularity = singularity or Singularity()
        self._solve = solve
        # As kernels take them.
        self.bounds = _bounds((low, high, speed, acceleration), tool_acceleration, self.singularity)

    def speeds(self, q: Joints, jacobian: Jacobian, twist: Twist) -> Step:
        """Joint speeds at ``q [dof]`` for a ``twist [6]`` [m/s, rad/s] in the Jacobian's axes."""
        at, J, asked = (np.array(v, dtype=np.float64, order="C") for v in (q, jacobian, twist))
        dof = len(self.bounds.low)
        if at.shape != (dof,) or J.shape != (6, dof) or asked.shape != (6,):
            raise ValueError(f"expected {dof} joints, got {at.shape}, {J.shape}, {asked.shape}")
        qd, inverse = np.empty(dof), np.empty((dof, 6))
        limited, smallest = self._solve(self.bounds, at, J, asked, qd, inverse)
        if math.isnan(smallest):
            raise no_singular_values(jacobian)
        return Step(qd, Limited(limited), smallest, inverse)


def no_singular_values(jacobian: Jacobian) -> FloatingPointError:
    """What to raise for a ``jacobian [6, dof]`` without."""
    return FloatingPointError(f"the Jacobian has no singular values: {jacobian}")


def _bounds(
    joints: tuple[Sequence[float], ...], tool: tuple[float, float], singularity: Singularity
) -> StepBounds:
    low, high, speed, acceleration = (np.array(v, dtype=np.float64) for v in joints)
    if len({len(low), len(high), len(speed), len(acceleration)}) != 1:
        raise ValueError(f"a step takes as many limits of each kind, got {joints}")
    c = singularity
    return StepBounds(
        *(low, high, speed, acceleration),
        *(float(v) for v in (*tool, c.damped, c.slow, c.stop, c.damping)),
    )


def smallest_gradient(J: Jacobian, u: Twist, v: Joints) -> Joints:
    """Gradient ``[dof]`` by the joints of the singular value of ``J`` with the vectors ``u [6]``
    and ``v [dof]``: ``u . (dJ / dq_k) v``.

    Joint ``k`` turns the columns of itself and of those after it about its axis; for the columns
    before it, it moves the tip.
    """
    from robolearn.arms.compiled import differential as compiled

    own = (np.array(v, dtype=np.float64, order="C") for v in (J, u, v))
    return compiled.gradient_of(*own)
