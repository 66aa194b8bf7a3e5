"""Follows targets of a tool on a table: a :class:`~hardware.supervisor.follower.Follower`.

Set-points come from ``robolearn.arms.limiter.SetpointGenerator``, the code that also runs in
simulation; the check of every set-point is independent of it.
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
from robolearn.arms.kinematics import SerialArm, pose_difference
from robolearn.arms.limiter import PathLimits, SetpointGenerator, TableMapping
from robolearn.arms.models import named_arm
from robolearn.arms.shapes import Joints
from robolearn.arms.slowing import Slowed
from robolearn.errors import ConfigError
from robolearn.geometry import XY

# Rounding and the blend of a start that is slightly off may exceed a limit by this share.
_SLACK = 1.02


@dataclass(frozen=True, slots=True)
class FollowerConfig:
    """Arm, table and limits: everything that decides a set-point. Picklable."""

    # Kinematics by name.
    arm: str
    # Where the table is and how the tool is held.
    mapping: TableMapping
    # Limits of the path on the table.
    limits: PathLimits
    # Period of the agent's commands [s].
    command_period_s: float = 0.1
    # Guided moves keep the tool's tip below this height over the table [m].
    max_tip_height_m: float = 1.2
    # The tip may be at most this far below its working height [m].
    min_clearance_m: float = 0.003
    # Higher than this above its working height the tip may leave the workspace sideways [m].
    raised_m: float = 0.03
    # Targets further outside the workspace than this are refused [m].
    far_m: float = 0.05
    # Distances to keep; None switches the check off.
    collision: CollisionConfig | None = field(default_factory=CollisionConfig)

    def __post_init__(self) -> None:
        for name in ("joint_margin", "workspace_margin"):
            value = float(getattr(self.limits, name))
            # Anything else would open the limits, and a comparison with NaN is never true.
            if not 0.0 <= value < math.inf:
                raise ConfigError(f"path limits: {name} must not be negative, got {value}")

    def serial_arm(self) -> SerialArm:
        """The kinematics; raises ConfigError for an unknown arm."""
        return named_arm(self.arm)

    @property
    def joints(self) -> int:
        """Joints of a set-point."""
        return self.serial_arm().dof

    @property
    def width(self) -> int:
        """Values of a target: x and y."""
        return 2

    @property
    def far(self) -> float:
        """``far_m``, as the supervisor and the agent need it."""
        return self.far_m

    def build(self, rate_hz: float) -> TableFollower:
        """Check the whole workspace and make the follower (takes about 0.1 s)."""
        return TableFollower(self, rate_hz)

    def guard(self, rate_hz: float) -> CollisionGuard | None:
        """Distance checks; the tool's height over the table is the follower's own check."""
        if self.collision is None:
            return None
        T = np.array(self.mapping.T_base_table)
        x, y, z = T[:3, 2].tolist()
        return self.collision.guard(
            self.serial_arm(),
            rate_hz,
            table=Plane((x, y, z), float(T[:3, 2] @ T[:3, 3])),
            tool_length_m=self.mapping.tool_length_m,
            tool_touches=True,
        )


class TableFollower:
    """Follows targets on the table; when the agent pauses it brakes along the motion.

    While the next command is due but has not come, the first action of the last plan is followed,
    so a jitter of some milliseconds is no gap.
    """

    def __init__(self, config: FollowerConfig, rate_hz: float) -> None:
        self.config = config
        self._arm = config.serial_arm()
        self._generator = SetpointGenerator(self._arm, config.mapping, config.limits, 1.0 / rate_hz)
        # What the inverse kinematics of most arms call is compiled now, not in a tick.
        pose_difference(np.eye(4), np.eye(4))
        limits = config.limits
        self._low = np.array(self._arm.low) + limits.joint_margin
        self._high = np.array(self._arm.high) - limits.joint_margin
        self._least, self._most = self._low.tolist(), self._high.tolist()
        self._speed = [_SLACK * min(limits.max_joint_speed, v) for v in self._arm.max_speed]
        self._xy_low = np.array(limits.workspace_low) - limits.workspace_margin
        self._xy_high = np.array(limits.workspace_high) + limits.workspace_margin
        # SetpointGenerator.hold brakes by 0.7 of 0.98 of what is allowed.
        self._deceleration = 0.68 * self._generator.tool_limits.acceleration
        self._target: Target | None = None
        self._period_ns = round(config.command_period_s * 1e9)
        self._coasting = self._moving = False
        self._tips = RecentTips(lambda q: config.mapping.tip(self._arm, q))
        self._joint_gate = RateGate(
            np.full(self._arm.dof, limits.max_joint_acceleration), None, rate_hz
        )
        jerk = limits.max_tool_jerk
        self._tool_gate = RateGate(
            np.array(limits.max_tool_acceleration),
            None if jerk is None else np.array(jerk),
            rate_hz,
        )

    def start(self, q: Joints) -> None:
        """At rest at ``q``; raises DataError when the tool is not in its plane over the table."""
        self._generator.reset(q)
        self._joint_gate.reset(q.copy())
        self._tool_gate.reset(self._tips.at(q)[:2, 3])
        self._target, self._coasting, self._moving = None, False, False

    @property
    def far(self) -> float:
        """``far_m`` [m]."""
        return self.config.far

    def outside(self, value: XY) -> float:
        """How far ``value [2]`` is outside the workspace [m], along the worse axis."""
        limits = self.config.limits
        inside = np.clip(value, limits.workspace_low, limits.workspace_high)
        return float(np.abs(value - inside).max())

    def target(self, target: Target, now_ns: int) -> bool:
        """Follow ``target.value``; False outside the workspace (then: to its border)."""
        self._target, self._coasting, self._moving = target, False, True
        self._generator.set_target(target.value, now_ns * 1e-9)
        return self.outside(target.value) == 0.0

    def step(self, dt_s: float, now_ns: int, *, moving: bool) -> Joints:
        """The next set-point ``[joints]`` [rad] (``dt_s`` is the generator's own period)."""
        del dt_s
        target = self._target
        if not moving and self._moving:
            self._generator.hold()
        elif moving and target is not None and not self._moving:
            # Where it was going: back to the command itself would be a step backwards.
            xy = target.plan[0] if self._coasting else target.value
            self._generator.set_target(xy, now_ns * 1e-9)
        elif moving and target is not None and self._plan_is_due(target, now_ns):
            self._coasting = True
            self._generator.set_target(target.plan[0], now_ns * 1e-9)
        self._moving = moving and target is not None
        return self._generator.step().q

    def _plan_is_due(self, target: Target, now_ns: int) -> bool:
        late = now_ns - target.due_ns > self._period_ns
        return late and bool(len(target.plan)) and not self._coasting

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
        """True when braked to a stop (the blend of a start that was slightly off included)."""
        return not self._moving and self._generator.still

    def action(self, q: Joints) -> XY:
        """Tool position on the table ``[2]`` [m]."""
        return self._tips.at(q)[:2, 3].copy()

    def rest(self, q: Joints, qd: Joints) -> Joints:
        """Where braking from the newest set-point ends, to first order ``[joints]``."""
        del q, qd
        return self._generator.rest(self._deceleration)

    @property
    def acceleration(self) -> float:
        """Limit of the tool's acceleration [m/s^2]."""
        return self.config.limits.max_tool_acceleration

    @property
    def tool_speed(self) -> float:
        """Limit of the tool's speed [m/s]."""
        return self.config.limits.max_tool_speed

    def travel(self, one: Joints, two: Joints) -> float:
        """How far the tip moves between two set-points [m]."""
        # In the order of time: the older one is still known.
        start = self._tips.at(one)[:3, 3]
        return math.hypot(*(self._tips.at(two)[:3, 3] - start).tolist())

    def leeway(self, q: Joints) -> Leeway:
        """To the joints' limits, and of the tip to the workspace, wider for a raised tip."""
        c, tip = self.config, self._tips.at(q)[:3, 3]
        z = float(tip[2]) - c.mapping.tip_height_m
        sideways = float(np.minimum(tip[:2] - self._xy_low, self._xy_high - tip[:2]).min())
        up_and_down = min(z + c.min_clearance_m, c.max_tip_height_m - float(tip[2]))
        joint = float(np.minimum(q - self._low, self._high - q).min())
        return Leeway(joint, min(up_and_down, max(sideways, z - c.raised_m)))

    def rough(self, q: Joints) -> str:
        """What ``q``, the next set-point, breaks of the limits on acceleration and jerk."""
        if not are_angles(q, len(self._low)):
            return f"not {len(self._low)} finite angles"
        turning = self._joint_gate.broken(q)
        if turning:
            return f"joint {turning} rad/s^2"
        pushing = self._tool_gate.broken(self._tips.at(q)[:2, 3])
        return f"tool {pushing} m/s^2 or m/s^3" if pushing else ""

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
            if (tool := self.travel(before, q) / dt_s) > _SLACK * self.tool_speed:
                return f"tool speed {tool:.3f} beyond {self.tool_speed:.3f} m/s"
        if is_outside(q, self._least, self._most):
            return f"joint angles {np.round(q, 3)} outside the limits"
        x, y, z = self._tips.at(q)[:3, 3]
        c = self.config
        if not c.mapping.tip_height_m - c.min_clearance_m <= z <= c.max_tip_height_m:
            return f"tool tip at height {z:.4f} m over the table"
        xy = np.array([x, y])
        raised = z > c.mapping.tip_height_m + c.raised_m
        if not raised and (np.any(xy < self._xy_low) or np.any(xy > self._xy_high)):
            return f"tool at {np.round(xy, 4)} m, outside the workspace"
        return ""
