"""Runs experts as scripts: a generator yields where the hand should be, tick by tick.

    script                      agent                      env
    yield hand.target   <-->    decide(observation)  -->   tool/xyz_yaw, gripper/width
    hand.view = ...             disturbs the target        or tool/delta_pose, gripper/command

A script reads like the task ("open, go above the cube, go down, close, lift"); loops around it make
it recover from what went wrong. Nothing but signals is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from robolearn.agents.actions import clip_action
from robolearn.errors import SpecMismatchError
from robolearn.geometry import Vector, rotation_from_quat, yaw_of
from robolearn.seeding import child_seed
from robolearn.spec import EmbodimentSpec
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput
from sim.experts.noise import Noise, NoiseScale
from sim.shapes import PoseValues, Values

TOOL, WIDTH, XYZ_YAW = "tool/pose", "gripper/width", "tool/xyz_yaw"
# The servo of the fingers presses by its stiffness times this [m].
SQUEEZE_M = 0.015
# Fingers that have not moved for so many ticks will not move.
STILL_TICKS = 4
# Every way of the fingers is done after this time [s].
FINGERS_S = 1.2
# Mean speed of a turn [rad/s].
TURN_SPEED = 2.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where the hand should be: the point between the fingertips [m], heading [rad], width [m]."""

    xyz: tuple[float, float, float]
    yaw: float
    width: float


Script = Generator[Target, Observation, None]


class Hand:
    """Moves a target at bounded speed; scripts call its generators with ``yield from``.

    ``view`` is the newest observation, ``target`` the newest command (undisturbed). ``speed`` [m/s]
    of free motion; ``bow`` [m]: how far to the left of the straight line the way of 30 cm goes;
    ``eased``: moves start and end slowly. A move that starts slowly hardly shows where it goes.
    """

    def __init__(
        self, view: Observation, rng: np.random.Generator, noise: Noise, rate_hz: float
    ) -> None:
        self.view, self.rng, self.noise, self.rate_hz = view, rng, noise, rate_hz
        xyz, yaw = view.value(TOOL)[:3], tool_yaw(view.value(TOOL))
        self.target = Target(_xyz(xyz), yaw, float(view.value(WIDTH)[0]))
        self.home_yaw = yaw
        self.speed, self.bow, self.eased = 0.30, 0.0, True

    @property
    def tool(self) -> Vector:
        """Measured point between the fingertips ``[3]`` [m]."""
        return self.view.value(TOOL)[:3]

    @property
    def width(self) -> float:
        """Measured width [m] between the fingers."""
        return float(self.view.value(WIDTH)[0])

    def tick(self, target: Target) -> Script:
        """Command a target and wait for what follows."""
        self.target = target
        self.view = yield target

    def wait(self, seconds: float) -> Script:
        """Stay."""
        for _ in range(max(1, round(seconds * self.rate_hz))):
            yield from self.tick(self.target)

    def move(
        self,
        xyz: Vector,
        yaw: float | None = None,
        *,
        width: float | None = None,
        speed: float | None = None,
        near: float = 0.004,
        patience_s: float = 0.6,
    ) -> Script:
        """Go straight to a point; ends when the tool is ``near`` [m] it, or after trying for
        ``patience_s``. The fingers move to ``width`` meanwhile.
        """
        goal = np.asarray(xyz, dtype=np.float64)
        if width is not None:
            self.target = replace(self.target, width=width)
        start, from_yaw = np.array(self.target.xyz), self.target.yaw
        to_yaw = from_yaw if yaw is None else yaw
        distance = float(np.linalg.norm(goal - start))
        step = (speed or self.speed) / self.rate_hz
        turn = abs(to_yaw - from_yaw) / (TURN_SPEED / self.rate_hz)
        ticks = max(1, math.ceil(distance / step), math.ceil(turn))
        # Only long ways over the table are bowed; approaches and retreats stay straight.
        level = float(np.linalg.norm(goal[:2] - start[:2]))
        bow = self.bow * min(1.0, level / 0.3) if level > 0.05 and speed is None else 0.0
        left = np.array([start[1] - goal[1], goal[0] - start[0], 0.0]) / max(level, 1e-9)
        for k in range(1, ticks + 1):
            s = _smooth(k / ticks) if self.eased else k / ticks
            point = start + s * (goal - start) + bow * math.sin(math.pi * s) * left
            yield from self.tick(
                replace(self.target, xyz=_xyz(point), yaw=from_yaw + s * (to_yaw - from_yaw))
            )
        for _ in range(round(patience_s * self.rate_hz)):
            if float(np.linalg.norm(self.tool - goal)) < near:
                return
            yield from self.tick(self.target)

    def rise(self, z: float) -> Script:
        """Go straight up to the height ``z`` [m] if the hand is lower."""
        x, y, now = self.target.xyz
        if now < z - 0.01:
            yield from self.move(np.array([x, y, z]), patience_s=0.1)

    def open(self, width: float) -> Script:
        """Move the fingers apart to ``width`` [m]."""
        yield from self._fingers(width)

    def close(self) -> Script:
        """Close the fingers until they meet or hold something, then squeeze a little."""
        yield from self._fingers(0.0)
        # Set-points far inside the object would only delay the next opening.
        squeezed = max(0.0, self.width - SQUEEZE_M)
        yield from self.tick(replace(self.target, width=squeezed))

    def _fingers(self, width: float) -> Script:
        before, still = self.width, 0
        # Where the measured width is noisy, fingers never seem to stand still.
        for _ in range(round(FINGERS_S * self.rate_hz)):
            if abs(self.width - width) <= 0.002 or still >= STILL_TICKS:
                return
            yield from self.tick(replace(self.target, width=width))
            still = still + 1 if abs(self.width - before) < 3e-4 else 0
            before = self.width


@runtime_checkable
class Commanding(Protocol):
    """How a target becomes an action."""

    @property
    def names(self) -> tuple[str, ...]:
        """The action signals."""
        ...

    def action(self, target: Target, view: Observation) -> dict[str, Values]:
        """Their values (the agent clips them to their ranges)."""
        ...


@dataclass(frozen=True, slots=True)
class Absolute:
    """Says where the hand and how far apart the fingers should be."""

    names: tuple[str, ...] = (XYZ_YAW, WIDTH)

    def action(self, target: Target, view: Observation) -> dict[str, Values]:
        """See the class."""
        del view
        return {
            XYZ_YAW: np.array([*target.xyz, target.yaw]),
            WIDTH: np.array([target.width]),
        }


class ScriptedExpert:
    """An agent that follows a script from each reset on, and holds still after its end.

    ``plan(hand)`` is the script; ``noise`` the dial; ``commanding`` how the embodiment is
    commanded. Raises :class:`SpecMismatchError` when it cannot be observed or commanded so.
    """

    def __init__(
        self,
        name: str,
        plan: Callable[[Hand], Script],
        embodiment: EmbodimentSpec,
        noise: float,
        needs: tuple[str, ...],
        scale: NoiseScale | None = None,
        source: str = "scripted",
        commanding: Commanding = Absolute(),
    ) -> None:
        space = embodiment.task_space([TOOL, WIDTH, *needs], commanding.names)
        extra = sorted({a.name for a in embodiment.actions} - {*commanding.names})
        if extra:
            raise SpecMismatchError(
                f"{name} commands {list(commanding.names)}; '{embodiment.name}' also wants {extra}"
            )
        self._commanding = commanding
        self._actions, self._rate = space.actions, embodiment.rate_hz
        self._name, self._plan, self._dial, self._source = name, plan, noise, source
        self._scale = scale or NoiseScale()
        self.reset(0)

    @property
    def name(self) -> str:
        """Who decides, for provenance."""
        dial = f":noise={self._dial:g}" if self._dial else ""
        return f"{self._source}:{self._name}{dial}"

    def reset(self, seed: int) -> None:
        """Start the script anew; all randomness of the episode comes from ``seed``."""
        self._rng = np.random.default_rng(child_seed(seed, "expert"))
        rng = np.random.default_rng(child_seed(seed, "noise"))
        self._noise = Noise(self._dial, rng, self._rate, self._scale)
        self._hand: Hand | None = None
        self._script: Script | None = None
        self._seq = 0

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The script's next target, disturbed by the dial, within the ranges of the actions."""
        del reply
        target = self._next(observation)
        dx, dy, dz, dyaw, dwidth = self._noise.wander().tolist()
        x, y, z = target.xyz
        wanted = Target((x + dx, y + dy, z + dz), target.yaw + dyaw, target.width + dwidth)
        action = self._commanding.action(wanted, observation)
        seq, self._seq = self._seq, self._seq + 1
        return Command(
            seq=seq,
            action=clip_action(self._actions, action),
            due_ns=observation.t_ns,
            source=self._source,
        )

    def _next(self, observation: Observation) -> Target:
        if self._script is None or self._hand is None:
            self._hand = Hand(observation, self._rng, self._noise, self._rate)
            self._script = _forever(self._plan(self._hand), self._hand)
            return next(self._script)
        if self._noise.hesitates():
            return self._hand.target
        return self._script.send(observation)


def tool_yaw(pose: PoseValues) -> float:
    """Heading [rad] of the tool's x axis, as ``tool/xyz_yaw`` counts it (the tool points down)."""
    return yaw_of(rotation_from_quat(pose[3:7]))


def _forever(script: Script, hand: Hand) -> Script:
    yield from script
    while True:
        yield from hand.tick(hand.target)


def _smooth(s: float) -> float:
    """Starts and ends without a jump in speed; in between close to linear."""
    return s * s * (3.0 - 2.0 * s)


def _xyz(point: Vector) -> tuple[float, float, float]:
    return (float(point[0]), float(point[1]), float(point[2]))
