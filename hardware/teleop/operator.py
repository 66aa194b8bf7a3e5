"""Drives a device as a person does: sees late, aims with a trembling hand, pauses.

    what an expert would do now --(seen late)--> error of the tool --> deflection, gripper --> input

An *input* is what the person touches (keys of a terminal, reports of a puck, events of a pad, a
leader arm's servos, the arm itself): the same bytes as of the real thing reach the device. With it
whole collections run unattended.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from hardware.teleop.config import DEFAULT_MAPPING
from hardware.teleop.filters import shaped
from hardware.teleop.shapes import Deflection
from hardware.teleop.targets import JOINTS
from robolearn.arms.shapes import Joints, Values
from robolearn.arms.tool_commands import TOOL_COMMANDS, pose_from_values
from robolearn.contracts import Agent
from robolearn.errors import ConfigError
from robolearn.types import Observation

# What the person is used to.
_CURVE = DEFAULT_MAPPING
# The slowest that a person bothers to go, as a share of full speed.
_LEAST = 0.06
# How often the expert is asked in one tick at most.
_ASKED = 8
# Fingers that are nearer to what the expert wants do not make the hand act [m].
_FINGERS_M = 0.01
# They are waited for so long [s].
_FINGERS_S = 0.6
_POSE, _XYZ_YAW, _WIDTH = "tool/pose", "tool/xyz_yaw", "gripper/width"


@runtime_checkable
class Input(Protocol):
    """What a person touches."""

    def deflect(self, twist: Deflection) -> None:
        """Hold the device deflected so, [-1, 1], until the next call."""
        ...

    def grip(self, closed: bool) -> None:
        """Open or close the gripper."""
        ...


@runtime_checkable
class LeaderInput(Protocol):
    """A leader arm in the person's hand."""

    def bring(self, q: Joints) -> None:
        """Bring its joints there [rad], as the joints of the arm that follows count."""
        ...


@dataclass(frozen=True, slots=True)
class Habits:
    """How well a person drives."""

    # From seeing to doing [s].
    reaction_s: float = 0.2
    # How well the person foresees where the tool will be by then, 0 to 1.
    foresight: float = 0.8
    # An error of so much gets full deflection [m], [rad].
    full_m: float = 0.05
    full_rad: float = 0.3
    # Trembling of the deflection.
    tremble: float = 0.03
    # Good enough [m], [rad].
    near_m: float = 0.004
    near_rad: float = 0.05
    # Pauses per minute, and their mean length [s].
    pauses_per_min: float = 2.0
    pause_s: float = 0.5
    # What the person takes for the speed at full deflection [m/s], [rad/s].
    speed_m_s: float = 0.25
    speed_rad_s: float = 0.6
    # How fast the person turns a joint of a leader arm [rad/s], and how it trembles meanwhile
    # [rad].
    joint_rad_s: float = 1.0
    joint_tremble_rad: float = 0.002

    def __post_init__(self) -> None:
        least = min(self.reaction_s, self.tremble, self.joint_tremble_rad)
        if min(least, self.pauses_per_min, self.pause_s) < 0.0:
            raise ConfigError(f"habits: times and trembling are not negative: {self}")


class Operator:
    """Moves ``touched`` so that the tool does what ``expert`` (of ``tool/xyz_yaw`` and
    ``gripper/width``) would do; :meth:`look` is called at every tick.

    The expert is asked for its next wish only when the tool is where it wanted it: a slow hand does
    not run after a script that goes on without it.
    """

    def __init__(
        self,
        expert: Agent,
        touched: Input,
        rate_hz: float,
        rng: np.random.Generator,
        habits: Habits = Habits(),
    ) -> None:
        self._expert, self._input, self._habits, self._rng = expert, touched, habits, rng
        self._dt_s = 1.0 / rate_hz
        self._late = max(1, round(habits.reaction_s * rate_hz))
        self._seen: deque[Observation] = deque(maxlen=self._late)
        # Deflections that the person has not seen the effect of.
        self._done: deque[Deflection] = deque(maxlen=self._late)
        self._wish: Values | None = None
        self._waits = self._closed = False
        self._pauses = _Pauses(habits, rng, self._dt_s)
        # Ticks in which the person waits for the fingers to be seen at rest.
        self._rests = 0

    def look(self, observation: Observation) -> None:
        """See, and act on what was seen ``reaction_s`` ago."""
        self._seen.append(observation)
        if len(self._seen) < self._late:
            return
        rests = self._rests > 0
        self._rests -= rests
        twist = np.zeros(6) if rests or self._pauses() else self._wanted(self._seen[0])
        self._done.append(twist)
        self._input.deflect(twist)

    def _wanted(self, seen: Observation) -> Deflection:
        habits = self._habits
        tool = _xyz_yaw(seen)
        speeds = np.array([habits.speed_m_s] * 3 + [habits.speed_rad_s])
        shares = [shaped(d, _CURVE.dead_zone, _CURVE.exponent)[[0, 1, 2, 5]] for d in self._done]
        coming = np.sum(shares, axis=0) * speeds * self._dt_s if shares else np.zeros(4)
        error = self._error(seen, tool + habits.foresight * coming)
        full = np.array([habits.full_m] * 3 + [habits.full_rad])
        near = np.array([habits.near_m] * 3 + [habits.near_rad])
        moving = np.abs(error) > near
        share = np.clip(error / full, -1.0, 1.0)
        share = share + moving * self._rng.normal(0.0, habits.tremble, 4)
        size = np.clip(np.sign(error) * share, _LEAST, 1.0) ** (1.0 / _CURVE.exponent)
        # A person knows the device: how far it must be pushed for a speed.
        pushed = np.sign(error) * (_CURVE.dead_zone + (1.0 - _CURVE.dead_zone) * size) * moving
        x, y, z, turn = np.clip(pushed, -1.0, 1.0)
        return np.array([x, y, z, 0.0, 0.0, turn])

    def _error(self, seen: Observation, tool: Values) -> Values:
        """From the tool to the wish [x, y, z, yaw]; on the way the wish runs ahead of the tool, and
        where the expert waits the tool must come first.
        """
        habits = self._habits
        near_m, near_rad = 2.0 * habits.near_m, 2.0 * habits.near_rad
        for _ in range(_ASKED):
            error = _difference(self._wish, tool)
            far, turn = float(np.linalg.norm(error[:3])), abs(float(error[3]))
            ahead_m, ahead_rad = habits.full_m, habits.full_rad
            if self._waits:
                ahead_m, ahead_rad = near_m, near_rad
            if self._wish is not None and (far > ahead_m or turn > ahead_rad):
                break
            action = self._expert.decide(seen, None).action
            before, self._wish = self._wish, np.array(action[_XYZ_YAW], dtype=np.float64)
            self._grip(float(np.asarray(action[_WIDTH]).reshape(-1)[0]), seen)
            self._waits = before is not None and np.array_equal(before, self._wish)
            if self._waits:
                break
        return _difference(self._wish, tool)

    def _grip(self, width: float, seen: Observation) -> None:
        """A person presses one button when the fingers should do something else."""
        measured = float(np.asarray(seen.value(_WIDTH)).reshape(-1)[0])
        closed = self._closed
        if abs(width - measured) > _FINGERS_M:
            closed = width < measured
        if closed != self._closed:
            self._closed = closed
            self._input.grip(closed)
            self._rests = self._late + round(_FINGERS_S / self._dt_s)


class LeaderOperator:
    """Moves a leader arm so that the joints do what ``expert`` (of ``arm/joint_position``) would
    do; :meth:`look` is called at every tick. The person first brings it to where the arm is.
    """

    def __init__(
        self,
        expert: Agent,
        touched: LeaderInput,
        rate_hz: float,
        rng: np.random.Generator,
        habits: Habits = Habits(),
    ) -> None:
        self._expert, self._input, self._habits, self._rng = expert, touched, habits, rng
        self._late = max(1, round(habits.reaction_s * rate_hz))
        self._most = habits.joint_rad_s / rate_hz
        self._seen: deque[Observation] = deque(maxlen=self._late)
        self._pauses = _Pauses(habits, rng, 1.0 / rate_hz)
        self._q: Joints | None = None

    def look(self, observation: Observation) -> None:
        """See, and act on what was seen ``reaction_s`` ago."""
        self._seen.append(observation)
        if len(self._seen) < self._late:
            return
        seen = self._seen[0]
        q = self._q
        if q is None:
            q = np.array(seen.value(JOINTS), dtype=np.float64)
        elif not self._pauses():
            wish = np.asarray(self._expert.decide(seen, None).action[JOINTS], dtype=np.float64)
            q = q + np.clip(wish - q, -self._most, self._most)
        self._q = q
        self._input.bring(q + self._rng.normal(0.0, self._habits.joint_tremble_rad, q.shape))


class _Pauses:
    """Whether the person pauses in a tick; asked once in each."""

    def __init__(self, habits: Habits, rng: np.random.Generator, dt_s: float) -> None:
        self._habits, self._rng, self._dt_s, self._left = habits, rng, dt_s, 0

    def __call__(self) -> bool:
        habits = self._habits
        if self._left > 0:
            self._left -= 1
        elif self._rng.uniform() < habits.pauses_per_min / 60.0 * self._dt_s:
            self._left = round(self._rng.exponential(habits.pause_s) / self._dt_s)
        return self._left > 0


def _difference(wish: Values | None, tool: Values) -> Values:
    if wish is None:
        return np.zeros(4)
    error = wish - tool
    error[3] = math.remainder(error[3], 2.0 * math.pi)
    return error


def _xyz_yaw(seen: Observation) -> Values:
    command = TOOL_COMMANDS["xyz_yaw"]
    assert command.report is not None
    values = np.asarray(seen.value(_POSE), dtype=np.float64)
    return command.report(pose_from_values(values, _POSE))
