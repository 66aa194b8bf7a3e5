"""A point on a line of the table, a policy that walks it, and other stand-ins for tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.contracts import PolicySpec
from robolearn.errors import InferenceError
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec, TaskSpace
from robolearn.types import (
    Capabilities,
    Command,
    Condition,
    EpisodeHeader,
    Observation,
    Outcome,
    PolicyInput,
    PolicyOutput,
    ResetReport,
    Sample,
    SampleBatch,
    SampleBlock,
    SentBlock,
    Tick,
)
from tests.waiting import pass_time

TOOL = "tool/xy_table"
PERIOD_NS = 100_000_000
SIGNAL = SignalSpec(TOOL, (2,), "m", 10.0, components=("x", "y"), frame="table")
ACTION = ActionSpec(TOOL, (2,), "m", 10.0, frame="table", low=(0.0, 0.0), high=(0.512, 0.512))
SPEC = EmbodimentSpec("point", (SIGNAL,), (ACTION,), 10.0)
SPACE = TaskSpace((SIGNAL,), (ACTION,), 10.0)
POLICY_SPEC = PolicySpec(SPACE, n_obs=2, horizon=16, execute=8)
CONDITION = Condition("start", 7, {TOOL: (0.1, 0.2)})


class PointEnv:
    """The tool jumps to its target within a tick; ends after ``goal_x`` is passed."""

    spec = SPEC
    capabilities = Capabilities(True, True, True)

    def __init__(
        self, goal_x: float = 10.0, errors: Mapping[str, tuple[float, float]] | None = None
    ) -> None:
        self.goal_x, self.t_ns, self.closed = goal_x, 0, False
        self.errors = errors or {}
        self.xy = np.zeros(2)
        self.commands: list[Command] = []
        self._sent: list[Command] = []

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        del rng
        self.xy = np.array(condition.poses[TOOL])
        self.t_ns = 1_000_000_000
        self.commands.clear()
        return ResetReport(condition, {TOOL: self.xy.copy()}, standard_errors=self.errors)

    def now_ns(self) -> int:
        return self.t_ns

    def observe(self) -> Observation:
        return Observation(self.t_ns, {TOOL: Sample(self.t_ns, self.xy.copy())})

    def apply(self, command: Command) -> None:
        self.commands.append(command)
        self._sent.append(command)
        self._before = self.xy
        self.xy = np.array(command.action[TOOL], dtype=np.float64)

    def drain(self) -> SampleBatch:
        block = SampleBlock(np.array([self.t_ns - PERIOD_NS]), self._before[None], np.array([True]))
        sent = SentBlock(
            np.array([c.seq for c in self._sent], dtype=np.int64),
            np.array([c.due_ns for c in self._sent], dtype=np.int64),
            {TOOL: np.array([c.action[TOOL] for c in self._sent])},
        )
        self._sent.clear()
        return SampleBatch({TOOL: block}, sent)

    def advance(self) -> None:
        self.t_ns += PERIOD_NS

    def outcome(self) -> Outcome:
        done = bool(self.xy[0] > self.goal_x)
        progress = float(np.clip(self.xy[0], 0, 1))
        return Outcome(done, progress, progress, terminal=done, reason="success" if done else "")

    def close(self) -> None:
        self.closed = True


@dataclass
class WalkPolicy:
    """Action i of a chunk is (x + (i + 1) * step, seed-dependent y); remembers its batches."""

    step: float = 0.001
    spec: PolicySpec = POLICY_SPEC
    batches: list[int] = field(default_factory=list)

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        newest = request.observations[TOOL][:, -1]
        self.batches.append(len(newest))
        walk = self.step * np.arange(1, self.spec.horizon + 1)
        noise = np.array([np.random.default_rng(int(s)).uniform() for s in request.seed])
        actions = np.zeros((len(newest), n, self.spec.horizon, 2))
        actions[..., 0] = newest[:, None, None, 0] + walk
        actions[..., 1] = 0.1 + 0.01 * noise[:, None, None]
        return PolicyOutput(actions, np.zeros((len(newest), n)), request.t_ns)


@dataclass
class FaultyPolicy:
    """Misbehaves from the request with number ``after`` on."""

    fault: str
    after: int = 0
    spec: PolicySpec = POLICY_SPEC
    count: int = 0

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        output = WalkPolicy().sample(request, n)
        self.count += 1
        if self.count <= self.after:
            return output
        actions = output.actions.copy()
        if self.fault == "exit":
            os._exit(3)
        if self.fault == "raise":
            raise ZeroDivisionError("no gradient today")
        if self.fault == "stall":
            pass_time(60, "a policy that hangs")
        if self.fault == "nan":
            actions[0, 0, 3, 1] = np.nan
        if self.fault == "shape":
            actions = actions[:, :, :-1]
        t_ns = output.t_ns + 7 if self.fault == "time" else output.t_ns
        return PolicyOutput(actions, output.scores, t_ns)


@dataclass(frozen=True)
class BuildWalk:
    """Picklable builder of a :class:`WalkPolicy`."""

    step: float = 0.001

    def __call__(self) -> WalkPolicy:
        return WalkPolicy(self.step)


class BuildAlone(BuildWalk):
    """Refuses to build where somebody has loaded torch."""

    def __call__(self) -> WalkPolicy:
        if "torch" in sys.modules:
            raise InferenceError("torch is loaded here, and this policy needs none")
        return super().__call__()


@dataclass(frozen=True)
class BuildFaulty:
    """Picklable builder of a :class:`FaultyPolicy`."""

    fault: str
    after: int = 0

    def __call__(self) -> FaultyPolicy:
        if self.fault == "build":
            raise FileNotFoundError("weights.safetensors")
        return FaultyPolicy(self.fault, self.after)


@dataclass
class Listener:
    """A subscriber that remembers what it was told."""

    headers: list[EpisodeHeader] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)
    ends: list[Outcome] = field(default_factory=list)
    aborts: list[BaseException] = field(default_factory=list)

    def on_start(self, episode: EpisodeHeader) -> None:
        self.headers.append(episode)

    def on_tick(self, tick: Tick) -> None:
        self.ticks.append(tick)

    def on_end(self, outcome: Outcome) -> None:
        self.ends.append(outcome)

    def on_abort(self, error: BaseException) -> None:
        self.aborts.append(error)


def observation(t_ns: int, **values: NDArray[Any]) -> Observation:
    """An observation of ``part__name=value`` signals, captured at ``t_ns``."""
    named: Mapping[str, NDArray[Any]] = {k.replace("__", "/"): v for k, v in values.items()}
    return Observation(t_ns, {k: Sample(t_ns, v) for k, v in named.items()})


def request_at(t_ns: int, x: float = 0.1, seed: int = 1) -> PolicyInput:
    """A request of one env whose tool stands at ``x``."""
    history = np.tile([x, 0.2], (1, 2, 1))
    return PolicyInput({TOOL: history}, np.array([t_ns]), np.array([seed]))
