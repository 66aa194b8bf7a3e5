r"""Flies the rounds of a practice: whole episodes in lockstep, recorded aside for who commits them.

    RoundTask   version, starts, drivers
        |         lanes of the parent     one batch  \
        |         lanes of the explorer   one batch   > run_lockstep; who ends first is prepared
        v                                            /  on a thread (all its files, durable)
    tuple[Flown]  figures, and a prepared episode each: the process that holds the store's lock
                  commits it. No episode is driven by two versions.

:class:`ActorPlan` is picklable and makes the same function in this process, in a worker process and
in a Ray actor (:mod:`eval.trials.executors`). A round whose actor dies leaves drafts that nobody
commits; the store's writer sweeps them.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.trials.instruments import NOT_FINITE, PHYSICS_DIVERGED, CountingInference
from eval.trials.lanes import Drive, Lanes
from policies.registry import explorer_of, policy_of
from robolearn.agents.execution import Execution
from robolearn.contracts import Agent, Policy, Subscriber
from robolearn.data.episode import Episode
from robolearn.data.insight.effort import Effort, effort_of
from robolearn.data.recording.recorder import DraftRecorder
from robolearn.data.store.drafts import Drafts, PreparedEpisode
from robolearn.errors import ConfigError, DataError
from robolearn.inference.local import BatchedInference
from robolearn.operations.builders import EnvBuilder
from robolearn.operations.practice.correcting import corrected_by_expert
from robolearn.operations.practice.records import UNSOUND, Driver
from robolearn.operations.reality.worlds import make_world
from robolearn.operations.stores.world_provenance import world_provenance
from robolearn.runtime import EpisodeResult
from robolearn.spec import EmbodimentSpec
from robolearn.training.run_directory import load_again, policy_hash
from robolearn.training.versions import load_version, versions
from robolearn.types import Condition, EpisodeHeader, Outcome, Tick
from sim.contract import World

log = logging.getLogger(__name__)

BROKEN = (PHYSICS_DIVERGED, NOT_FINITE)
"""Reasons of episodes that teach nothing: they are not recorded."""


@dataclass(frozen=True, slots=True)
class RoundTask:
    """Round ``number``: a lane per condition, in world ``world`` of the plan.

    ``version``: of the explorer's weights (None: the parent flies alone); ``drivers``: who flies
    each lane; ``first``: number of the first lane's episode, the others follow; ``starts``: numbers
    of the starts, for whoever made the task.
    """

    number: int
    version: int | None
    conditions: tuple[Condition, ...]
    drivers: tuple[Driver, ...]
    world: int
    first: int
    starts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.conditions or len(self.conditions) != len(self.drivers):
            raise ConfigError(
                f"a round needs a driver per condition, got {len(self.drivers)} for"
                f" {len(self.conditions)}"
            )
        if self.version is None and "explorer" in self.drivers:
            raise ConfigError("an explorer needs a version; there is none yet")

    def words(self, flown: Flown, worlds: Sequence[str]) -> str:
        """Which of its episodes ``flown`` is, and how it ended; ``worlds``: their names."""
        where = f"from start {self.starts[flown.number - self.first]} in '{worlds[self.world]}'"
        why = f"{flown.reason} ({flown.trouble})" if flown.trouble else flown.reason
        return f"episode {flown.number} of practice, {where}, ended as {why}"


@dataclass(frozen=True, slots=True)
class Flown:
    """One finished episode. ``version``: None where the parent drove; ``decisions``: chunks that
    were asked for; ``prepared``: what is to be committed, None where the physics broke down
    (``reason``), because that teaches nothing.
    """

    number: int
    driver: Driver
    version: int | None
    world: int
    success: bool
    score: float
    steps: int
    decisions: int
    reason: str
    prepared: PreparedEpisode | None
    trouble: str = ""
    # The process that it was flown in, and the computing that took: its share of the round [s].
    pid: int = 0
    cpu_seconds: float = 0.0
    # Control ticks that came late; of a cell.
    late_ticks: int = 0
    # What it cost the arm and the person.
    effort: Effort = Effort()  # noqa: RUF009 (frozen)
    # How often the arm was sent: for the episode, and on a cell to its start.
    moves: int = 1


@dataclass(frozen=True, slots=True)
class ActorPlan:
    """Everything an actor needs; calling it builds the function that flies rounds.

    ``parent``: its run directory; ``run_dir``: that of the practice, whose versions explore;
    ``staging``: the staging folder of the store (``EpisodeStore.staging``), which actors on other
    machines must see under the same path.
    """

    worlds: tuple[EnvBuilder, ...]
    parent: Path
    run_dir: Path
    staging: Path
    execution: Execution = Execution()  # noqa: RUF009 (frozen)
    # What policies that read text are told, kept with every episode.
    instruction: str = ""
    # Time limit [control steps]; 0: that of the task.
    max_steps: int = 0
    # Which practice it is, said by every episode.
    practice: str = ""
    # The task's expert takes over from whoever drives, where that is lost.
    takeover: bool = False
    # Of the parent when practice began; empty: as it is found.
    parent_hash: str = ""

    def __call__(self) -> RoundRunner:
        """Build the runner inside the actor."""
        return RoundRunner(self)


@dataclass(frozen=True, slots=True)
class _Pilot:
    """A policy at the controls, in which version (None: the parent)."""

    name: str
    version: int | None
    hash: str
    policy: Policy


class RoundRunner:
    """Flies rounds; keeps the envs of the current world, the parent and the newest version."""

    def __init__(self, plan: ActorPlan) -> None:
        self._plan = plan
        builds = [functools.partial(make_world, world.world) for world in plan.worlds]
        self._lanes: Lanes[World] = Lanes(builds)
        self._drafts = Drafts(plan.staging, str(plan.staging.parent))
        self._pilots: dict[Driver, _Pilot] = {}
        self._parent_hash = plan.parent_hash or policy_hash(plan.parent)

    def __call__(self, task: RoundTask) -> tuple[Flown, ...]:
        """Fly a round.

        Errors: :class:`CheckpointError` for a version that cannot be read, :class:`StoreError` if
        the disk is full; nothing of the round is left then.
        """
        begun, task = time.process_time(), self._kept(task)
        pilots = {driver: self._pilot(driver, task.version) for driver in set(task.drivers)}
        envs = self._lanes.envs(task.world, len(task.conditions))
        spec, period_ns = envs[0].spec, round(1e9 / envs[0].spec.rate_hz)
        inferences = {
            driver: CountingInference(BatchedInference(pilot.policy, 0, period_ns))
            for driver, pilot in pilots.items()
        }
        with ThreadPoolExecutor(1, "preparing") as pool:
            recorders = [_LaneRecorder(self._recorder(spec), pool) for _ in envs]
            drives: list[Drive] = []
            for lane, (driver, recorder) in enumerate(zip(task.drivers, recorders, strict=True)):
                agent, watching = self._agent(pilots[driver], envs[lane])
                drives.append(
                    Drive(
                        task.conditions[lane],
                        agent,
                        inferences[driver],
                        [recorder, *watching],
                        self._provenance(task, lane, pilots[driver], envs[lane]),
                    )
                )
            try:
                results = self._lanes.fly(
                    task.world,
                    drives,
                    max_steps=self._plan.max_steps or envs[0].max_steps,
                    task=envs[0].task,
                    env_name=spec.name,
                    instruction=self._plan.instruction,
                )
                kept = [recorder.prepared() for recorder in recorders]
            except BaseException:
                for recorder in recorders:
                    recorder.drop()
                raise
        spent = (time.process_time() - begun) / len(results)
        return tuple(
            dataclasses.replace(
                _flown(task, lane, result, inferences[task.drivers[lane]], kept[lane]),
                pid=os.getpid(),
                cpu_seconds=spent,
                effort=recorders[lane].effort,
            )
            for lane, result in enumerate(results)
        )

    def close(self) -> None:
        """Close the envs."""
        self._lanes.close()

    def _kept(self, task: RoundTask) -> RoundTask:
        """``task``, by the newest version where its own is kept no longer: an actor hung with it
        for so long that others have practised on.
        """
        there = versions(self._plan.run_dir)
        if task.version is None or task.version in there or not there or there[-1] < task.version:
            return task
        log.warning(
            "round %d is flown by version %d: version %d, which it was made for, is kept no longer",
            task.number,
            there[-1],
            task.version,
        )
        return dataclasses.replace(task, version=there[-1])

    def _pilot(self, driver: Driver, version: int | None) -> _Pilot:
        """The parent, or the explorer of this version; one version at a time is kept."""
        known = self._pilots.get(driver)
        if known is not None and (driver == "parent" or known.version == version):
            return known
        if driver == "parent":
            run = load_again(self._plan.parent, self._parent_hash)
            name, policy = self._plan.parent.name, policy_of(run)
            pilot = _Pilot(name, None, run.policy_hash, policy)
        else:
            assert version is not None  # RoundTask has checked it.
            run = load_version(self._plan.run_dir, version)
            name = f"{self._plan.run_dir.name}@{version}"
            pilot = _Pilot(name, version, run.policy_hash, explorer_of(run))
        self._pilots[driver] = pilot
        return pilot

    def _agent(self, pilot: _Pilot, env: World) -> tuple[Agent, tuple[Subscriber, ...]]:
        """Who drives, and who has to see how it goes."""
        agent = self._plan.execution.agent(pilot.policy.spec, env.spec, pilot.name)
        if not self._plan.takeover:
            return agent, ()
        corrected, person = corrected_by_expert(agent, env)
        return corrected, (person,)

    def _recorder(self, spec: EmbodimentSpec) -> DraftRecorder:
        return DraftRecorder(
            self._drafts,
            spec=spec,
            kind="online",
            task_text=self._plan.instruction,
            live=False,
        )

    def _provenance(self, task: RoundTask, lane: int, pilot: _Pilot, env: World) -> dict[str, Any]:
        practice = {
            "id": self._plan.practice,
            "start": task.starts[lane] if task.starts else None,
            "version": pilot.version,
            "driver": task.drivers[lane],
            "number": task.first + lane,
            "round": task.number,
            "policy_hash": pilot.hash,
            # A decision every so many steps: with the start's seed and the version that is all that
            # makes them again (robolearn/data/decisions.py).
            "execute": self._plan.execution.execute or pilot.policy.spec.execute,
            "parent": self._parent_hash,
        }
        return {
            "command": "robolearn finetune",
            "config": {"world": self._plan.worlds[task.world].world},
            **world_provenance(env),
            "practice": practice,
        }


class _LaneRecorder:
    """Records a lane; its finished episode is prepared on a thread while other lanes fly on."""

    def __init__(self, inner: DraftRecorder, pool: ThreadPoolExecutor) -> None:
        self._inner, self._pool = inner, pool
        self._future: Future[PreparedEpisode] | None = None
        self.effort = Effort()

    def on_start(self, episode: EpisodeHeader) -> None:
        self._inner.on_start(episode)

    def on_tick(self, tick: Tick) -> None:
        self._inner.on_tick(tick)

    def on_end(self, outcome: Outcome) -> None:
        if outcome.reason in BROKEN:
            self._inner.discard()
            return
        self._inner.on_end(outcome)
        self._future = self._pool.submit(self._inner.finished().prepare, self._see)

    def on_abort(self, error: BaseException) -> None:
        self._inner.on_abort(error)

    def _see(self, episode: Episode) -> None:
        self.effort = effort_of(episode)

    def prepared(self) -> PreparedEpisode | str | None:
        """Wait for the finished episode; None where there is none to keep, and what is wrong with a
        recording that does not hold together: other lanes are none the worse for it.
        """
        if self._future is None:
            return None
        try:
            return self._future.result()
        except DataError as error:
            return str(error)

    def drop(self) -> None:
        """Leave nothing of a round that failed."""
        self._inner.discard()
        if self._future is not None and self._future.exception() is None:
            self._future.result().discard()


def _flown(
    task: RoundTask,
    lane: int,
    result: EpisodeResult,
    inference: CountingInference,
    kept: PreparedEpisode | str | None,
) -> Flown:
    driver, outcome = task.drivers[lane], result.outcome
    unsound = isinstance(kept, str)
    return Flown(
        number=task.first + lane,
        driver=driver,
        version=task.version if driver == "explorer" else None,
        world=task.world,
        success=outcome.success,
        score=min(1.0, max(0.0, result.score)),
        steps=result.steps,
        decisions=inference.chunks.get(lane, 0),
        reason=UNSOUND if unsound else outcome.reason,
        prepared=None if unsound else kept,
        trouble=kept if unsound else outcome.trouble,
    )
