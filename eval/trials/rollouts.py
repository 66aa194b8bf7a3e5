"""Rolls policies out in worlds over a suite: paired, batched, resumable, same bits on N cores.

Conditions are cut into chunks of ``batch``; a chunk runs in lockstep with one batched forward pass
per request, for each policy over the same conditions and seeds. A chunk depends on nothing but
itself, so any worker may run it in any order. It is one transaction of the trial table; trials
that are there already are skipped. Floating point sums differ by batch size in the last bit and
contact amplifies that, so ``batch`` belongs to a trial's identity.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, cast

import numpy as np

from eval.trials.clips import CommandLog, VideoPlan, keep, kept
from eval.trials.executors import Done, WorkerFailedError, run_in_process, run_in_workers
from eval.trials.instruments import (
    CountingInference,
    FrameCollector,
    LastPicture,
    MaximumMetrics,
    RenderingEnv,
)
from eval.trials.judge import Judge, judged
from eval.trials.lanes import Drive, Lanes
from eval.trials.progress import Progress, Tally
from eval.trials.ray_executor import run_on_ray
from eval.trials.table import TrialKey, TrialStore, key_of
from robolearn.agents.execution import Execution
from robolearn.contracts import Agent, Env, Policy, Subscriber
from robolearn.errors import ConfigError
from robolearn.files import replacing
from robolearn.inference.local import BatchedInference
from robolearn.region import Region
from robolearn.runtime import EpisodeResult
from robolearn.shapes import Picture
from robolearn.spec import EmbodimentSpec
from robolearn.types import Condition, ResetReport, TrialRecord

log = logging.getLogger(__name__)

WORKER_CRASHED = "worker_crashed"
ExecutorName = Literal["processes", "ray"]


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy under test: a name for people, the hash of its weights, and how to build it.

    Or an ``agent`` that needs no policy (a scripted expert), built for an embodiment. How chunks
    are executed (``execution``), and how long answers take in simulated time (``delay_ticks``),
    belong into name and hash.
    """

    name: str
    hash: str
    build: Callable[[], Policy] | None
    agent: Callable[[EmbodimentSpec], Agent] | None = None
    execution: Execution = Execution()  # noqa: RUF009 (frozen)
    delay_ticks: int = 0

    def __post_init__(self) -> None:
        if (self.build is None) == (self.agent is None):
            raise ConfigError(f"'{self.name}' needs either a policy or an agent")


@dataclass(frozen=True, slots=True)
class WorldEntry:
    """A world: a name, the hash of its description, its physics engine, and how to build it.

    ``instruction``: what policies that read text are told in it.
    """

    name: str
    hash: str
    engine: str
    build: Callable[[], Env]
    instruction: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """How rollouts are run. ``workers`` 0: in this process, else so many worker processes, or Ray
    actors (``executor``) at ``address`` (empty: started here). ``plan``: its hash.
    """

    suite: str
    task: str
    max_steps: int
    workers: int = 0
    executor: ExecutorName = "processes"
    address: str = ""
    batch: int = 1
    code: str = ""
    libraries: str = ""
    commit: str = ""
    plan: str = ""
    timeout_s: float = 900.0
    video: VideoPlan | None = None
    judge: Judge | None = None
    forbidden: Region | None = None

    def __post_init__(self) -> None:
        if self.batch < 1 or self.workers < 0:
            raise ConfigError(f"expected batch >= 1 and workers >= 0, got {self}")
        if self.executor == "ray" and self.workers < 1:
            raise ConfigError("Ray needs at least one worker")
        if self.address and self.executor != "ray":
            raise ConfigError("an address belongs to the executor 'ray'")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Conditions that run in lockstep. ``film``: those of them (by index) that get a clip."""

    policy: int
    world: int
    conditions: tuple[Condition, ...]
    film: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a worker needs; calling it builds the function that runs chunks."""

    policies: tuple[PolicyEntry, ...]
    worlds: tuple[WorldEntry, ...]
    options: Options

    def __call__(self) -> Callable[[Chunk], tuple[TrialRecord, ...]]:
        """Build the runner inside the worker."""
        return ChunkRunner(self).run


@dataclass(slots=True)
class ChunkRunner:
    """Runs chunks; keeps the policies and the envs of the current world."""

    plan: Plan
    _policies: dict[int, Policy] = field(default_factory=dict[int, Policy])
    _lanes: Lanes[Env] = field(init=False)
    _verdicts: Callable[[Sequence[Picture]], Sequence[bool]] | None = None

    def __post_init__(self) -> None:
        self._lanes = Lanes([world.build for world in self.plan.worlds])

    def run(self, chunk: Chunk) -> tuple[TrialRecord, ...]:
        """Roll the chunk's conditions out in lockstep; of a chunk that is filmed those alone that
        are, if it is known what they commanded.
        """
        options, world = self.plan.options, self.plan.worlds[chunk.world]
        started = utc_now()
        keys = chunk_keys(self.plan, chunk)
        flown = None if options.video is None else options.video.flown
        again = kept(flown, keys, chunk.film) if flown is not None and chunk.film else {}
        lanes = chunk.film if again else range(len(chunk.conditions))
        envs = dict(zip(lanes, self._lanes.envs(chunk.world, len(lanes)), strict=True))
        spec = envs[lanes[0]].spec
        inference = None if again else self._inference(chunk.policy, spec)
        maxima = {lane: MaximumMetrics(options.forbidden) for lane in lanes}
        cameras = self._cameras(chunk, envs)
        logs = {lane: CommandLog() for lane in lanes if flown is not None and not chunk.film}
        judge = options.judge
        last = {} if judge is None else {lane: LastPicture(judge.signal) for lane in lanes}
        drives: list[Drive] = []
        for lane, env in envs.items():
            watchers: list[Subscriber] = [maxima[lane]]
            watchers += [of[lane] for of in (logs, last, cameras) if lane in of]
            agent = again[lane] if again else self._agent(chunk.policy, env.spec)
            drives.append(Drive(chunk.conditions[lane], agent, inference, watchers))
        results = self._lanes.fly(
            chunk.world,
            drives,
            max_steps=options.max_steps,
            task=options.task,
            env_name=world.name,
            instruction=world.instruction,
        )
        records = {
            lane: self._record(chunk, lane, started, result, inference, maxima[lane])
            for lane, result in zip(lanes, results, strict=True)
        }
        self._write_clips(records, cameras, spec.rate_hz)
        if flown is not None and logs:
            keep(flown, keys, logs)
        if judge is None:
            return tuple(records.values())
        self._verdicts = self._verdicts or judge.build()
        pictures = [seen.picture for seen in last.values()]
        return judged(tuple(records.values()), self._verdicts(pictures))

    def close(self) -> None:
        """Close the envs."""
        self._lanes.close()

    def _policy(self, index: int) -> Policy | None:
        build = self.plan.policies[index].build
        if build is None:
            return None
        if index not in self._policies:
            self._policies[index] = build()
        return self._policies[index]

    def _inference(self, index: int, spec: EmbodimentSpec) -> CountingInference | None:
        policy = self._policy(index)
        if policy is None:
            return None
        period_ns = round(1e9 / spec.rate_hz)
        delay = self.plan.policies[index].delay_ticks
        return CountingInference(BatchedInference(policy, delay, period_ns))

    def _agent(self, index: int, spec: EmbodimentSpec) -> Agent:
        entry, policy = self.plan.policies[index], self._policy(index)
        if policy is not None:
            return entry.execution.agent(policy.spec, spec, entry.name)
        if entry.agent is None:
            raise ConfigError(f"'{entry.name}' needs either a policy or an agent")
        return entry.agent(spec)

    def _cameras(self, chunk: Chunk, envs: Mapping[int, Env]) -> dict[int, FrameCollector]:
        video = self.plan.options.video
        if video is None:
            return {}
        return {
            lane: FrameCollector(cast("RenderingEnv", envs[lane]), video.size, video.every)
            for lane in chunk.film
        }

    def _write_clips(
        self,
        records: Mapping[int, TrialRecord],
        cameras: Mapping[int, FrameCollector],
        rate_hz: float,
    ) -> None:
        video = self.plan.options.video
        if video is None:
            return
        for lane, camera in cameras.items():
            path = video.folder / video.name(records[lane])
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as fresh:
                video.write(fresh, camera.frames, rate_hz / video.every)

    def _record(
        self,
        chunk: Chunk,
        lane: int,
        started: str,
        result: EpisodeResult,
        inference: CountingInference | None,
        maxima: MaximumMetrics,
    ) -> TrialRecord:
        metrics = maxima.figures()
        metrics["rows"] = float(len(chunk.conditions))
        if inference is not None:
            metrics |= inference.figures(lane)
        blank = blank_record(self.plan, chunk, lane, result.outcome.reason)
        return dataclasses.replace(
            blank,
            success=result.outcome.success,
            score=min(1.0, max(0.0, result.score)),
            final_progress=min(1.0, max(0.0, result.outcome.progress)),
            return_=result.return_,
            steps=result.steps,
            duration_s=result.duration_s,
            started=started,
            achieved=achieved_start(result.reset),
            standard_errors=start_errors(result.reset),
            metrics=metrics,
        )


def achieved_start(reset: ResetReport) -> dict[str, tuple[float, ...]]:
    """Where an episode began, of what its condition names."""
    return {
        name: tuple(float(v) for v in np.ravel(reset.achieved[name]))
        for name in reset.requested.poses
        if name in reset.achieved
    }


def start_errors(reset: ResetReport) -> dict[str, tuple[float, float]]:
    """How far off that may be, of what was measured by something that says so."""
    return {n: e for n, e in reset.standard_errors.items() if n in achieved_start(reset)}


def utc_now() -> str:
    """The time as trials record it: UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def blank_record(plan: Plan, chunk: Chunk, lane: int, reason: str) -> TrialRecord:
    """A failed trial without any step, for ``reason``; the frame that results are put into."""
    policy, world, options = plan.policies[chunk.policy], plan.worlds[chunk.world], plan.options
    condition = chunk.conditions[lane]
    return TrialRecord(
        policy=policy.name,
        policy_hash=policy.hash,
        env=world.name,
        env_hash=world.hash,
        engine=world.engine,
        kind="sim",
        condition=condition.id,
        variant=condition.variant,
        seed=condition.seed,
        success=False,
        score=0.0,
        final_progress=0.0,
        return_=0.0,
        steps=0,
        duration_s=0.0,
        reason=reason,
        commit=options.commit,
        suite=options.suite,
        judge="" if options.judge is None else options.judge.hash,
        code=options.code,
        libraries=options.libraries,
        batch=options.batch,
        plan=options.plan,
    )


def evaluate(
    policies: Sequence[PolicyEntry],
    worlds: Sequence[WorldEntry],
    conditions: Mapping[str, Sequence[Condition]],
    store: TrialStore,
    options: Options,
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[TrialRecord, ...]:
    """Roll every policy out in every world over ``conditions[world]``; skip what is there.

    Returns the trials of this evaluation (earlier and new ones), ordered by world, policy and
    condition. Physics that diverge and worker processes that die twice are trials with a reason of
    their own, so the number of trials is always policies x conditions. On Ray, whose machines come
    and go, a trial that is lost again and again is none: :class:`WorkerFailedError` names it once
    all others are stored, and the next call runs it.
    """
    _check_names(policies, worlds, conditions)
    plan = Plan(tuple(policies), tuple(worlds), options)
    wanted = wanted_keys(plan, conditions)
    known = {key_of(r): r for r in store.all() if r.kind == "sim"}
    chunks = [
        chunk
        for chunk in every_chunk(plan, conditions)
        if any(key not in known for key in chunk_keys(plan, chunk))
    ]
    tallies: defaultdict[tuple[str, str], Tally] = defaultdict(Tally)
    for record in (known[key] for key in wanted if key in known):
        tallies[record.policy, record.env].add([record])
    unrun: list[Done[Chunk, tuple[TrialRecord, ...]]] = []
    for done in run_chunks(plan, chunks):
        if done.result is None and options.executor == "ray":
            unrun.append(done)
            continue
        records = done.result or _lost(plan, done)
        policy, world = policies[done.task.policy].name, worlds[done.task.world].name
        fresh = {key_of(r): r for r in records if key_of(r) not in known}
        store.add(tuple(fresh.values()))
        known.update(fresh)
        tallies[policy, world].add(fresh.values())
        if on_progress is not None:
            on_progress(tallies[policy, world].progress(policy, world, len(fresh)))
    _require_run(unrun)
    return tuple(known[key] for key in wanted)


def _require_run(unrun: Sequence[Done[Chunk, tuple[TrialRecord, ...]]]) -> None:
    if unrun:
        names = [c.id for done in unrun for c in done.task.conditions]
        raise WorkerFailedError(
            f"{len(names)} trials were lost with their workers again and again ({unrun[0].lost}):"
            f" {names[:3]}; nothing is stored for them, all others are. Evaluate again to run them"
        )


def wanted_keys(plan: Plan, conditions: Mapping[str, Sequence[Condition]]) -> list[TrialKey]:
    """The identity of every trial of an evaluation, ordered by world, policy, condition."""
    return [
        key
        for w, world in enumerate(plan.worlds)
        for p in range(len(plan.policies))
        for key in chunk_keys(plan, Chunk(p, w, tuple(conditions[world.name])))
    ]


def every_chunk(plan: Plan, conditions: Mapping[str, Sequence[Condition]]) -> Iterator[Chunk]:
    """How an evaluation is cut into pieces, in the order in which they are handed out."""
    batch = plan.options.batch
    for w, world in enumerate(plan.worlds):
        listed = tuple(conditions[world.name])
        for start in range(0, len(listed), batch):
            for p in range(len(plan.policies)):
                yield Chunk(p, w, listed[start : start + batch])


def chunk_keys(plan: Plan, chunk: Chunk) -> list[TrialKey]:
    """The identities of a chunk's trials."""
    return [key_of(blank_record(plan, chunk, i, "")) for i in range(len(chunk.conditions))]


def run_chunks(
    plan: Plan, chunks: Sequence[Chunk]
) -> Iterator[Done[Chunk, tuple[TrialRecord, ...]]]:
    """Run chunks where the options say. What was lost as a batch is run again one by one."""
    options = plan.options
    if not chunks:
        return
    if options.workers == 0:
        runner = ChunkRunner(plan)
        try:
            yield from run_in_process(lambda: runner.run, chunks)
        finally:
            runner.close()
        return
    lost: list[Chunk] = []
    for done in _spread(plan, chunks, attempts=2):
        if done.lost and len(done.task.conditions) > 1:
            lost.append(done.task)
        else:
            yield done
    # One episode may have taken its whole batch down, twice: the others get a run of their own.
    singles = [
        dataclasses.replace(chunk, conditions=(condition,), film=())
        for chunk in lost
        for condition in chunk.conditions
    ]
    if singles:
        yield from _spread(plan, singles, attempts=1)


def _spread(
    plan: Plan, chunks: Sequence[Chunk], attempts: int
) -> Iterator[Done[Chunk, tuple[TrialRecord, ...]]]:
    options = plan.options
    if options.executor == "ray":
        yield from run_on_ray(
            plan,
            chunks,
            workers=options.workers,
            attempts=attempts,
            timeout_s=options.timeout_s,
            address=options.address,
        )
        return
    yield from run_in_workers(
        plan, chunks, workers=options.workers, attempts=attempts, timeout_s=options.timeout_s
    )


def _lost(plan: Plan, done: Done[Chunk, tuple[TrialRecord, ...]]) -> tuple[TrialRecord, ...]:
    log.error("trial(s) %s lost: %s", [c.id for c in done.task.conditions], done.lost)
    lanes = range(len(done.task.conditions))
    return tuple(blank_record(plan, done.task, lane, WORKER_CRASHED) for lane in lanes)


def _check_names(
    policies: Sequence[PolicyEntry],
    worlds: Sequence[WorldEntry],
    conditions: Mapping[str, Sequence[Condition]],
) -> None:
    for what, names in (
        ("policies", [p.name for p in policies]),
        ("worlds", [w.name for w in worlds]),
    ):
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"expected {what} with names of their own, got {names}")
    hashes = [p.hash for p in policies]
    if len(set(hashes)) != len(hashes):
        raise ConfigError(f"the same policy was given twice: {[p.name for p in policies]}")
    for world in worlds:
        ids = [(c.id, c.variant, c.seed) for c in conditions.get(world.name, ())]
        if not ids or len(set(ids)) != len(ids):
            raise ConfigError(f"expected conditions of their own for '{world.name}', got {ids}")
