"""Follows poses of a tool in space: a :class:`~hardware.supervisor.follower.Follower`.

Set-points come from ``robolearn.arms.tool_drive.ToolDrive``, the code that also runs in simulation;
the check of every set-point is independent of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from hardware.shapes import Action
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
from robolearn.arms.kinematics import SerialArm, pose_difference
from robolearn.arms.models import named_arm
from robolearn.arms.shapes import Joints, Twist
from robolearn.arms.slowing import Slowed
from robolearn.arms.tool_commands import TOOL_COMMANDS, quaternion_defect
from robolearn.arms.tool_drive import ToolDrive, joint_limits
from robolearn.arms.tool_kinematics import ToolKinematics
from robolearn.arms.tool_path import ToolPathLimits
from robolearn.errors import ConfigError
from robolearn.geometry import Pose, pose, rot_z

# Rounding may exceed a limit by this share.
_SLACK = 1.02
# Of joint positions at their limits [rad].
_ROUNDING = 1e-9
# A heading that was wound up beyond this is nobody's wish [rad].
_FULL_TURN = 2.0 * math.pi
ACTIONS = ("tool/xyz_yaw", "tool/pose")
# Of commands that are relative to the last one; these are not.
_NOWHERE: Pose = np.eye(4)


@dataclass(frozen=True, slots=True)
class ToolFrame:
    """The level frame ``table`` in which poses are told; its xy plane is the table's top."""

    # Its origin in the arm's base frame [m].
    origin_m: tuple[float, float, float]
    # Its heading in the arm's base frame [rad].
    heading_rad: float = 0.0

    @property
    def T_base_frame(self) -> Pose:  # noqa: N802  (a transform)
        """``[4, 4]``."""
        return pose(rot_z(self.heading_rad), self.origin_m)


@dataclass(frozen=True, slots=True)
class ToolSpace:
    """An arm that is commanded by its tool's pose, as the scenes are (``kind: arms``)."""

    # Where poses are told.
    frame: ToolFrame
    # From the flange to the tool's tip (between a gripper's fingers) [m].
    tool_offset_m: tuple[float, float, float]
    # Joint positions where the arm rests between episodes [rad].
    home: tuple[float, ...]
    # Where the tip may be, and how fast and how hard it and the joints may move.
    limits: ToolPathLimits
    # ``tool/xyz_yaw`` (it points down) or ``tool/pose``.
    action: str = "tool/xyz_yaw"
    # Heading of the tool about the flange's axis [rad].
    tool_yaw: float = 0.0
    # The end of the tool that works at the table (fingers) [m]: the workspace's lower border alone
    # keeps it off. The rest of the tool keeps the distances of ``collision``.
    fingers_m: float = 0.0
    # Guided moves keep the tip below this height over the table [m].
    max_tip_height_m: float = 1.2

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ConfigError(
                f"tool: a cell is commanded by {' or '.join(ACTIONS)}, got '{self.action}'"
            )
        if not 0.0 <= self.fingers_m <= max(0.0, self.tool_offset_m[2]):
            raise ConfigError(
                f"tool: fingers_m {self.fingers_m} is not within the tool, which ends"
                f" {self.tool_offset_m[2]} m in front of the flange"
            )

    def kinematics(self, arm: SerialArm) -> ToolKinematics:
        """Of the tip in the frame."""
        T_flange_tip = pose(rot_z(self.tool_yaw), self.tool_offset_m)
        return ToolKinematics(arm, self.frame.T_base_frame, T_flange_tip)


@dataclass(frozen=True, slots=True)
class ToolFollowerConfig:
    """Arm, frame, tool and limits: everything that decides a set-point. Picklable."""

    # Limits of the motion, and how the tool is held.
    space: ToolSpace
    # Kinematics by name.
    arm: str
    # Period of the agent's commands [s].
    command_period_s: float = 0.1
    # Distances to keep; None switches the check off.
    collision: CollisionConfig | None = field(default_factory=CollisionConfig)
    # Targets further outside the workspace than this are refused [m].
    far_m: float = 0.05

    def __post_init__(self) -> None:
        arm = self.serial_arm()
        if len(self.space.home) != arm.dof:
            raise ConfigError(
                f"tool: home has {len(self.space.home)} angles, {arm.name} has {arm.dof} joints"
            )
        wanted, fastest = self.space.limits.max_joint_speed, max(arm.max_speed)
        if wanted > fastest:
            raise ConfigError(
                f"tool: max_joint_speed {wanted:g} rad/s is outside that of {arm.name},"
                f" {fastest:g} rad/s; give the arm's or less"
            )
        joint_limits(self.space.kinematics(arm), self.space.limits)

    def serial_arm(self) -> SerialArm:
        """The kinematics; raises ConfigError for an unknown arm."""
        return named_arm(self.arm)

    @property
    def joints(self) -> int:
        """Joints of a set-point."""
        return self.serial_arm().dof

    @property
    def width(self) -> int:
        """Values of a target: 4 or 7."""
        return TOOL_COMMANDS[self.space.action.partition("/")[2]].size

    @property
    def far(self) -> float:
        """``far_m``, as the supervisor and the agent need it."""
        return self.far_m

    def build(self, rate_hz: float) -> ToolFollower:
        """Make the follower."""
        return ToolFollower(self, rate_hz)

    def guard(self, rate_hz: float) -> CollisionGuard | None:
        """Distance checks; how low the fingers may go is the workspace's."""
        if self.collision is None:
            return None
        space = self.space
        return self.collision.guard(
            self.serial_arm(),
            rate_hz,
            table=Plane((0.0, 0.0, 1.0), space.frame.origin_m[2]),
            tool_length_m=space.tool_offset_m[2] - space.fingers_m,
            fingers_m=space.fingers_m,
        )


class ToolFollower:
    """Follows poses; when the agent pauses the tool brakes along its motion.

    While the next command is due but has not come, the first action of the last plan is followed,
    so a jitter of some milliseconds is no gap.
    """

    def __init__(self, config: ToolFollowerConfig, rate_hz: float) -> None:
        self.config = config
        space, arm = config.space, config.serial_arm()
        limits = space.limits
        self._limits = limits
        self._kinematics = space.kinematics(arm)
        self._command = TOOL_COMMANDS[space.action.partition("/")[2]]
        self._drive = ToolDrive(self._kinematics, limits, 1.0 / rate_hz)
        own = joint_limits(self._kinematics, limits)
        self._dof, self._low, self._high = arm.dof, np.array(own.low), np.array(own.high)
        self._least = [v - _ROUNDING for v in own.low]
        self._most = [v + _ROUNDING for v in own.high]
        self._speed = [_SLACK * v for v in own.speed]
        # Guided moves have a joint speed of their own, and turn the tool as it comes.
        self._fastest = [_SLACK * v for v in arm.max_speed]
        self._box = np.array((limits.workspace_low, limits.workspace_high))
        margin = limits.workspace_margin
        self._box_least = (self._box[0] - margin).tolist()
        self._box_most = (self._box[1] + margin).tolist()
        self._tips = RecentTips(self._kinematics.pose)
        self._joint_gate = RateGate(np.array(own.acceleration), None, rate_hz)
        jerk, turning = (
            None if limit is None else np.array(limit)
            for limit in (limits.max_jerk, limits.max_rotation_jerk)
        )
        self._tool_gate = RateGate(np.array(limits.max_acceleration), jerk, rate_hz)
        self._turn_gate = RateGate(np.array(limits.max_rotation_acceleration), turning, rate_hz)
        # The tool's rotation since the start, one small turn after the other.
        self._turned, self._facing = np.zeros(3), np.eye(4)
        self._last_way: tuple[Pose, Pose, Twist] | None = None
        # What this calls is compiled now, not in a tick.
        self._way(_NOWHERE, _NOWHERE)
        self._target: Target | None = None
        # What tells a heading from the same a turn further on, and a quaternion from its negative.
        self._near = np.zeros(config.width)
        self._period_ns = round(config.command_period_s * 1e9)
        self._coasting = self._moving = False

    def start(self, q: Joints) -> None:
        """At rest at ``q``; DataError outside the joints' limits."""
        self._drive.reset(q)
        tip = self._tips.at(q)
        self._joint_gate.reset(q.copy())
        self._tool_gate.reset(tip[:3, 3].copy())
        self._turned, self._facing = np.zeros(3), tip
        self._turn_gate.reset(self._turned)
        self._target, self._coasting, self._moving = None, False, False
        self._near = self.action(q)

    @property
    def far(self) -> float:
        """``far_m`` [m]."""
        return self.config.far

    def outside(self, value: Action) -> float:
        """How far ``value [4 or 7]`` is outside the workspace [m], along the worst axis; without
        bound where it names no orientation.
        """
        if len(value) == 7 and quaternion_defect(value[3:]):
            return math.inf
        if len(value) == 4 and abs(float(value[3])) > _FULL_TURN:
            return math.inf
        return self._limits.outside(value[:3])

    def target(self, target: Target, now_ns: int) -> bool:
        """Follow ``target.value``; False outside the workspace (then: to its border)."""
        del now_ns
        self._target, self._coasting, self._moving = target, False, True
        self._aim(target.value)
        return self._limits.outside(target.value[:3]) == 0.0

    def step(self, dt_s: float, now_ns: int, *, moving: bool) -> Joints:
        """The next set-point ``[joints]`` [rad] (``dt_s`` is the path's own period)."""
        del dt_s
        target = self._target
        self._moving = moving and target is not None
        if target is None or not moving:
            return self._drive.brake()
        late = now_ns - target.due_ns > self._period_ns
        if late and len(target.plan) and not self._coasting:
            self._coasting = True
            self._aim(target.plan[0])
        return self._drive.advance()

    def _aim(self, value: Action) -> None:
        self._near = value
        self._drive.follow(self._command.target(value, _NOWHERE))

    @property
    def limited(self) -> Limited:
        """Singularity, joint limits and speeds, where the tool does noticeably less for them."""
        return self._drive.limited

    def limit_of(self, slowed: Slowed) -> tuple[float, float]:
        """See :class:`~hardware.supervisor.link.Cause`."""
        drive, margin = self._drive, self._limits.joint_margin
        if slowed is Slowed.SINGULARITY:
            return drive.smallest, drive.damped
        if slowed is Slowed.JOINT_LIMIT:
            return self.leeway(drive.q).joint_rad + margin, margin
        return (drive.share, 1.0) if slowed is Slowed.JOINT_SPEED else (0.0, 0.0)

    @property
    def at_rest(self) -> bool:
        """True when braked to a stop."""
        return not self._moving and self._drive.still

    def action(self, q: Joints) -> Action:
        """The tool's pose at ``q`` as an action ``[4 or 7]``, told like the newest target: the same
        turn of a heading, the same of the two quaternions.
        """
        if self._command.report is None:
            raise ConfigError(f"'{self.config.space.action}' names no pose")
        value = self._command.report(self._tips.at(q))
        if len(value) == 7:
            if float(value[3:].dot(self._near[3:])) < 0.0:
                value[3:] *= -1.0
        else:
            value[3] += _FULL_TURN * round((self._near[3] - value[3]) / _FULL_TURN)
        return value

    def rest(self, q: Joints, qd: Joints) -> Joints:
        """Where braking from the newest set-point ends, to first order ``[joints]``."""
        del qd
        return self._drive.rest(q)

    @property
    def acceleration(self) -> float:
        """Limit of the norm of the tool's acceleration, travel and turning [m/s^2, rad/s^2]."""
        return math.hypot(self._limits.max_acceleration, self._limits.max_rotation_acceleration)

    @property
    def tool_speed(self) -> float:
        """Limit of the tool's speed [m/s]."""
        return self._limits.max_speed

    def travel(self, one: Joints, two: Joints) -> float:
        """How far the tip moves between two set-points [m]."""
        return self._tips.travel(one, two)

    def leeway(self, q: Joints) -> Leeway:
        """To the joints' limits, and of the tip to the border of the workspace."""
        place, margin = self._tips.at(q)[:3, 3], self._limits.workspace_margin
        tool = float(np.minimum(place - self._box[0], self._box[1] - place).min()) + margin
        return Leeway(float(np.minimum(q - self._low, self._high - q).min()), tool)

    def rough(self, q: Joints) -> str:
        """What ``q``, the next set-point, breaks of the limits on acceleration and jerk."""
        if not are_angles(q, self._dof):
            return f"not {self._dof} finite angles"
        if broken := self._joint_gate.broken(q):
            return f"joint {broken} rad/s^2"
        tip = self._tips.at(q)
        if broken := self._tool_gate.broken(tip[:3, 3]):
            return f"tool {broken} m/s^2 or m/s^3"
        self._turned = self._turned + self._way(self._facing, tip)[3:]
        self._facing = tip
        broken = self._turn_gate.broken(self._turned)
        return f"tool's rotation {broken} rad/s^2 or rad/s^3" if broken else ""

    def violation(
        self, q: Joints, before: Joints | None, dt_s: float, *, guided: bool = False
    ) -> str:
        """Why ``q`` must not be sent, or "". A guided move may lead through the air around the
        workspace, so that an arm that stands there can be brought back.
        """
        if not are_angles(q, self._dof):
            return f"not {self._dof} finite angles: {q}"
        if before is not None:
            if are_same(q, before):
                return ""
            if why := self._too_fast(q, before, dt_s, guided=guided):
                return why
        if is_outside(q, self._least, self._most):
            return f"joint angles {np.round(q, 3)} outside the limits"
        place = self._tips.at(q)[:3, 3]
        if guided:
            floor, ceiling = self._box_least[2], self.config.space.max_tip_height_m
            if not floor <= float(place[2]) <= ceiling:
                return f"tool tip at height {place[2]:.4f} m, beyond {floor:g} to {ceiling:g} m"
            return ""
        if is_outside(place, self._box_least, self._box_most):
            return f"tool at {np.round(place, 4)} m, outside the workspace"
        return ""

    def _way(self, one: Pose, two: Pose) -> Twist:
        """From one tip to another ``[6]``; both checks of a set-point ask for the same."""
        if self._last_way is None or self._last_way[0] is not one or self._last_way[1] is not two:
            self._last_way = one, two, pose_difference(two, one)
        return self._last_way[2]

    def _too_fast(self, q: Joints, before: Joints, dt_s: float, *, guided: bool) -> str:
        if fast := too_fast(q, before, dt_s, self._fastest if guided else self._speed):
            return fast
        if (tool := self.travel(before, q) / dt_s) > _SLACK * self.tool_speed:
            return f"tool speed {tool:.3f} beyond {self.tool_speed:.3f} m/s"
        if guided:
            return ""
        way = self._way(self._tips.at(before), self._tips.at(q))
        turn = math.hypot(*way[3:].tolist()) / dt_s
        if turn > _SLACK * self._limits.max_rotation_speed:
            return f"tool turns by {turn:.3f}, beyond {self._limits.max_rotation_speed:.3f} rad/s"
        return ""
