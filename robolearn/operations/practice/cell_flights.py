"""Flies the episodes of a practice on a cell, in real time, one after the other.

    RoundTask   version, starts, drivers
        |         for each: place, go to the start, drive, hold; prepared at once
        v
    Flown ...   whoever asked commits each before the next one begins

The parent and the explorer are answered by a worker process each, as in a deployment; the
explorer's takes the weights of another version between two episodes. A stop of the supervisor ends
an episode, which is kept as what it was: a failure of that length.
"""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch

from eval.trials.instruments import CountingInference
from hardware.cell.config import CellConfig
from policies.registry import explorer_of
from robolearn.agents.execution import Execution
from robolearn.agents.take_over import Person, TakeOverConfig
from robolearn.contracts import Agent, Env, Policy, PolicySpec, Subscriber
from robolearn.data.episode import Episode
from robolearn.data.insight.effort import Effort, effort_of
from robolearn.data.recording.recorder import DraftRecorder
from robolearn.data.store.drafts import Drafts, PreparedEpisode
from robolearn.errors import CameraError, RobotError, SafetyStopError, StaleSignalError, StartError
from robolearn.inference.local import WorkerInference
from robolearn.inference.warm import WarmBuilder
from robolearn.machine.process import ordinary_children
from robolearn.operations.cell.driving import HoldAtEnd, on_cell
from robolearn.operations.cell.release import Stopped, why_stopped_for_good
from robolearn.operations.deploy.operator import Operator
from robolearn.operations.deploy.policy import Source, SpecInference, policy_latency_s
from robolearn.operations.deploy.trials import reason_of
from robolearn.operations.practice.actors import Flown, RoundTask
from robolearn.operations.practice.records import Driver
from robolearn.operations.practice.session import Ended
from robolearn.runtime import EpisodeResult, run_episode
from robolearn.training.versions import load_version
from robolearn.types import EpisodeHeader, Outcome, PolicyInput, PolicyOutput, Signals, Tick

log = logging.getLogger(__name__)

PLACINGS = 3
"""How often a start that is too far off is placed again."""
Culprit = Driver | Literal["nobody"]
"""Who drove when the arm was stopped."""
PASSING = (StaleSignalError, CameraError)
"""What an episode does not survive, but the next one may."""


@runtime_checkable
class Wanted(Protocol):
    """A number that processes share."""

    value: int


@runtime_checkable
class Arm(Env, Stopped, Protocol):
    """An env that can brake, and that a person or a lab lets go on after a stop
    (:class:`~hardware.env.real_env.RealEnv`).
    """

    @property
    def standing(self) -> Signals:
        """What stays in force of the actions that a command may leave out."""
        ...

    def hold(self) -> None:
        """Brake and hold."""
        ...

    def home(self) -> None:
        """To where it rests."""
        ...


@runtime_checkable
class Changing(Protocol):
    """Who answers by any version."""

    def at(self, version: int) -> SpecInference:
        """Ready to answer by ``version``."""
        ...


class VersionPolicy:
    """Explores by the version that is ``wanted`` when it is asked."""

    def __init__(self, run_dir: Path, wanted: Wanted) -> None:
        self._run_dir, self._wanted = run_dir, wanted
        self._version, self._policy = self._load()

    def _load(self) -> tuple[int, Policy]:
        version = self._wanted.value
        return version, explorer_of(load_version(self._run_dir, version))

    @property
    def spec(self) -> PolicySpec:
        """The same for all versions."""
        return self._policy.spec

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        """Of the version that is wanted."""
        if self._wanted.value != self._version:
            self._version, self._policy = self._load()
        return self._policy.sample(request, n)


@dataclass(frozen=True, slots=True)
class VersionBuilder:
    """Builds a :class:`VersionPolicy` in a worker process."""

    run_dir: Path
    wanted: Wanted

    def __call__(self) -> Policy:
        """With the version that is wanted now."""
        torch.set_num_threads(1)
        return VersionPolicy(self.run_dir, self.wanted)


class Explorer:
    """What is learned, at the controls: a worker process that changes its weights on request."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._wanted: Wanted = multiprocessing.get_context("spawn").Value("q", 0)
        self._inference: WorkerInference | None = None

    def at(self, version: int) -> WorkerInference:
        """Ready to answer by ``version``; the arm rests meanwhile.

        Errors: :class:`InferenceError` for weights that cannot be read.
        """
        changed, self._wanted.value = self._wanted.value != version, version
        if self._inference is None:
            built = WarmBuilder(VersionBuilder(self._run_dir, self._wanted))
            with ordinary_children():
                self._inference = WorkerInference(built)
        elif changed:
            policy_latency_s(self._inference, calls=1)
        return self._inference

    def close(self) -> None:
        """End the process."""
        if self._inference is not None:
            self._inference.close()


class ArmRecorder:
    """Records an episode; one that a stop of the supervisor ended is an episode, too."""

    def __init__(self, inner: DraftRecorder) -> None:
        self._inner = inner
        self.score, self.steps = 0.0, 0
        self.effort = Effort()
        self.began = False

    def on_start(self, episode: EpisodeHeader) -> None:
        """The start is reached."""
        self.began = True
        self._inner.on_start(episode)

    def on_tick(self, tick: Tick) -> None:
        """Remember how far it came."""
        self._inner.on_tick(tick)
        self.steps = tick.index + 1
        self.score = max(self.score, tick.outcome.progress)

    def on_end(self, outcome: Outcome) -> None:
        """Finish it."""
        self._inner.on_end(outcome)

    def on_abort(self, error: BaseException) -> None:
        """A stop is how it ended; anything else leaves what ``data repair`` recovers."""
        self._inner.on_abort(error)

    def prepared(self) -> PreparedEpisode:
        """Of an episode that ended."""
        return self._inner.finished().prepare(self._see)

    def _see(self, episode: Episode) -> None:
        self.effort = effort_of(episode)


@dataclass(slots=True)
class CellFlights:
    """Flies rounds on ``env``; ``ended`` says why it does not go on.

    ``provenance``: what all of its episodes say; ``drafts``: where they are prepared.
    """

    env: Arm
    cell: CellConfig
    parent: Source
    parent_hash: str
    explorer: Changing
    run_dir: Path
    drafts: Drafts
    operator: Operator
    task: str
    max_steps: int
    max_stops: int
    execution: Execution
    instruction: str
    practice: str
    provenance: Mapping[str, Any]
    # Takes over from whoever drives, where that is lost; and who sees how it goes.
    person: Person | None = None
    takeover: TakeOverConfig = field(default_factory=TakeOverConfig)
    watching: tuple[Subscriber, ...] = ()
    ended: Ended | None = None
    # Who drove when the supervisor stopped the arm.
    stops: list[Culprit] = field(default_factory=list[Culprit])
    # Ways that the arm was sent since the last episode that was kept.
    _moves: int = 0

    def __call__(self, task: RoundTask) -> Iterator[Flown]:
        """Episode by episode; what breaks the cell is raised.

        Errors: RobotError and its kin, InferenceError; the episode under way stays a draft.
        """
        # Who is first has a warmer arm and an earlier block: by turns.
        lanes = range(len(task.conditions))
        for lane in lanes if task.number % 2 else reversed(lanes):
            flown, stop = self._flown(task, lane)
            if flown is not None:
                yield flown
            # Only now: a robot that cannot be cleared must not take the episode with it.
            if isinstance(stop, SafetyStopError):
                self._stopped(task.drivers[lane], stop)
            elif stop is not None:
                self._count(task.drivers[lane], stop)
            if self.ended is not None:
                return

    def _flown(self, task: RoundTask, lane: int) -> tuple[Flown | None, RobotError | None]:
        """The episode, and what stopped it."""
        for placing in range(1, PLACINGS + 1):
            recorder = ArmRecorder(self._recorder())
            try:
                result, chunks = self._fly(task, lane, recorder)
            except StartError as error:
                if placing == PLACINGS or not (self.operator.places or self.cell.lab):
                    raise
                self.operator.told("start", str(error))
            except SafetyStopError as error:
                found = None
                if recorder.steps:
                    found = self._cut(task, lane, recorder, reason_of(error))
                return found, error
            except PASSING as error:
                self.operator.told("lost", f"an episode that could not be seen to its end: {error}")
                return None, error
            else:
                return self._whole(task, lane, result, chunks, recorder), None
        return None, None

    def _fly(self, task: RoundTask, lane: int, recorder: ArmRecorder) -> tuple[EpisodeResult, int]:
        source, name = self._pilot(task, lane)
        counted = CountingInference(source)
        # To the start, and the episode.
        self._moves += 2
        result = run_episode(
            self.env,
            self._agent(source.spec, name),
            counted,
            [HoldAtEnd(self.env), recorder, *self.watching],
            task.conditions[lane],
            max_steps=self.max_steps,
            task=self.task,
            env_name=self.env.spec.name,
            provenance={**self.provenance, "practice": self._said(task, lane)},
        )
        return result, counted.chunks.get(0, 0)

    def _pilot(self, task: RoundTask, lane: int) -> tuple[SpecInference, str]:
        if task.drivers[lane] == "parent" or task.version is None:
            return self.parent.inference, self.parent.name
        return self.explorer.at(task.version), f"{self.run_dir.name}@{task.version}"

    def _agent(self, spec: PolicySpec, name: str) -> Agent:
        agent = self.execution.agent(spec, self.env.spec, name, self.cell.command_latency_s)
        return on_cell(agent, self.env, self.instruction, self.person, self.takeover)

    def _recorder(self) -> DraftRecorder:
        return DraftRecorder(
            self.drafts,
            spec=self.env.spec,
            kind="online",
            task_text=self.instruction or self.task,
            keep_interrupted=True,
        )

    def _said(self, task: RoundTask, lane: int) -> dict[str, Any]:
        driver = task.drivers[lane]
        return {
            "id": self.practice,
            "start": task.starts[lane],
            "version": task.version if driver == "explorer" else None,
            "driver": driver,
            "number": task.first + lane,
            "round": task.number,
            "parent": self.parent_hash,
            "moves": self._moves,
        }

    # -- what came of it -------------------------------------------------------------------------

    def _whole(
        self, task: RoundTask, lane: int, result: EpisodeResult, chunks: int, recorder: ArmRecorder
    ) -> Flown:
        late = sum(v > 0 for v in result.overrun_ns)
        flown = self._made(
            task, lane, recorder, success=result.outcome.success, reason=result.outcome.reason
        )
        return self._told(dataclasses.replace(flown, decisions=chunks, late_ticks=late))

    def _cut(self, task: RoundTask, lane: int, recorder: ArmRecorder, reason: str) -> Flown:
        return self._told(self._made(task, lane, recorder, success=False, reason=reason))

    def _made(
        self, task: RoundTask, lane: int, recorder: ArmRecorder, *, success: bool, reason: str
    ) -> Flown:
        driver, prepared = task.drivers[lane], recorder.prepared()
        moves, self._moves = self._moves, 0
        return Flown(
            number=task.first + lane,
            driver=driver,
            version=task.version if driver == "explorer" else None,
            world=0,
            success=success,
            score=min(1.0, max(0.0, recorder.score)),
            steps=recorder.steps,
            decisions=-(-recorder.steps // self.parent.inference.spec.execute),
            reason=reason,
            prepared=prepared,
            pid=os.getpid(),
            effort=recorder.effort,
            moves=moves,
        )

    def _told(self, flown: Flown) -> Flown:
        who = "parent" if flown.version is None else f"version {flown.version}"
        late = f", {flown.late_ticks} late tick(s)" if flown.late_ticks else ""
        if flown.effort.take_overs:
            late += f", taken over {flown.effort.take_overs} time(s)"
        self.operator.told(
            f"episode {flown.number}",
            f"{who}: score {flown.score:.3f}, success {flown.success}, {flown.steps} steps"
            f" ({flown.reason}){late}",
        )
        return flown

    def home(self) -> None:
        """To where the arm rests, also after a stop that practice ended by, or that came while the
        arm waited; it stays where it is if nobody may clear that.

        Errors: :class:`SafetyStopError` for the next one.
        """
        try:
            self.env.home()
        except SafetyStopError as error:
            if self.ended is None:
                self._count("nobody", error)
            refused = self._released(error)
            if refused:
                self.operator.told("home", f"the arm stays where it stopped: {refused}")
            else:
                self.env.home()

    def _stopped(self, driver: Driver, error: SafetyStopError) -> None:
        """Count the stop; go on where that is somebody's decision, or a lab's."""
        self._count(driver, error)
        if self.ended is not None:
            return
        refused = self._released(error)
        if refused:
            why = f"the arm was stopped ({error}) and does not go on: {refused}"
            self.ended = Ended(why, goes_on=True)

    def _released(self, error: SafetyStopError) -> str:
        """Why the arm may not go on, or ""."""
        text = f"the arm was stopped ({error}); see to it, then practice goes on, or Ctrl-C"
        refused = why_stopped_for_good(self.env, self.cell, self.operator, text)
        if not refused:
            self.operator.told("stop", f"cleared: {error}")
        return refused

    def _count(self, driver: Culprit, error: RobotError) -> None:
        self.stops.append(driver)
        count = len(self.stops)
        log.warning("stop %d of %d: %s", count, self.max_stops, error)
        if count < self.max_stops:
            return
        explored = self.stops.count("explorer")
        self.ended = Ended(
            f"the arm was stopped {count} times (practice.max_stops), {explored} of them while what"
            f" was learned drove; the last time: {error}",
            # Stops of the parent's own are no news about what was learned.
            sound=explored <= count - explored,
        )
