"""What the Push-T worlds outside MuJoCo share: one env contract over engines that only step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from robolearn.pusht import BLOCK, RATE_HZ, TOOL
from robolearn.spec import EmbodimentSpec
from robolearn.types import (
    Capabilities,
    Command,
    Condition,
    Observation,
    Outcome,
    ResetReport,
    SampleBatch,
)
from sim.actions import check_action
from sim.logs import SampleLog, SentLog, check_poses
from sim.tasks.pusht import PushT

TICK_NS = round(1e9 / RATE_HZ)
Poses = Mapping[str, NDArray[np.float64]]


class PushTEnv(ABC):
    """Clock, samples, sent commands and verdict; an engine fills in the five abstract methods."""

    def __init__(self, spec: EmbodimentSpec) -> None:
        self._spec = spec
        self._task = PushT()
        self._ticks = 0
        self._samples = SampleLog(spec.name, spec.signals)
        self._sent = SentLog(TOOL, 2)
        self._outcome: Outcome | None = None

    @property
    @abstractmethod
    def engine(self) -> str:
        """Physics engine and versions."""

    @property
    @abstractmethod
    def scene_hash(self) -> str:
        """Digest of everything that decides how this world moves."""

    @abstractmethod
    def _place(self, poses: Poses) -> None:
        """Put tool and block at the given poses, at rest; what is not named, where it starts."""

    @abstractmethod
    def _follow(self, target: NDArray[np.float64]) -> None:
        """From now on the tool goes to ``target [2]`` (table frame, [m])."""

    @abstractmethod
    def _step(self) -> None:
        """One control period of physics."""

    @abstractmethod
    def _read(self) -> Poses:
        """The value of every signal now."""

    @abstractmethod
    def _picture(self, width: int, height: int) -> NDArray[np.uint8]:
        """From above ``[height, width, 3]``."""

    @abstractmethod
    def close(self) -> None:
        """Release the engine; safe to call twice."""

    @property
    def spec(self) -> EmbodimentSpec:
        """Signals and the tool's target."""
        return self._spec

    @property
    def capabilities(self) -> Capabilities:
        """A simulator: everything."""
        return Capabilities(settable_poses=True, true_state=True, faster_than_real_time=True)

    @property
    def task(self) -> str:
        """Name of the task."""
        return self._task.name

    @property
    def max_steps(self) -> int:
        """Time limit of the task's protocol [control steps]."""
        return self._task.max_steps

    def sample_condition(self, seed: int) -> Condition:
        """The start that gym-pusht draws for the same seed."""
        return self._task.sample_condition(seed)

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Start at the requested poses, at rest; nothing in an episode is random."""
        del rng
        poses = check_poses(condition, (TOOL, BLOCK), self._spec)
        self._place(poses)
        self._task.reset()
        self._ticks, self._outcome = 0, None
        self._sent.clear()
        self._samples.clear()
        self._samples.add(0, self._read())
        achieved = {name: self._samples.newest[name].value for name in poses}
        return ResetReport(requested=condition, achieved=achieved)

    def now_ns(self) -> int:
        """Simulated time since the reset."""
        return self._ticks * TICK_NS

    def observe(self) -> Observation:
        """The state at this tick."""
        self._samples.require()
        return Observation(t_ns=self.now_ns(), samples=dict(self._samples.newest))

    def apply(self, command: Command) -> None:
        """Set the tool's target."""
        self._samples.require()
        check_action(command, self._spec)
        value = np.array(command.action[TOOL], dtype=np.float64)
        self._follow(value)
        self._sent.add(command.seq, self.now_ns(), value)

    def advance(self) -> None:
        """To the next tick."""
        self._samples.require()
        self._step()
        self._ticks += 1
        self._samples.add(self.now_ns(), self._read())
        self._outcome = None

    def drain(self) -> SampleBatch:
        """The samples of the last tick; those of the current one come next time."""
        return SampleBatch(signals=self._samples.drain(self.now_ns()), sent=self._sent.drain())

    def outcome(self) -> Outcome:
        """Coverage, progress and success."""
        self._samples.require()
        if self._outcome is None:
            self._outcome = self._task.judge(self._samples.values())
        return self._outcome

    def render(self, width: int, height: int) -> NDArray[np.uint8]:
        """Picture from above ``[height, width, 3]``."""
        self._samples.require()
        return self._picture(width, height)
