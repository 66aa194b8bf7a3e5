"""Tells whether a person wants to drive, from what the device says while a policy does.

motion                            touched
speeds                            by how far they are deflected
steps                             for a moment after each step
a hand's pose                     while the clutch is held
a point on the table              while it is held on the tool
joint angles of a leader arm      cannot be told: a key takes over, once both arms stand alike
"""

from __future__ import annotations

import time

import numpy as np

from hardware.teleop.config import MappingConfig
from hardware.teleop.device import (
    DeviceReading,
    HandPose,
    JointAngles,
    Key,
    Rate,
    Steps,
    TablePoint,
)
from hardware.teleop.targets import XY_TABLE
from robolearn.agents.take_over import Touch, Wish
from robolearn.arms.shapes import Twist
from robolearn.types import Observation

# A step counts as a touch for so long: presses of a repeated key are further apart than two ticks.
_STEP_NS = 200_000_000
_JOINTS = "arm/joint_position"
_WISHES: dict[Key, Wish] = {"takeover": "take_over", "handback": "hand_back"}


class Touching:
    """The touch of one device; ``lease_s`` is the device's."""

    def __init__(self, config: MappingConfig, lease_s: float) -> None:
        self._config, self._lease_ns = config, round(lease_s * 1e9)
        self.reset()

    def reset(self) -> None:
        """Nothing was stepped yet."""
        self._total: Twist | None = None
        self._stepped_ns = 0

    def touch(
        self, reading: DeviceReading, keys: tuple[Key, ...], observation: Observation
    ) -> Touch:
        """``keys``: those pressed since the last call; the newest of two wishes counts."""
        now_ns = time.monotonic_ns()
        wish: Wish = ""
        for key in keys:
            wish = _WISHES.get(key, wish)
        present = reading.present and now_ns - reading.t_ns <= self._lease_ns
        aligned = self._aligned(reading, observation)
        return Touch(self._level(reading, observation, now_ns), wish, aligned, present)

    def _level(self, reading: DeviceReading, observation: Observation, now_ns: int) -> float:
        motion = reading.motion
        if isinstance(motion, Steps):
            if self._total is not None and (motion.total != self._total).any():
                self._stepped_ns = now_ns
            self._total = motion.total
            return float(self._stepped_ns > 0 and now_ns - self._stepped_ns <= _STEP_NS)
        if not reading.clutch:
            return 0.0
        if isinstance(motion, Rate):
            level = float(np.abs(motion.twist).max())
            return min(1.0, level) if np.isfinite(level) else 0.0
        if isinstance(motion, TablePoint):
            away = np.linalg.norm(motion.xy - np.asarray(observation.value(XY_TABLE)))
            return float(away <= self._config.reach_m)
        return float(isinstance(motion, HandPose))

    def _aligned(self, reading: DeviceReading, observation: Observation) -> bool:
        motion = reading.motion
        if not isinstance(motion, JointAngles):
            return True
        measured = np.asarray(observation.value(_JOINTS))
        if measured.shape != motion.q.shape:
            return False
        return bool((np.abs(motion.q - measured) <= self._config.gate_rad).all())
