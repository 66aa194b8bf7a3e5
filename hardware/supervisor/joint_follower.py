"""Follows targets in joint space: a :class:`~hardware.supervisor.follower.Follower`.

Set-points come from ``robolearn.arms.joint_path.JointPath``, the code that also runs in simulation;
the check of every set-point is independent of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from hardware.supervisor.checks import (
    CollisionConfig,
    CollisionGuard,
    RateGate,
    are_angles,
    are_same,
    is_outside,
    too_fast,
)
from hardware.supervisor.follower import Leeway
from hardware.supervisor.link import Target
from hardware.supervisor.recent_tips import RecentTips
from robolearn.arms.collision import Plane
from robolearn.arms.differential import Limited
from robolearn.arms.joint_path import JointLimits, JointPath
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.models import ARMS, named_arm
from robolearn.arms.shapes import Joints
from robolearn.arms.slowing import Slowed
from robolearn.arms.tool_kinematics import ToolKinematics
from robolearn.errors import ConfigError
from robolearn.geometry import pose

# [m/s] of the tool's tip, where a cell says nothing else: "reduced speed", the fastest that ISO
# 10218-1 and ISO/TS 15066 allow beside people without a measured separation (250 mm/s).
REDUCED_SPEED_M_S = 0.25
_SLACK = 1.02
# Of joint positions at their limits [rad].
_ROUNDING = 1e-9
# The path keeps the tool this far below its speed: the arm's reach changes along the way.
_SOFT = 0.9


@dataclass(frozen=True, slots=True)
class JointSpace:
    """An arm that is commanded in joint space: where it may be and how fast it may get there."""

    # Where the arm rests between episodes [rad].
    home: tuple[float, ...]
    # Position, speed and acceleration per joint.
    limits: JointLimits
    # [rad/s] of the critically damped law by which joints approach their targets.
    natural_frequency: float = 12.0
    # Height of a level table in the arm's base frame [m]; null: no table is checked.
    table_height_m: float | None = None
    # From the flange to the tool's tip [m].
    tool_length_m: float = 0.0
    # Limit of the speed of the tool's tip [m/s]; null only for arms without kinematics here.
    max_tool_speed: float | None = REDUCED_SPEED_M_S

    def __post_init__(self) -> None:
        if not 0.0 < self.natural_frequency < math.inf:
            raise ConfigError(f"natural_frequency must be positive, got {self.natural_frequency}")
        if len(self.home) != len(self.limits.low):
            raise ConfigError(
                f"home has {len(self.home)} joints, the limits have {len(self.limits.low)}"
            )


@dataclass(frozen=True, slots=True)
class JointFollowerConfig:
    """Arm and limits: everything that decides a set-point. Picklable."""

    # Limits of the motion.
    space: JointSpace
    # Kinematics by name: limits may not exceed it, distances are checked ("" for neither).
    arm: str = ""
    # Period of the agent's commands [s].
    command_period_s: float = 0.1
    # Distances to keep; None switches the check off.
    collision: CollisionConfig | None = field(default_factory=CollisionConfig)
    # Targets further outside the limits than this are refused [rad].
    far_rad: float = 0.2

    def __post_init__(self) -> None:
        arm, tool_speed = self.serial_arm(), self.space.max_tool_speed
        if tool_speed is not None and (arm is None or not tool_speed > 0.0):
            raise ConfigError(
                "max_tool_speed must be positive and needs an arm whose kinematics are known"
                f" ({sorted(ARMS)}), got {tool_speed} for '{self.arm}'; for another arm say"
                " 'max_tool_speed: null' and limit the speed of its joints"
            )
        if arm is None:
            return
        limits = self.space.limits
        if len(limits.low) != arm.dof:
            raise ConfigError(f"limits of {len(limits.low)} joints given, {arm.name} has {arm.dof}")
        inside = {
            "low": np.array(limits.low) >= np.array(arm.low),
            "high": np.array(limits.high) <= np.array(arm.high),
            "speed": np.array(limits.speed) <= np.array(arm.max_speed),
        }
        wrong = [name for name, ok in inside.items() if not ok.all()]
        if wrong:
            raise ConfigError(
                f"joint limits ({', '.join(wrong)}) are outside those of {arm.name}: low"
                f" {arm.low}, high {arm.high}, speed {arm.max_speed} [rad, rad/s]"
            )

    @property
    def joints(self) -> int:
        """Joints of a set-point."""
        return len(self.space.limits.low)

    @property
    def width(self) -> int:
        """Values of a target: one per joint."""
        return self.joints

    def serial_arm(self) -> SerialArm | None:
        """The kinematics, if the arm is known by name."""
        return named_arm(self.arm) if self.arm else None

    @property
    def far(self) -> float:
        """``far_rad``, as the supervisor and the agent need it."""
        return self.far_rad

    def build(self, rate_hz: float) -> JointFollower:
        """Make the follower."""
        return JointFollower(self, rate_hz)

    def guard(self, rate_hz: float) -> CollisionGuard | None:
        """Distance checks, if the arm is known."""
        arm = self.serial_arm()
        if arm is None or self.collision is None:
            return None
        height, tool_length_m = self.space.table_height_m, self.space.tool_length_m
        table = None if height is None else Plane((0.0, 0.0, 1.0), height)
        return self.collision.guard(arm, rate_hz, table=table, tool_length_m=tool_length_m)


class JointFollower:
    """Follows joint targets; when the agent pauses every joint brakes along its motion."""

    def __init__(self, config: JointFollowerConfig, rate_hz: float) -> None:
        self.config = config
        limits = config.space.limits
        self._path = JointPath(limits, 1.0 / rate_hz, 1, config.space.natural_frequency)
        self._path.warm()
        self._low, self._high = np.array(limits.low), np.array(limits.high)
        self._least = [v - _ROUNDING for v in limits.low]
        self._most = [v + _ROUNDING for v in limits.high]
        self._speed = [_SLACK * v for v in limits.speed]
        arm, end = config.serial_arm(), (0.0, 0.0, config.space.tool_length_m)
        # Of the tool's tip, in the arm's base.
        T_flange_tip = pose(np.eye(3), end)
        self._kinematics = None if arm is None else ToolKinematics(arm, np.eye(4), T_flange_tip)
        self._tips = None if self._kinematics is None else RecentTips(self._kinematics.pose)
        jerk = None if limits.jerk is None else np.array(limits.jerk)
        self._gate = RateGate(np.array(limits.acceleration), jerk, rate_hz)
        self._target: Target | None = None
        self._period_ns = round(config.command_period_s * 1e9)
        self._moving = False

    def start(self, q: Joints) -> None:
        """At rest at ``q``; raises DataError outside the limits."""
        self._path.reset(q)
        self._gate.reset(q.copy())
        self._target, self._moving = None, False

    @property
    def far(self) -> float:
        """``far_rad`` [rad]."""
        return self.config.far

    def outside(self, value: Joints) -> float:
        """How far ``value [joints]`` is outside the limits [rad], of the worst joint."""
        return float(np.abs(value - np.clip(value, self._low, self._high)).max())

    def target(self, target: Target, now_ns: int) -> bool:
        """Follow this; False when it lies outside the limits (then: to the limit)."""
        del now_ns
        self._target, self._moving = target, True
        return self.outside(target.value) == 0.0

    def step(self, dt_s: float, now_ns: int, *, moving: bool) -> Joints:
        """The next set-point ``[joints]`` [rad] (``dt_s`` is the path's own period)."""
        del dt_s
        target = self._target
        self._moving = moving and target is not None
        if target is None or not moving:
            return self._path.brake()[0][-1].copy()
        late = now_ns - target.due_ns > self._period_ns
        goal = target.plan[0] if late and len(target.plan) else target.value
        if math.isinf(self.tool_speed):
            return self._path.advance(goal.tolist())[0][-1].copy()
        budget = _SOFT * self.tool_speed
        return self._path.advance(goal.tolist(), self._reach(), budget)[0][-1].copy()

    def _reach(self) -> list[float]:
        """How far the tool's tip moves per joint angle ``[joints]`` [m/rad]."""
        if self._kinematics is None:
            return [0.0] * len(self._low)
        moved = self._kinematics.pose_jacobian(self._path.q)[1][:3]
        return np.sqrt((moved * moved).sum(axis=0)).tolist()

    @property
    def acceleration(self) -> float:
        """All joints at their limits [rad/s^2]."""
        return float(np.linalg.norm(self.config.space.limits.acceleration))

    @property
    def tool_speed(self) -> float:
        """Limit of the speed of the tool's tip [m/s]; infinite without one."""
        limit = self.config.space.max_tool_speed
        return math.inf if limit is None else limit

    def travel(self, one: Joints, two: Joints) -> float:
        """How far the tip moves between two set-points [m]; 0 for an arm that is not known."""
        return 0.0 if self._tips is None else self._tips.travel(one, two)

    def leeway(self, q: Joints) -> Leeway:
        """To the joints' limits; the tool has none."""
        return Leeway(float(np.minimum(q - self._low, self._high - q).min()), math.inf)

    def rough(self, q: Joints) -> str:
        """What ``q``, the next set-point, breaks of the limits on acceleration and jerk."""
        broken = self._gate.broken(q)
        return f"joint {broken}" if broken else ""

    @property
    def limited(self) -> Limited:
        """Nothing that would have to be told."""
        return Limited.NONE

    def limit_of(self, slowed: Slowed) -> tuple[float, float]:
        """Nothing is told."""
        del slowed
        return 0.0, 0.0

    @property
    def at_rest(self) -> bool:
        """True when braked to a stop."""
        return not self._moving and self._path.still

    def action(self, q: Joints) -> Joints:
        """The joints themselves."""
        return q.copy()

    def rest(self, q: Joints, qd: Joints) -> Joints:
        """Where braking from the newest set-point ends ``[joints]``."""
        del q, qd
        return self._path.rest

    def violation(
        self, q: Joints, before: Joints | None, dt_s: float, *, guided: bool = False
    ) -> str:
        """Why ``q`` must not be sent, or ""."""
        del guided
        if not are_angles(q, len(self._low)):
            return f"not {len(self._low)} finite angles: {q}"
        if before is not None:
            if are_same(q, before):
                return ""
            if fast := too_fast(q, before, dt_s, self._speed):
                return fast
            if not math.isinf(self.tool_speed):
                tool = self.travel(before, q) / dt_s
                if tool > _SLACK * self.tool_speed:
                    return f"tool speed {tool:.3f} beyond {self.tool_speed:.3f} m/s"
        if is_outside(q, self._least, self._most):
            return f"joint angles {np.round(q, 3)} outside the limits"
        return ""
