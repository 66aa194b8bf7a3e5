"""Models what a UR controller does with commands: the joint reference that its servos follow.

A model, not the vendor's code: ``servoJ`` set-points pass a critically damped second-order filter
whose lag behind a ramp equals the look-ahead time at gain 300 and shrinks with its square root;
``speedJ`` and stops change the speed at a constant rate along the current direction; ``moveJ`` is
a trapezoid of the leading joint, ``moveL`` one of the tool's way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from robolearn.arms.shapes import Joints
from robolearn.errors import DataError

Mode = Literal["hold", "servo", "speed", "move", "line", "stop", "free"]

# Joint angles at a time [s] since the beginning; DataError where there are none.
Path = Callable[[float], Joints]
# From the joints where an arm rests: the path from there, and how long it takes [s].
Planned = Callable[[Joints], tuple[Path, float]]

REFERENCE_GAIN = 300.0  # default gain of servoJ in URScript


@dataclass(frozen=True, slots=True)
class MotionLimits:
    """Where the controller protects itself.

    191 deg/s is the safety limit of the joint speed in the factory preset; ``jump_slack_rad``
    allows for set-points that arrive in a burst.
    """

    joint_speed_rad_s: float = 3.333
    joint_range_rad: float = 6.2832
    jump_slack_rad: float = 0.02
    program_stop_rad_s2: float = 10.0
    protective_stop_rad_s2: float = 25.0


class JointMotion:
    """The controller's reference ``q``, ``qd`` [6], advanced by :meth:`step`."""

    def __init__(self, q: Joints, limits: MotionLimits) -> None:
        self.q = np.array(q, dtype=np.float64)
        self.qd = np.zeros_like(self.q)
        self.mode: Mode = "hold"
        self.limits = limits
        self._target = self.q.copy()
        self._speed = np.zeros_like(self.q)
        self._accel = 1.0
        self._bandwidth = 20.0
        self._start = self.q.copy()
        self._profile = (0.0, 0.0, 0.0)
        self._elapsed = 0.0
        self._next: Callable[[], None] | None = None
        self._path: Path = lambda _: self.q
        self._duration = 0.0

    @property
    def at_rest(self) -> bool:
        """True when the reference holds still and nothing is under way."""
        return self.mode == "hold"

    def servo(
        self, target: Joints, time_s: float, lookahead_s: float, gain: float, since_s: float
    ) -> str:
        """A servoJ set-point; returns why it is refused, or ``""``.

        ``since_s`` is the time since the previous set-point: the two together imply a joint speed.
        """
        problem = self.check_position(target)
        if problem:
            return problem
        if not np.isfinite([time_s, lookahead_s, gain]).all():
            return f"servoJ with time {time_s}, look-ahead {lookahead_s}, gain {gain}"
        previous = self._target if self.mode == "servo" else self.q
        jump = np.abs(target - previous)
        allowed = self.limits.joint_speed_rad_s * max(since_s, time_s, 0.002)
        if np.any(jump > allowed + self.limits.jump_slack_rad):
            joint = int(np.argmax(jump))
            return (
                f"sudden change in target position: joint {joint} jumps"
                f" {jump[joint]:.3f} rad in {since_s * 1e3:.0f} ms"
            )
        self.mode = "servo"
        self._target = target.copy()
        lag = min(max(lookahead_s, 0.005), 0.2) * np.sqrt(REFERENCE_GAIN / max(gain, 1.0))
        self._bandwidth = 2.0 / float(lag)
        return ""

    def speed(self, qd: Joints, accel: float) -> str:
        """A speedJ target; returns why it is refused, or ``""``."""
        if not np.isfinite([*qd, accel]).all() or np.abs(qd).max() > self.limits.joint_speed_rad_s:
            return f"speedJ with {np.round(qd, 3).tolist()} rad/s, acceleration {accel}"
        self.mode = "speed"
        self._speed = qd.copy()
        self._accel = max(accel, 1e-3)
        return ""

    def move(self, q: Joints, speed: float, accel: float) -> str:
        """A moveJ target; from motion, the arm stops first. Returns why it is refused."""
        problem = self.check_position(q)
        if problem:
            return problem
        if not (0 < speed <= self.limits.joint_speed_rad_s and 0 < accel < 1e3):
            return f"moveJ with speed {speed:.3f} rad/s and acceleration {accel:.3f} rad/s^2"
        if np.abs(self.qd).max() > 1e-3:
            self.stop(accel)
            self._next = lambda: self._begin_move(q.copy(), speed, accel)
        else:
            self._begin_move(q, speed, accel)
        return ""

    def along(self, planned: Planned, accel: float) -> None:
        """A path of the tool; from motion, the arm stops first. DataError where there is none."""
        if np.abs(self.qd).max() > 1e-3:
            self.stop(accel)
            self._next = lambda: self._begin_path(planned)
        else:
            self._begin_path(planned)

    def stop(self, decel: float) -> None:
        """Decelerate to rest along the current direction of motion."""
        self._next = None
        self._accel = max(decel, 0.1) if np.isfinite(decel) else 10.0
        self.mode = "stop"

    def give_way(self, q: Joints, qd: Joints) -> None:
        """Freedrive: where whoever guides the arm has brought it."""
        self.mode, self.q, self.qd = "free", q, qd

    def hold_here(self, q: Joints) -> None:
        """Take over a measured position at rest (power-up, unlock)."""
        self.q, self.qd = np.array(q, dtype=np.float64), np.zeros_like(self.q)
        self.mode = "hold"

    def check_position(self, q: Joints) -> str:
        """Why a joint position is refused, or ``""``."""
        if not np.isfinite(q).all():
            return f"joint target is not finite: {q.tolist()}"
        if np.abs(q).max() > self.limits.joint_range_rad:
            return f"joint target beyond the joint range: {np.round(q, 3).tolist()} rad"
        return ""

    def step(self, dt_s: float) -> str:
        """Advance by ``dt_s``; returns why the controller protects itself, or ``""``."""
        if self.mode == "servo":
            self._step_servo(dt_s)
        elif self.mode == "speed":
            self._step_speed(dt_s)
        elif self.mode == "move":
            self._step_move(dt_s)
        elif self.mode == "line":
            return self._step_path(dt_s)
        elif self.mode == "stop":
            self._step_stop(dt_s)
        return self.check_position(self.q) if self.mode in ("servo", "speed") else ""

    def _step_servo(self, dt_s: float) -> None:
        # Exact solution of the critically damped filter over one period with a constant target.
        w = self._bandwidth
        x = self.q - self._target
        c = self.qd + w * x
        decay = float(np.exp(-w * dt_s))
        moved = self._target + (x + c * dt_s) * decay - self.q
        self.qd = (self.qd - w * c * dt_s) * decay
        # A burst of set-points (a client that was held up) would make the filter overshoot the
        # speed limit; the arm takes its time instead.
        limit = self.limits.joint_speed_rad_s
        over = float(max(np.abs(moved).max() / dt_s, np.abs(self.qd).max())) / limit
        self.q = self.q + moved / max(over, 1.0)
        self.qd = self.qd / max(over, 1.0)

    def _step_speed(self, dt_s: float) -> None:
        delta = self._speed - self.qd
        largest = float(np.abs(delta).max())
        before = self.qd
        self.qd = self.qd + delta * (
            1.0 if largest <= self._accel * dt_s else self._accel * dt_s / largest
        )
        self.q = self.q + 0.5 * (before + self.qd) * dt_s

    def _step_stop(self, dt_s: float) -> None:
        speed = float(np.abs(self.qd).max())
        left = max(0.0, speed - self._accel * dt_s)
        if speed > 0.0:
            self.q = self.q + self.qd * dt_s * 0.5 * (1.0 + left / speed)
            self.qd = self.qd * (left / speed)
        if left == 0.0:
            self.qd = np.zeros_like(self.qd)
            self.mode = "hold"
            following, self._next = self._next, None
            if following is not None:
                following()

    def _begin_path(self, planned: Planned) -> None:
        self._path, self._duration = planned(self.q.copy())
        self._elapsed = 0.0
        self.mode = "line" if self._duration > 0.0 else "hold"

    def _step_path(self, dt_s: float) -> str:
        self._elapsed = min(self._elapsed + dt_s, self._duration)
        try:
            q = self._path(self._elapsed)
        except DataError as error:
            return f"no joints for the tool's way: {error}"
        qd = (q - self.q) / dt_s
        if float(np.abs(qd).max()) > self.limits.joint_speed_rad_s:
            joint = int(np.argmax(np.abs(qd)))
            return f"speed limit: joint {joint} at {abs(qd[joint]):.2f} rad/s on the tool's way"
        self.q, self.qd = q, qd
        if self._elapsed >= self._duration:
            self.qd, self.mode = np.zeros_like(qd), "hold"
        return ""

    def _begin_move(self, q: Joints, speed: float, accel: float) -> None:
        self._start, self._target = self.q.copy(), q.copy()
        distance = float(np.abs(q - self.q).max())
        peak = min(speed, float(np.sqrt(distance * accel)))
        ramp = peak / accel
        self._profile = (distance, peak, ramp)
        self._elapsed = 0.0
        self.mode = "move" if distance > 0.0 else "hold"

    def _step_move(self, dt_s: float) -> None:
        distance, peak, ramp = self._profile
        self._elapsed += dt_s
        total = distance / peak + ramp
        t = min(self._elapsed, total)
        if t < ramp:
            s, v = 0.5 * peak / ramp * t * t, peak / ramp * t
        elif t < total - ramp:
            s, v = peak * (t - 0.5 * ramp), peak
        else:
            rest = total - t
            s, v = distance - 0.5 * peak / ramp * rest * rest, peak / ramp * rest
        direction = (self._target - self._start) / distance
        self.q, self.qd = self._start + direction * s, direction * v
        if self._elapsed >= total:
            self.q, self.qd = self._target.copy(), np.zeros_like(self.qd)
            self.mode = "hold"
