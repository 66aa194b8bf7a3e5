"""Implements the env contract over an engine that only steps.

    reset -> _start           apply -> _follow         advance -> _step, _read, _judge

Every signal has one sample per control tick.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from robolearn.errors import DataError, SceneError
from robolearn.geometry import Pose
from robolearn.shapes import OwnFloats, Picture
from robolearn.spec import EmbodimentSpec
from robolearn.types import (
    Capabilities,
    Command,
    Condition,
    Observation,
    Outcome,
    Outline,
    ResetReport,
    SampleBatch,
    SentBlock,
    Signals,
)
from sim.env.action_check import check_action
from sim.rendering.cameras import Calibration
from sim.scene.samples import SampleLog, SentLog, check_poses

Poses = Mapping[str, OwnFloats]
NOTHING_YET = Outcome(success=False, progress=0.0, reward=0.0)


class SteppedEnv(ABC):
    """Clock, samples, sent commands and divergence; an engine fills in the abstract methods."""

    def __init__(self, spec: EmbodimentSpec, settable: Iterable[str]) -> None:
        self._spec, self._settable = spec, tuple(settable)
        self._tick_ns = round(1e9 / spec.rate_hz)
        self._ticks, self._diverged = 0, False
        self._samples = SampleLog(spec.name, spec.signals)
        self._sent = SentLog({a.name: a.size for a in spec.actions})
        self._outcome: Outcome | None = None

    @property
    @abstractmethod
    def engine(self) -> str:
        """Physics engine and versions."""

    @property
    @abstractmethod
    def scene_hash(self) -> str:
        """Digest of everything that decides how this world moves."""

    @property
    @abstractmethod
    def task(self) -> str:
        """Name of the task."""

    @property
    def task_params(self) -> dict[str, Any]:
        """Parameters of the task that are not its defaults: none, unless a world has some."""
        return {}

    @property
    @abstractmethod
    def max_steps(self) -> int:
        """Time limit of the task's protocol [control steps]."""

    @abstractmethod
    def sample_condition(self, seed: int) -> Condition:
        """A start from the reset distribution; a pure function of ``seed``."""

    @abstractmethod
    def _start(self, condition: Condition, poses: Poses) -> None:
        """Begin an episode: what ``condition.seed`` draws, then ``poses`` (checked), at rest."""

    @abstractmethod
    def _follow(self, action: Poses) -> None:
        """From now on carry out this action (checked: every name, shape and range)."""

    @abstractmethod
    def _step(self) -> None:
        """One control period of physics."""

    @abstractmethod
    def _read(self) -> Signals:
        """The value of every signal now."""

    @abstractmethod
    def _judge(self) -> Outcome:
        """How the task stands now; asked once per tick."""

    @abstractmethod
    def render(self, width: int, height: int) -> Picture:
        """Picture ``[height, width, 3]``."""

    @abstractmethod
    def close(self) -> None:
        """Release the engine; safe to call twice."""

    @property
    def spec(self) -> EmbodimentSpec:
        """Signals, action semantics, control rate."""
        return self._spec

    @property
    def capabilities(self) -> Capabilities:
        """A simulator: everything."""
        return Capabilities(settable_poses=True, true_state=True, faster_than_real_time=True)

    @property
    def settable(self) -> tuple[str, ...]:
        """Signals that a condition may set."""
        return self._settable

    @property
    def slowed(self) -> str:
        """Nothing is known of what slows the arms of other engines."""
        return ""

    def calibrations(self) -> dict[str, Calibration]:
        """Nothing is known of the cameras of other engines."""
        return {}

    def camera_pose(self, camera: str, frame: str) -> Pose:
        """Nothing is known of the cameras of other engines: :class:`SceneError`."""
        raise SceneError(
            f"{self._spec.name}: where the camera '{camera}' is in the frame '{frame}' is not known"
            " of another engine's cameras"
        )

    def outlines(self) -> tuple[Outline, ...]:
        """Nothing is known of the shapes of other engines."""
        return ()

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Start as the condition says; :class:`DataError` for what cannot be set here."""
        del rng  # The condition says everything.
        poses = check_poses(condition, self._settable, self._spec)
        self._start(condition, poses)
        self._ticks, self._diverged = 0, False
        self._sent.clear()
        self._samples.clear()
        values = self._read()
        if not _finite(values):
            raise DataError(f"condition '{condition.id}': {self._spec.name} starts with NaN")
        self._samples.add(0, values)
        self._outcome = self._judge()
        achieved = {name: self._samples.newest[name].value for name in poses}
        return ResetReport(requested=condition, achieved=achieved)

    def now_ns(self) -> int:
        """Simulated time since the reset."""
        return self._ticks * self._tick_ns

    def observe(self) -> Observation:
        """The state at this tick."""
        self._samples.require()
        return Observation(t_ns=self.now_ns(), samples=dict(self._samples.newest))

    def apply(self, command: Command) -> None:
        """Hand the command to the engine."""
        self._samples.require()
        check_action(command, self._spec)
        action = {
            a.name: np.array(command.action[a.name], dtype=np.float64) for a in self._spec.actions
        }
        self._follow(action)
        self._sent.add(command.seq, self.now_ns(), action)

    def advance(self) -> None:
        """To the next tick; after a divergence the last finite values are repeated."""
        self._samples.require()
        self._ticks += 1
        if not self._diverged:
            self._step()
            values = self._read()
            if _finite(values):
                self._samples.add(self.now_ns(), values)
                self._outcome = self._judge()
                return
        self._diverged = True
        self._samples.repeat(self.now_ns(), [s.name for s in self._spec.signals])
        self._outcome = _stopped(self._outcome or NOTHING_YET)

    def drain(self) -> SampleBatch:
        """The samples of the last tick; those of the current one come next time."""
        sent = self._sent.drain()
        shaped = {a.name: sent.action[a.name].reshape(-1, *a.shape) for a in self._spec.actions}
        sent = SentBlock(seq=sent.seq, t_ns=sent.t_ns, action=shaped)
        return SampleBatch(signals=self._samples.drain(self.now_ns()), sent=sent)

    def outcome(self) -> Outcome:
        """The task's verdict at this tick, or ``physics_diverged``."""
        self._samples.require()
        return self._outcome or NOTHING_YET


def _finite(values: Signals) -> bool:
    return all(np.isfinite(value).all() for value in values.values())


def _stopped(last: Outcome) -> Outcome:
    return replace(last, reward=0.0, terminal=False, truncated=True, reason="physics_diverged")
