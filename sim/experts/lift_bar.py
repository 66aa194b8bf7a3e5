"""Lifts the bar: both hands over its ends, down, close, up together."""

from __future__ import annotations

import math

import numpy as np

from robolearn.agents.actions import clip_action
from robolearn.geometry import Vector
from robolearn.seeding import child_seed
from robolearn.shapes import OwnFloats
from robolearn.spec import EmbodimentSpec
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput
from sim.tasks.lift_bar import BAR, LIFT_M, grasps

SIDES = ("left", "right")
# Where along the bar the hands hold it [m]; hands over it, hands at it, and the final height [m].
_HALF_M, _OVER_M, _AT_M, _UP_M = 0.15, 0.12, 0.02, LIFT_M + 0.06
_OPEN_M = 0.07
# Ticks per phase: above, down, close, up.
_PHASES = (25, 15, 12, 20)


class LiftBarExpert:
    """Follows a fixed timetable from where the bar lies at the start. ``noise`` shakes the hands by
    up to 3 cm.
    """

    def __init__(self, embodiment: EmbodimentSpec, noise: float = 0.0) -> None:
        tools = [f"{side}_tool/pose" for side in SIDES]
        names = [n for side in SIDES for n in (f"{side}_tool/xyz_yaw", f"{side}_gripper/width")]
        self._actions = embodiment.task_space([BAR, *tools], names).actions
        self._noise = noise
        self.reset(0)

    @property
    def name(self) -> str:
        """Who decides, for provenance."""
        return f"scripted:lift_bar:noise={self._noise:g}" if self._noise else "scripted:lift_bar"

    def reset(self, seed: int) -> None:
        """Start the timetable anew."""
        self._rng = np.random.default_rng(child_seed(seed, "expert"))
        self._tick = 0
        self._yaw = 0.0
        self._ends: tuple[Vector, Vector] = (np.zeros(3), np.zeros(3))
        self._from: tuple[Vector, Vector] = (np.zeros(3), np.zeros(3))

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """Where both hands should be at this tick."""
        del reply
        if self._tick == 0:
            bar = observation.value(BAR)
            self._ends = grasps(bar, _HALF_M)
            self._yaw = 2.0 * math.atan2(float(bar[6]), float(bar[3]))
            left, right = (observation.value(f"{s}_tool/pose")[:3] for s in SIDES)
            self._from = (left, right)
        action: dict[str, OwnFloats] = {}
        for side, start, end in zip(SIDES, self._from, self._ends, strict=True):
            point, width = self._plan(start, end)
            point = point + 0.03 * self._noise * self._rng.standard_normal(3)
            # The fingers move along the hand's y axis; the bar's short side is its x axis.
            action[f"{side}_tool/xyz_yaw"] = np.array([*point, self._yaw + 0.5 * math.pi])
            action[f"{side}_gripper/width"] = np.array([width])
        seq, self._tick = self._tick, self._tick + 1
        return Command(seq, clip_action(self._actions, action), observation.t_ns, "scripted")

    def _plan(self, start: Vector, end: Vector) -> tuple[Vector, float]:
        above, down, close, up = _PHASES
        k = self._tick
        over, at = end + np.array([0.0, 0.0, _OVER_M]), end + np.array([0.0, 0.0, _AT_M - 0.015])
        if k < above:
            return start + _smooth((k + 1) / above) * (over - start), _OPEN_M
        k -= above
        if k < down:
            return over + _smooth((k + 1) / down) * (at - over), _OPEN_M
        k -= down
        if k < close:
            return at, 0.0
        share = _smooth(min(1.0, (k - close + 1) / up))
        return at + np.array([0.0, 0.0, share * _UP_M]), 0.0


def _smooth(s: float) -> float:
    return s * s * (3.0 - 2.0 * s)
