"""A cheap chaotic world and policy, picklable, with failures on demand."""

from __future__ import annotations

import dataclasses
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robolearn.contracts import PolicySpec
from robolearn.errors import PhysicsDivergedError
from robolearn.pusht import BLOCK, TOOL
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import (
    Capabilities,
    Condition,
    Observation,
    Outcome,
    PolicyOutput,
    ResetReport,
    Sample,
    SampleBatch,
    SentBlock,
)

SPEC = EmbodimentSpec(
    name="mock",
    signals=(
        SignalSpec(TOOL, (2,), "m", 10.0, frame="table"),
        SignalSpec(BLOCK, (3,), "m, m, rad", 10.0, angular=(2,), frame="table"),
    ),
    actions=(
        ActionSpec(TOOL, (2,), "m", 10.0, frame="table", low=(0.0, 0.0), high=(0.512, 0.512)),
    ),
    rate_hz=10.0,
)
POLICY_SPEC = PolicySpec(SPEC.task_space([TOOL, BLOCK]), n_obs=2, horizon=16, execute=8)


class MockEnv:
    """The block follows the tool along a logistic map; progress is its height."""

    def __init__(self, world: str, trouble: str, flag: Path | None) -> None:
        self.world, self.trouble, self.flag = world, trouble, flag
        self.spec = SPEC
        self.capabilities = Capabilities(True, True, True)
        self.step = 0

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        self.condition, self.step = condition, 0
        self.tool = np.array(condition.poses[TOOL])
        self.block = np.array(condition.poses[BLOCK])
        self.command = self.tool
        self.best = 0.0
        return ResetReport(condition, {TOOL: self.tool, BLOCK: self.block})

    def now_ns(self) -> int:
        return self.step * 100_000_000

    def observe(self) -> Observation:
        t = self.now_ns()
        return Observation(t, {TOOL: Sample(t, self.tool), BLOCK: Sample(t, self.block)})

    def apply(self, command) -> None:
        self.command = np.asarray(command.action[TOOL])

    def drain(self) -> SampleBatch:
        none = np.zeros(0, dtype=np.int64)
        return SampleBatch({}, SentBlock(none, none, {}))

    def advance(self) -> None:
        self.step += 1
        if self.step == 5 and self.condition.id.endswith("7"):
            self._trouble()
        self.tool = np.clip(self.command, 0.0, 0.512)
        x = np.clip(0.5 * (self.block[0] + self.tool[0]) / 0.512, 0.0, 1.0)
        drift = 1e-3 if self.world == "b" else 0.0
        self.block = np.array([0.512 * 3.803 * x * (1 - x) * (1 - drift), self.tool[1], 0.0])

    def outcome(self) -> Outcome:
        coverage = float(np.clip(self.block[0] / 0.512, 0.0, 1.0)) * min(1.0, self.step / 20)
        self.best = max(self.best, coverage)
        return Outcome(
            success=self.best > 0.95,
            progress=min(1.0, coverage / 0.95),
            reward=coverage,
            terminal=self.best > 0.95,
            reason="success" if self.best > 0.95 else "",
            metrics={"coverage": coverage},
        )

    def render(self, width: int, height: int) -> np.ndarray:
        picture = np.full((height, width, 3), 235, dtype=np.uint8)
        x, y = (int(v / 0.512 * (width - 12)) for v in self.block[:2])
        picture[y : y + 12, x : x + 12] = (40, 90, 160)
        return picture

    def close(self) -> None:
        self.closed = True

    def _trouble(self) -> None:
        if self.trouble == "diverge":
            raise PhysicsDivergedError("mock: the block left the table")
        if self.trouble == "crash" and not (self.flag and self.flag.exists()):
            if self.flag:
                self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.trouble == "bug":
            raise KeyError("a bug")


class MockPolicy:
    """Pushes towards a side that depends on noise; ``changed`` on every third seed."""

    def __init__(self, gain: float, reranks: bool) -> None:
        self.spec, self.gain, self.reranks = POLICY_SPEC, gain, reranks

    def sample(self, request, n: int = 1) -> PolicyOutput:
        batch = len(request.t_ns)
        noise = np.stack([np.random.default_rng(s).normal(size=(16, 2)) for s in request.seed])
        base = request.observations[BLOCK][:, -1, None, :2] * self.gain
        actions = np.clip(base + 0.1 * noise + 0.1, 0.0, 0.512)
        extras = {"changed": (request.seed % 3 == 0)} if self.reranks else {}
        return PolicyOutput(actions[:, None], np.zeros((batch, 1)), request.t_ns, extras=extras)


@dataclass(frozen=True)
class BuildPolicy:
    gain: float = 0.8
    reranks: bool = False

    def __call__(self) -> MockPolicy:
        return MockPolicy(self.gain, self.reranks)


@dataclass(frozen=True)
class BuildEnv:
    world: str = "a"
    trouble: str = ""
    flag: Path | None = None

    def __call__(self) -> MockEnv:
        return MockEnv(self.world, self.trouble, self.flag)


def conditions(n: int) -> tuple[Condition, ...]:
    rng = np.random.default_rng(1)
    return tuple(
        Condition(
            f"c{i:03d}",
            100 + i,
            {TOOL: tuple(rng.uniform(0, 0.5, 2)), BLOCK: (*rng.uniform(0.1, 0.4, 2), 0.0)},
        )
        for i in range(n)
    )


def without_times(records):
    return [dataclasses.replace(r, video="") for r in records]
