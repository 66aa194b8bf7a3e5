"""Judges whether an object could have moved as its tracker says."""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from robolearn.errors import ConfigError
from robolearn.geometry import ObjectPose
from robolearn.pusht import wrap_angle
from robolearn.shapes import OwnFloats

log = logging.getLogger(__name__)

# Poses over which the speed of an object is estimated.
_REMEMBERED = 6
# What the object may have moved on since the first refusal grows no longer than this [s].
_GROWS_S = 0.05


@dataclass(frozen=True, slots=True)
class PlausibleMotion:
    """How an object that is tracked can move, by hand or pushed; what differs is no measurement."""

    # [m/s].
    max_speed: float = 1.5
    # [m/s^2], besides an impact, which is over before the next measurement.
    max_acceleration: float = 40.0
    # [rad/s].
    max_turn_rate: float = 15.0
    # What two measurements of one place may differ by [m].
    noise_m: float = 0.01
    # The same for the heading [rad].
    noise_rad: float = 0.15
    # Measurements that agree with each other at another place for this long are believed: somebody
    # has moved the object. Never sooner than half a second after the last good one is stale [s].
    settle_s: float = 1.0

    def __post_init__(self) -> None:
        for name in ("max_speed", "max_acceleration", "max_turn_rate", "settle_s"):
            if not 0.0 < float(getattr(self, name)) < math.inf:
                raise ConfigError(f"tracker: plausible.{name} must be positive and finite")
        if not (0.0 <= self.noise_m < math.inf and 0.0 <= self.noise_rad < math.inf):
            raise ConfigError("tracker: plausible.noise_m and noise_rad must not be negative")


class PoseGate:
    """Compares every measurement with the last good ones; a refused one changes nothing.

    While it refuses, the last good pose stays and grows old: whoever asks for it hears of that
    (``max_age_s``) before another place is believed.
    """

    def __init__(self, name: str, motion: PlausibleMotion | None, max_age_s: float) -> None:
        self._name, self._motion = name, motion
        self._settle_ns = 0
        if motion is not None:
            self._settle_ns = round(1e9 * max(motion.settle_s, max_age_s + 0.5))
        self.refused = 0
        # The last refusal, in words; "" while all is well.
        self.refusal = ""
        self.forget()

    def forget(self) -> None:
        """The object may have been moved: the next measurement is believed."""
        self._good: deque[tuple[int, ObjectPose]] = deque(maxlen=_REMEMBERED)
        self._elsewhere: tuple[int, ObjectPose] | None = None
        # Since when measurements have been refused, and have agreed with each other.
        self._refusing_ns = self._elsewhere_since_ns = 0
        self.refusal = ""

    def accepts(self, t_ns: int, pose: ObjectPose) -> bool:
        """Whether ``pose``, measured at ``t_ns``, is believed; all of an object have one form."""
        motion = self._motion
        if motion is None or not self._good:
            self._believe(t_ns, pose)
            return True
        problem = self._implausible(motion, t_ns, pose)
        if problem and not self._settled(motion, t_ns, pose):
            if not self.refusal:
                self._refusing_ns = t_ns
                log.warning("tracker of '%s': %s; the last good pose is kept", self._name, problem)
            self.refused, self.refusal = self.refused + 1, problem
            return False
        if problem:
            log.warning("tracker of '%s': believed at its new place", self._name)
            self.forget()
        self._believe(t_ns, pose)
        return True

    def _believe(self, t_ns: int, pose: ObjectPose) -> None:
        self._good.append((t_ns, pose))
        self._elsewhere, self.refusal = None, ""

    def _implausible(self, motion: PlausibleMotion, t_ns: int, pose: ObjectPose) -> str:
        """Why the object cannot have come here from where it was, or ""."""
        last_ns, last = self._good[-1]
        dt_s = 1e-9 * (t_ns - last_ns)
        if self.refusal:
            # Time spent on measurements that are refused makes them no better.
            dt_s = min(dt_s, 1e-9 * (self._refusing_ns - last_ns) + _GROWS_S)
        if problem := _too_far(motion, last, pose, dt_s):
            return problem
        first_ns, first = self._good[0]
        known_s = 1e-9 * (last_ns - first_ns)
        if known_s <= 0.0:
            return ""
        velocity = (_place(last) - _place(first)) / known_s
        off_m = float(np.linalg.norm(_place(pose) - _place(last) - dt_s * velocity))
        noise_m = motion.noise_m * (1.0 + 2.0 * dt_s / known_s)
        if off_m > noise_m + 0.5 * motion.max_acceleration * dt_s**2:
            return (
                f"{off_m:.3f} m from where it was going, {1e3 * dt_s:.0f} ms later, is more than"
                f" {motion.max_acceleration:g} m/s^2"
            )
        return ""

    def _settled(self, motion: PlausibleMotion, t_ns: int, pose: ObjectPose) -> bool:
        """True when refused measurements have agreed with each other for long enough."""
        before, self._elsewhere = self._elsewhere, (t_ns, pose)
        if before is None or _too_far(motion, before[1], pose, 1e-9 * (t_ns - before[0])):
            self._elsewhere_since_ns = t_ns
        return t_ns - self._elsewhere_since_ns >= self._settle_ns


def _too_far(motion: PlausibleMotion, last: ObjectPose, pose: ObjectPose, dt_s: float) -> str:
    """What in a step of ``dt_s`` is faster than the object can move, or ""."""
    moved_m = float(np.linalg.norm(_place(pose) - _place(last)))
    turned = _turned(last, pose)
    if moved_m > motion.max_speed * dt_s + motion.noise_m:
        return f"a jump of {moved_m:.3f} m in {1e3 * dt_s:.0f} ms (limit {motion.max_speed:g} m/s)"
    if turned > motion.max_turn_rate * dt_s + motion.noise_rad:
        limit = motion.max_turn_rate
        return f"a turn of {turned:.2f} rad in {1e3 * dt_s:.0f} ms (limit {limit:g} rad/s)"
    return ""


def _place(pose: ObjectPose) -> OwnFloats:
    """The position of a pose ``[2]`` or ``[3]`` [m]."""
    return pose[: 2 if len(pose) == 3 else 3]


def _turned(last: ObjectPose, pose: ObjectPose) -> float:
    """The angle between two poses [rad]."""
    if len(pose) == 3:
        return abs(float(wrap_angle(pose[2] - last[2])))
    # A quaternion and its opposite are one rotation.
    return 2.0 * math.acos(min(1.0, abs(float(pose[3:] @ last[3:]))))
