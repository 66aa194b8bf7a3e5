"""Drives an arm's joints so that its tool follows poses: pure, for the supervisor and for scenes.

    target -> ToolPath (tool's speed, acceleration, jerk, workspace)
           -> DampedStep (singularities, joint speeds, joint margins) -> JointPath -> set-point

Where the joints cannot follow the path, the path goes on from where the tool is: nothing builds up
behind an obstacle, and a new target is followed at once.
"""

from __future__ import annotations

import math

import numpy as np

from robolearn.arms.compiled.forms import DriveBounds, DriveState
from robolearn.arms.differential import DampedStep, Limited, Singularity, no_singular_values
from robolearn.arms.joint_path import JointLimits, JointPath
from robolearn.arms.packed import packed
from robolearn.arms.shapes import Joints
from robolearn.arms.tool_kinematics import ToolKinematics
from robolearn.arms.tool_path import ToolPath, ToolPathLimits
from robolearn.errors import ConfigError
from robolearn.geometry import Pose


def joint_limits(kinematics: ToolKinematics, limits: ToolPathLimits) -> JointLimits:
    """Of the joints that carry the tool: the arm's, less the margin, at most the speed told."""
    arm, margin = kinematics.arm, limits.joint_margin
    low, high = tuple(v + margin for v in arm.low), tuple(v - margin for v in arm.high)
    if any(a >= b for a, b in zip(low, high, strict=True)):
        raise ConfigError(f"joint_margin {margin:g} rad leaves nothing of the range of {arm.name}")
    speed = tuple(min(v, limits.max_joint_speed) for v in arm.max_speed)
    return JointLimits(low, high, speed, (limits.max_joint_acceleration,) * arm.dof)


class ToolDrive:
    """State of the commanded arm. Not thread-safe."""

    def __init__(
        self,
        kinematics: ToolKinematics,
        limits: ToolPathLimits,
        period_s: float,
        singularity: Singularity | None = None,
    ) -> None:
        # Compiled, and numba loaded, where one is made.
        from robolearn.arms.compiled import tool_drive as compiled

        self.kinematics, self.limits, self.period_s = kinematics, limits, period_s
        self._compiled = compiled
        own, dof = joint_limits(kinematics, limits), kinematics.arm.dof
        self.path = ToolPath(limits, period_s)
        self._joints = JointPath(own, period_s, 1, limits.natural_frequency)
        step = DampedStep(
            *(own.low, own.high, own.speed, own.acceleration),
            tool_acceleration=(limits.max_acceleration, limits.max_rotation_acceleration),
            singularity=singularity,
        )
        # Below this smallest singular value motions are damped.
        self.damped = step.singularity.damped
        bounds = DriveBounds(
            kinematics.chain,
            self.path.bounds,
            step.bounds,
            self._joints.bounds,
            speed=float(limits.max_speed),
            rotation=float(limits.max_rotation_speed),
            change=limits.max_acceleration * period_s,
            turn=limits.max_rotation_acceleration * period_s,
        )
        state = DriveState(
            self.path.state,
            self._joints.state,
            jacobian=np.zeros((6, dof)),
            inverse=np.zeros((dof, 6)),
            told=np.array((1.0, math.inf)),
            flags=np.zeros(2, dtype=np.int64),
        )
        windows = len(state.path.newest), len(state.joints.newest)
        sizes = np.array((dof, kinematics.chain.links.shape[1], *windows), dtype=np.int64)
        self._state, numbers, marks = packed(state)
        self.path.state, self._joints.state = self._state.path, self._state.joints
        # As kernels take them.
        self._form = packed(bounds)[1], numbers, marks, sizes
        self._warm(0.5 * (np.array(own.low) + np.array(own.high)))

    def _warm(self, q: Joints) -> None:
        """Call all that a period may need, so that nothing is compiled in one."""
        told = self._state.told.copy()
        self.reset(q)
        self.follow(self.kinematics.pose(q))
        self.advance()
        self.rest(q)
        self.reset(q)
        self._state.told[:] = told

    @property
    def q(self) -> Joints:
        """Joint positions ``[dof]`` [rad] of the newest set-point."""
        return self._joints.q

    @property
    def qd(self) -> Joints:
        """Joint speeds ``[dof]`` [rad/s] of the newest set-point."""
        return self._joints.qd

    @property
    def limited(self) -> Limited:
        """What held the tool back in the newest period."""
        return _LIMITED[int(self._state.flags[self._compiled.LIMITED])]

    @property
    def share(self) -> float:
        """The share of the tool's motion that was left when it was last held back."""
        return float(self._state.told[self._compiled.SHARE])

    @property
    def smallest(self) -> float:
        """How near to a singularity the arm was in the newest period: its singular value."""
        return float(self._state.told[self._compiled.SMALLEST])

    @property
    def still(self) -> bool:
        """True while nothing moves."""
        return self._joints.still

    def reset(self, q: Joints) -> None:
        """At rest at ``q [dof]``; DataError outside the joints' limits."""
        self._joints.reset(q)
        self._compiled.reset(*self._form)

    def follow(self, T: Pose) -> None:
        """Lead the tip to ``T [4, 4]`` in the frame from now on."""
        self._compiled.aim(*self._form, np.array(T, dtype=np.float64, order="C"))

    def advance(self) -> Joints:
        """The next set-point ``[dof]``, one period on."""
        return self._made(self._compiled.advance(*self._form, False))

    def brake(self) -> Joints:
        """As :meth:`advance`, slowing down to rest along the motion."""
        return self._made(self._compiled.advance(*self._form, True))

    def rest(self, q: Joints) -> Joints:
        """Where braking from the newest set-point ``q`` ends, to first order ``[dof]``."""
        return self._compiled.rest(*self._form, np.array(q, dtype=np.float64))

    def _made(self, done: bool) -> Joints:
        if not done:
            raise no_singular_values(self.kinematics.pose_jacobian(self._joints.q)[1])
        return self._joints.q


# A flag is looked up rather than made, which takes as long as a kernel.
_LIMITED: tuple[Limited, ...] = tuple(Limited(k) for k in range(8))
