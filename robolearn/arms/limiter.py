"""Limits and interpolates between a policy's targets and an arm's servo set-points, purely.

The same code runs in ``sim.SceneEnv`` and in the hardware supervisor. It knows no clock, no I/O
and no threads: one :meth:`SetpointGenerator.step` per servo period.

The tool follows its target by the law of the recordings' agent (gym-pusht 0.1.8: ``k_p = 100``,
``k_v = 20``, evaluated at 100 Hz), then saturations on acceleration, speed and workspace apply.
Velocity is continuous and acceleration constant within a step, so the path is C1; with a limit on
jerk it is C2 (``robolearn/arms/moving_mean.py``).

Joint limits are met by construction: the worst joint motion per tool motion over the whole
workspace is computed once (:func:`tool_limits`) and lowers the tool's limits where necessary. What
can be promised before the first step needs no emergency at run time.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from robolearn.arms.kinematics import SerialArm
from robolearn.arms.moving_mean import MovingMean, window_for
from robolearn.arms.shapes import Joints
from robolearn.arms.table import TableMapping
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import XY, rot_x, rot_z, rotvec_from_rotation
from robolearn.shapes import Floats

# Period of the law in gym-pusht 0.1.8 (``PushTEnv.dt``).
LAW_PERIOD_S = 0.01
# The saturations act this far inside the stated limits: rounding and the last braking step, which
# ends between two samples, stay within them.
_INSIDE = 0.98
# A start within these of the nominal plane and branch is blended in; beyond, it is refused.
START_TOLERANCE_RAD = 0.03
START_TOLERANCE_M = 0.01
_BLEND_S = 1.0
_GRID = 15


@dataclass(frozen=True, slots=True)
class PathLimits:
    """Limits of the commanded path. The defaults leave 99.9 % of the human Push-T commands alone.

    Measured on the recordings under the agent's law: speed at most 0.47 m/s (99.9 %: 0.39),
    acceleration at most 8.1 m/s^2 (99.9 %: 4.5).
    """

    # [rad/s] of the critically damped law; 10 is gym-pusht's (k_p = 100, k_v = 20).
    natural_frequency: float = 10.0
    # [m/s], norm.
    max_tool_speed: float = 0.5
    # [m/s^2], norm.
    max_tool_acceleration: float = 6.0
    # [rad/s]; the UR5e stops itself at 180 deg/s = 3.14 rad/s.
    max_joint_speed: float = 3.1
    # [rad/s^2].
    max_joint_acceleration: float = 50.0
    # [m/s^3], norm; null for none. Costs a delay of acceleration / jerk [s].
    max_tool_jerk: float | None = None
    # [rad] kept from the arm's position limits.
    joint_margin: float = 0.1
    # [m, m] in the table frame.
    workspace_low: tuple[float, float] = (0.0, 0.0)
    # [m, m] in the table frame.
    workspace_high: tuple[float, float] = (0.512, 0.512)
    # [m] around the workspace that must be reachable too (a start may lie there).
    workspace_margin: float = 0.005

    def __post_init__(self) -> None:
        positive = (
            "natural_frequency",
            "max_tool_speed",
            "max_tool_acceleration",
            "max_joint_speed",
            "max_joint_acceleration",
        )
        for name in positive:
            value = float(getattr(self, name))
            if not (math.isfinite(value) and value > 0.0):
                raise ConfigError(f"path limits: {name} must be positive, got {value}")
        window_for(self.max_tool_acceleration, self.max_tool_jerk, 0.01)
        if not all(lo < hi for lo, hi in zip(self.workspace_low, self.workspace_high, strict=True)):
            raise ConfigError(
                f"path limits: workspace_low {self.workspace_low} must be below workspace_high"
                f" {self.workspace_high}"
            )


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """Tool speed [m/s] and acceleration [m/s^2] that also keep the joint limits everywhere, and
    the largest joint speed per tool speed [rad/m] in the workspace.
    """

    speed: float
    acceleration: float
    gain: float


@functools.lru_cache(maxsize=16)
def tool_limits(arm: SerialArm, mapping: TableMapping, limits: PathLimits) -> ToolLimits:
    """Check the whole workspace and translate the joint limits into tool limits.

    With ``q' = K(xy) v`` and ``q'' = K a + (dK/dt) v``, the bounds are ``|q'| <= G v`` and
    ``|q''| <= G a + C v^2`` per joint, G and C the largest values on a grid (5 % are added for
    what lies between its points). Raises :class:`ConfigError` if a point is out of reach, breaks
    a joint limit, or lies on another branch.
    """
    low = np.array(limits.workspace_low) - limits.workspace_margin
    high = np.array(limits.workspace_high) + limits.workspace_margin
    axes: list[Floats] = [np.linspace(low[i], high[i], _GRID) for i in range(2)]
    q = np.empty((_GRID, _GRID, arm.dof))
    K = np.empty((_GRID, _GRID, arm.dof, 2))
    R = np.array(mapping.T_base_table)[:3, :2]
    for i, x in enumerate(axes[0].tolist()):
        for j, y in enumerate(axes[1].tolist()):
            try:
                q[i, j] = mapping.joints(arm, (x, y))
                K[i, j] = np.linalg.solve(arm.jacobian(q[i, j]), np.vstack([R, 0.0 * R]))
            except (DataError, np.linalg.LinAlgError) as error:
                raise ConfigError(
                    f"{arm.name} cannot hold the tool at ({x:.3f}, {y:.3f}) m of the table:"
                    f" {error}; move the table or shrink the workspace"
                ) from error
            if not arm.within_limits(q[i, j], limits.joint_margin):
                raise ConfigError(
                    f"{arm.name} is within {limits.joint_margin} rad of a joint limit with the tool"
                    f" at ({x:.3f}, {y:.3f}) m of the table; move the table"
                )
    jump = max(float(np.abs(np.diff(q, axis=axis)).max()) for axis in (0, 1))
    if jump > 0.8:
        raise ConfigError(
            f"{arm.name} changes branch inside the workspace (a jump of {jump:.1f} rad between"
            " neighbours); move the table or choose another home configuration"
        )
    gain = 1.05 * float(np.linalg.norm(K, axis=-1).max())
    bend = np.stack([np.gradient(K, axes[k], axis=k) for k in (0, 1)], axis=-1)
    curvature = 1.05 * float(np.sqrt((bend**2).sum(axis=(-1, -2))).max())
    # The blend of a slightly different start is small and smooth; it gets a reserve of its own.
    max_speed = min(limits.max_joint_speed, *arm.max_speed) - 2.0 * START_TOLERANCE_RAD / _BLEND_S
    max_acceleration = limits.max_joint_acceleration - 6.0 * START_TOLERANCE_RAD / _BLEND_S**2
    speed = min(limits.max_tool_speed, max_speed / gain)
    speed = min(speed, math.sqrt(0.5 * max(max_acceleration, 0.0) / max(curvature, 1e-9)))
    acceleration = min(
        limits.max_tool_acceleration, (max_acceleration - curvature * speed * speed) / gain
    )
    if speed <= 1e-3 or acceleration <= 1e-2:
        raise ConfigError(
            f"the joint limits leave the tool {speed:.3g} m/s and {acceleration:.3g} m/s^2;"
            " raise max_joint_speed or max_joint_acceleration, or move the table"
        )
    return ToolLimits(speed, acceleration, gain)


@dataclass(frozen=True, slots=True)
class Setpoint:
    """One servo set-point: joints ``q [dof]`` [rad] and ``qd [dof]`` [rad/s], tool ``xy [2]`` [m].

    ``limited`` names what held the tool back in this step: ``target`` (outside the workspace),
    ``acceleration``, ``speed``, ``workspace`` (braking before the border).
    """

    q: Joints
    qd: Joints
    xy: XY
    limited: tuple[str, ...]
    finite: bool


class SetpointGenerator:
    """Targets in, set-points out; see the module's description. Not thread-safe."""

    def __init__(
        self, arm: SerialArm, mapping: TableMapping, limits: PathLimits, dt_s: float
    ) -> None:
        if not 1e-4 <= dt_s <= 0.05:
            raise ConfigError(f"servo period must be 0.1 to 50 ms, got {dt_s * 1e3:g} ms")
        self.arm, self.mapping, self.limits, self.dt_s = arm, mapping, limits, dt_s
        self.tool_limits = tool_limits(arm, mapping, limits)
        self._law_steps = max(1, round(LAW_PERIOD_S / dt_s))
        period = self._law_steps * dt_s
        # gym-pusht moves by the new velocity (semi-implicit), here acceleration is constant within
        # a period; with this damping both discrete laws have the same poles.
        self._k = limits.natural_frequency**2
        self._d = 2.0 * limits.natural_frequency + 0.5 * self._k * LAW_PERIOD_S
        if self._d * period >= 1.0:
            raise ConfigError(
                f"natural_frequency {limits.natural_frequency:g} rad/s is too high for a period of"
                f" {period:g} s"
            )
        self._tool_axes = np.vstack([np.array(mapping.T_base_table)[:3, :2], np.zeros((3, 2))])
        window = window_for(self.tool_limits.acceleration, limits.max_tool_jerk, dt_s)
        self._mean = MovingMean(window, 4) if window > 1 else None
        # Position and velocity as sent; the same as the law's without a limit on jerk.
        self._out = np.zeros(4)
        self._per_xy = np.zeros((arm.dof, 2))
        self._ready = False
        self._x, self._y, self._vx, self._vy = 0.0, 0.0, 0.0, 0.0
        self._ax, self._ay = 0.0, 0.0
        self._target: tuple[float, float] = (0.0, 0.0)
        self._target_t = -math.inf
        self._target_clipped = False
        self._holding = True
        self._law_left = 0
        self._q = np.zeros(arm.dof)
        self._offset = np.zeros(arm.dof)
        self._sent_q = np.zeros(arm.dof)
        self._blend_t = _BLEND_S

    @property
    def velocity(self) -> XY:
        """Commanded tool velocity ``[2]`` [m/s] in the table frame."""
        return self._out[2:].copy()

    def rest(self, deceleration: float) -> Joints:
        """Joint positions ``[dof]`` [rad] at which :meth:`hold` would end, to first order, braking
        by ``deceleration`` [m/s^2].
        """
        v = np.array((self._vx, self._vy))
        end = np.array((self._x, self._y)) + 0.5 * v * math.hypot(*v) / deceleration
        return self._sent_q + self._per_xy @ (end - self._out[:2])

    @property
    def target(self) -> XY:
        """The target that is followed ``[2]`` [m], inside the workspace."""
        return np.array(self._target)

    @property
    def still(self) -> bool:
        """True while nothing moves but the blend of the start."""
        return self._vx == 0.0 and self._vy == 0.0 and not self._out[2:].any()

    @property
    def at_rest(self) -> bool:
        """True once :meth:`hold` has come to a stop."""
        return self._holding and self.still and self._blend_t >= _BLEND_S

    @property
    def stop_time_s(self) -> float:
        """An upper bound on how long :meth:`hold` takes to come to rest."""
        tool = self.tool_limits
        window = 0 if self._mean is None else self._mean.window
        braked_s = tool.speed / (0.7 * _INSIDE * tool.acceleration)
        return max(_BLEND_S, braked_s + window * self.dt_s) + 3.0 * self.dt_s

    def reset(self, q: Joints) -> None:
        """Start at rest at measured joint positions ``q [dof]``, holding.

        Raises :class:`DataError` (and changes nothing) if the tool is not in the plane within
        1 cm and 0.03 rad per joint, outside the workspace, or on another branch.
        """
        start = np.array(q, dtype=np.float64)
        if start.shape != (self.arm.dof,) or not np.all(np.isfinite(start)):
            raise DataError(f"start: expected {self.arm.dof} finite joint positions, got {q!r}")
        xy = self._start_xy(start)
        nominal = self.mapping.joints(self.arm, xy)
        offset = start - nominal
        worst = int(np.argmax(np.abs(offset)))
        if abs(offset[worst]) > START_TOLERANCE_RAD:
            raise DataError(
                f"start: joint {self.arm.joint_names[worst]} is {offset[worst]:+.3f} rad from where"
                f" it belongs with the tool at ({xy[0]:.3f}, {xy[1]:.3f}) m; move the arm to"
                f" {np.round(nominal, 4).tolist()}"
            )
        self._x, self._y = float(xy[0]), float(xy[1])
        self._vx = self._vy = self._ax = self._ay = 0.0
        self._target, self._target_t, self._target_clipped = (self._x, self._y), -math.inf, False
        self._holding, self._law_left = True, 0
        self._q, self._offset, self._sent_q = nominal, offset, start
        self._out = np.array((self._x, self._y, 0.0, 0.0))
        if self._mean is not None:
            self._mean.reset(self._out)
        self._blend_t = 0.0 if float(np.abs(offset).max()) > 1e-9 else _BLEND_S
        self._ready = True

    def set_target(self, xy: Any, t_s: float) -> None:
        """Follow ``xy [2]`` [m] in the table frame from now on; ``t_s`` orders the targets.

        A target outside the workspace is followed to the border. Raises :class:`DataError` (and
        changes nothing) on a wrong shape, a value that is not finite, or an older time.
        """
        self._require_ready()
        try:
            value = np.asarray(xy, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"target: expected two numbers [m], got {xy!r}") from error
        if value.shape != (2,) or not np.all(np.isfinite(value)):
            raise DataError(f"target: expected two finite numbers [m], got {value.tolist()}")
        if not math.isfinite(t_s) or t_s < self._target_t:
            raise DataError(
                f"target: time {t_s} s is not finite or before the last one's {self._target_t} s"
            )
        low, high = self.limits.workspace_low, self.limits.workspace_high
        x, y = value.tolist()
        cx, cy = min(max(x, low[0]), high[0]), min(max(y, low[1]), high[1])
        self._target, self._target_t = (cx, cy), t_s
        self._target_clipped = (cx, cy) != (x, y)
        self._holding, self._law_left = False, 0

    def hold(self) -> None:
        """Decelerate along the motion, then stay, until the next target."""
        self._holding = True

    def step(self) -> Setpoint:
        """The next set-point, one servo period on."""
        self._require_ready()
        dt = self.dt_s
        limited: list[str] = ["target"] if self._target_clipped and not self._holding else []
        vx, vy = self._velocity_next(limited)
        self._x += 0.5 * dt * (self._vx + vx)
        self._y += 0.5 * dt * (self._vy + vy)
        self._vx, self._vy = vx, vy
        out = np.array((self._x, self._y, vx, vy))
        self._out = out if self._mean is None else self._mean.add(out)
        xy = self._out[:2].copy()
        self._q = self.mapping.joints(self.arm, xy, near=self._q)
        self._per_xy = np.linalg.solve(self.arm.jacobian(self._q), self._tool_axes)
        q, qd = self._q, self._per_xy @ self._out[2:]
        if self._blend_t < _BLEND_S:
            self._blend_t += dt
            share, slope = _fade(self._blend_t / _BLEND_S)
            q, qd = q + share * self._offset, qd + slope / _BLEND_S * self._offset
        self._sent_q = q.copy()
        finite = bool(np.all(np.isfinite(q)) and np.all(np.isfinite(qd)))
        return Setpoint(q.copy(), qd.copy(), xy, tuple(limited), finite)

    def _velocity_next(self, limited: list[str]) -> tuple[float, float]:
        """Velocity at the end of the step, after the law and the saturations."""
        dt, vx, vy = self.dt_s, self._vx, self._vy
        a_max = _INSIDE * self.tool_limits.acceleration
        if self._holding:
            speed = math.hypot(vx, vy)
            lost = min(1.0, 0.7 * a_max * dt / speed) if speed > 0.0 else 0.0
            dvx, dvy = -lost * vx, -lost * vy
        else:
            if self._law_left == 0:
                self._ax = self._k * (self._target[0] - self._x) - self._d * vx
                self._ay = self._k * (self._target[1] - self._y) - self._d * vy
                self._law_left = self._law_steps
            self._law_left -= 1
            dvx, dvy = self._ax * dt, self._ay * dt
        change = math.hypot(dvx, dvy)
        if change > a_max * dt:
            dvx, dvy = dvx * a_max * dt / change, dvy * a_max * dt / change
            limited.append("acceleration")
        nx, ny = vx + dvx, vy + dvy
        speed, v_max = math.hypot(nx, ny), _INSIDE * self.tool_limits.speed
        if speed > v_max:
            nx, ny = nx * v_max / speed, ny * v_max / speed
            limited.append("speed")
        return self._brake(nx, ny, limited)

    def _brake(self, nx: float, ny: float, limited: list[str]) -> tuple[float, float]:
        """Keep each axis able to stop before the workspace's border.

        Each axis may use 1/sqrt(2) of the acceleration, so both can brake at once; when one has to
        brake harder than the law wanted, the other's change shrinks to keep the norm.
        """
        vx, vy, dt = self._vx, self._vy, self.dt_s
        a_max = _INSIDE * self.tool_limits.acceleration
        a_axis = a_max / math.sqrt(2.0)
        low, high = self.limits.workspace_low, self.limits.workspace_high
        bx = min(nx, _brake_speed(high[0] - self._x, vx, a_axis, dt))
        bx = max(bx, -_brake_speed(self._x - low[0], -vx, a_axis, dt))
        by = min(ny, _brake_speed(high[1] - self._y, vy, a_axis, dt))
        by = max(by, -_brake_speed(self._y - low[1], -vy, a_axis, dt))
        if bx == nx and by == ny:
            return nx, ny
        limited.append("workspace")
        budget = a_max * dt
        if math.hypot(bx - vx, by - vy) > budget:
            if bx == nx:
                bx = vx + _shrink(bx - vx, budget, by - vy)
            elif by == ny:
                by = vy + _shrink(by - vy, budget, bx - vx)
        return bx, by

    def _start_xy(self, q: Joints) -> XY:
        tip = self.mapping.tip(self.arm, q)
        xy, height = tip[:2, 3], float(tip[2, 3])
        down = rot_z(self.mapping.tool_yaw) @ rot_x(math.pi)
        tilt = float(np.linalg.norm(rotvec_from_rotation(tip[:3, :3].T @ down)))
        away = abs(height - self.mapping.tip_height_m)
        if away > START_TOLERANCE_M or tilt > 6.0 * START_TOLERANCE_RAD:
            raise DataError(
                f"start: the tool is {height * 1e3:.1f} mm above the table and {tilt:.2f} rad off"
                f" pointing down; it works at {self.mapping.tip_height_m * 1e3:.1f} mm, pointing"
                " down: move the arm to its start first"
            )
        margin = self.limits.workspace_margin
        low = np.array(self.limits.workspace_low) - margin
        high = np.array(self.limits.workspace_high) + margin
        if np.any(xy < low) or np.any(xy > high):
            raise DataError(
                f"start: the tool is at ({xy[0]:.3f}, {xy[1]:.3f}) m, outside the workspace"
                f" {low.tolist()} to {high.tolist()} m"
            )
        return xy

    def _require_ready(self) -> None:
        if not self._ready:
            raise DataError("the set-point generator has no start; call reset(q) first")


def _brake_speed(distance: float, v: float, a: float, dt: float) -> float:
    """Largest velocity at the end of a step from which ``distance`` [m] still suffices to stop.

    Solves ``w^2 / (2 a) = distance - dt (v + w) / 2``; at most ``a dt`` below ``v`` if ``v`` itself
    was admissible, so the bound can always be kept.
    """
    left = max(distance, 0.0) - 0.5 * dt * v
    if left < 0.0:
        return 2.0 * max(distance, 0.0) / dt - v
    return a * (math.sqrt(0.25 * dt * dt + 2.0 * left / a) - 0.5 * dt)


def _shrink(change: float, budget: float, other: float) -> float:
    """``change`` reduced so that it and ``other`` together stay within ``budget``."""
    room = math.sqrt(max(budget * budget - other * other, 0.0))
    return math.copysign(min(abs(change), room), change)


def _fade(s: float) -> tuple[float, float]:
    """A smooth 1 -> 0 over s in [0, 1], zero slope and curvature at the ends; and its slope."""
    s = min(s, 1.0)
    return (
        1.0 - s**3 * (10.0 - 15.0 * s + 6.0 * s * s),
        -30.0 * s * s * (1.0 - s) ** 2,
    )
