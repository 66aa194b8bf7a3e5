"""Acts a demonstration out where its objects lie now (``robolearn/retargeting``).

    start --bridge--> skill 1 --bridge--> skill 2 ...      one piece at a time

A piece is planned when it begins, from what is seen then: an object that was nudged is met where it
is, and one that lies otherwise in the hand is brought where it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.agents.actions import clip_action
from robolearn.geometry import pose_error
from robolearn.retargeting.commands import can_tilt, nearest_turns, poses_of, values_of
from robolearn.retargeting.shapes import Seven, Way
from robolearn.retargeting.skills import TABLE, Seen, Skill
from robolearn.retargeting.transfer import (
    Pace,
    Transfer,
    about,
    bridge,
    mended_grasp,
    moved_frame,
)
from robolearn.seeding import child_seed
from robolearn.shapes import FloatRows, Floats
from robolearn.spec import ActionSpec, SignalSpec
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput, Signals
from sim.experts.noise import Noise, NoiseScale

# Commands may leave their range by rounding only.
_BEYOND = 1e-3
# A way that hardly moves still lets a bridge do so [m, rad per second].
_PACE = (0.1, 1.0)
# What lies in the hand so much otherwise [m, rad] is not held any more.
_LOST = (0.03, 0.6)
# Noise comes and goes over so many ticks, so that bridges begin and end where skills do.
_FADE = 5


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What is acted out: commands of the tool ``[T, 7]`` as poses, those of everything else as they
    are, what was seen, and the skills found in it.
    """

    id: str
    commands: Way
    others: Signals
    seen: Seen
    skills: tuple[Skill, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """What was done with one skill: how it was carried over, and the ticks of the bridge to it."""

    skill: Skill
    transfer: Transfer
    bridge: int


@dataclass(frozen=True, slots=True)
class _Planned:
    """Commands ``[n, k]`` of the tool and the recorded ticks ``[n]`` that they stem from."""

    tool: FloatRows
    ticks: Floats


class RetargetAgent:
    """Acts out ``demonstration``; ``tool_signal``: where the tool is seen. ``noise_m``,
    ``noise_rad``: standard deviation of what is added to the commands of skills (a wander of half a
    second), never to bridges.

    ``trouble`` says what cannot be commanded; ``finished`` counts the ticks after the last command,
    which is held; ``pieces`` tells what was carried over how.
    """

    def __init__(
        self,
        demonstration: Demonstration,
        actions: Sequence[ActionSpec],
        tool: ActionSpec,
        tool_signal: SignalSpec,
        objects: Mapping[str, SignalSpec],
        rate_hz: float,
        *,
        noise_m: float = 0.0,
        noise_rad: float = 0.0,
    ) -> None:
        self._demo, self._actions, self._tool = demonstration, tuple(actions), tool
        self._tool_signal, self._objects = tool_signal, dict(objects)
        self._level, self._rate = not can_tilt(tool), rate_hz
        self._pace = Pace.of(demonstration.commands).at_least(*(v / rate_hz for v in _PACE))
        self._scale = NoiseScale(position_m=noise_m, yaw=noise_rad, width_m=0.0, hesitation_hz=0.0)
        self.reset(0)

    @property
    def name(self) -> str:
        """Who decides, for provenance."""
        return "retargeted"

    @property
    def commanded(self) -> Floats:
        """Where the tool was commanded to be at last: x, y and, unless it stays on a table, z."""
        return np.zeros(0) if self._last is None else self._last[:3]

    def reset(self, seed: int) -> None:
        """Back to the start; all randomness of the episode comes from ``seed``."""
        rng = np.random.default_rng(child_seed(seed, "retarget"))
        self._noise = Noise(1.0, rng, self._rate, self._scale)
        self._queue: list[_Planned] = []
        self._row = self._seq = 0
        self._transfer = Transfer()
        self._last: Floats | None = None
        self.trouble, self.finished = "", 0
        self.pieces: list[Piece] = []

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The next command; after the end the last one again."""
        del reply
        if not self._queue:
            self._queue.append(self._begin(observation))
        elif self._row == len(self._queue[-1].tool) and len(self.pieces) < len(self._demo.skills):
            self._queue[-1] = self._next(observation)
            self._row = 0
        planned = self._queue[-1]
        over = self._row >= len(planned.tool)
        self.finished += over
        row = min(self._row, len(planned.tool) - 1)
        self._row += not over
        action = {self._tool.name: planned.tool[row].reshape(self._tool.shape)}
        tick = int(planned.ticks[row] + 1e-9)
        action |= {name: values[tick] for name, values in self._demo.others.items()}
        self._last = planned.tool[row]
        seq, self._seq = self._seq, self._seq + 1
        return Command(
            seq=seq,
            action=clip_action(self._actions, action),
            due_ns=observation.t_ns,
            source="hold" if over else self.name,
        )

    def _begin(self, view: Observation) -> _Planned:
        """The first tick, from where the tool is now."""
        seen = self._demo.seen.tool[0]
        M = moved_frame(seen, self._seen(view, self._tool_signal), level=self._level)
        self._transfer = Transfer(M)
        return self._planned(self._transfer.apply(self._demo.commands[:1]), np.zeros(1))

    def _next(self, view: Observation) -> _Planned:
        """The bridge to the next skill, and the skill."""
        demo, k = self._demo, len(self.pieces)
        skill, first = demo.skills[k], demo.skills[k - 1].stop - 1 if k else 0
        after = self._carried(skill, first + 1, view)
        between = bridge(demo.commands, first, skill.start, self._transfer, after, self._pace)
        ticks = np.arange(skill.start, skill.stop, dtype=np.float64)
        done = after.apply(demo.commands[skill.start : skill.stop])
        self._transfer = after
        self.pieces.append(Piece(skill, after, len(between.ticks)))
        way = np.concatenate([between.way, done])
        return self._planned(way, np.concatenate([between.ticks, ticks]), quiet=len(between.ticks))

    def _carried(self, skill: Skill, tick: int, view: Observation) -> Transfer:
        """How a skill is carried over to what is seen now; ``tick``: that moment as recorded."""
        seen = self._demo.seen
        tick = min(tick, len(seen.tool) - 1)
        if skill.object == TABLE:
            M = np.eye(4)
        else:
            before = seen.objects[skill.object][tick]
            now = self._seen(view, self._objects[skill.object])
            M = moved_frame(before, now, level=self._level)
            if not skill.turns:
                M = about(self._transfer.M[:3, :3], before, now)
        if not skill.held:
            return Transfer(M)
        C = mended_grasp(
            seen.tool[tick],
            seen.objects[skill.held][tick],
            self._seen(view, self._tool_signal),
            self._seen(view, self._objects[skill.held]),
            level=self._level,
        )
        away, turned = pose_error(C, np.eye(4))
        return Transfer(M) if away > _LOST[0] or turned > _LOST[1] else Transfer(M, C)

    def _planned(self, way: Way, ticks: Floats, quiet: int | None = None) -> _Planned:
        """Commands of a way, with noise from row ``quiet`` on (None: without)."""
        values = values_of(self._tool, way)
        angular = self._tool.unit.endswith("rad")
        if angular and self._last is not None:
            values[:, -1] = nearest_turns(values[:, -1], float(self._last[-1]))
        if quiet is not None and (self._scale.position_m or self._scale.yaw):
            values[quiet:] += self._wander(len(values) - quiet, angular)
        low, high = np.array(self._tool.low), np.array(self._tool.high)
        beyond = np.maximum(low - values, values - high).max(initial=0.0)
        if beyond > _BEYOND:
            worst = values[int(np.maximum(low - values, values - high).max(axis=1).argmax())]
            self.trouble = (
                f"{self._tool.name} would be {np.round(worst, 3).tolist()}, its range is"
                f" {list(self._tool.low)} to {list(self._tool.high)} [{self._tool.unit}]"
            )
        return _Planned(values, ticks)

    def _wander(self, n: int, angular: bool) -> FloatRows:
        drawn = np.array([self._noise.wander() for _ in range(n)])
        rows = np.arange(n)
        fade = np.clip(np.minimum(rows, n - 1 - rows) / _FADE, 0.0, 1.0)[:, None]
        size = self._tool.size
        added = np.zeros((n, size))
        axes = min(3, size - angular)
        added[:, :axes] = fade * drawn[:, :axes]
        if angular:
            added[:, -1:] = fade * drawn[:, 3:4]
        return added

    def _seen(self, view: Observation, spec: SignalSpec) -> Seven:
        values = np.asarray(view.value(spec.name), dtype=np.float64)
        return poses_of(spec, values[None])[0]
