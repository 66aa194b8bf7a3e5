"""Lets a trained policy practise: ``robolearn finetune``.

    RUN --------------------+--> rounds in WORLD --> STORE (kind online) --> learner --> versions
    (stays as it is)        |        ^                                                      |
                            |        '------------------------------------------------------'
                            '--> OUT: a run directory like any other, RUN inside as its parent

What is practised is an algorithm over the chunks of RUN, or one that goes on from its weights; by
default critics that choose among its chunks (``docs/practice.md``). On an arm: ``on_cell.py``. At
the end OUT holds the last version. If that went wrong (losses that are not finite, a parent that is
clearly better, actors that die) it holds the best version that was tested instead, or the parent
itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eval.trials.executors import Done, run_in_process, run_in_workers
from eval.trials.ray_executor import run_on_ray
from eval.trials.rollouts import ExecutorName
from robolearn.errors import ConfigError, InferenceError, RobolearnError
from robolearn.learning import use_threads
from robolearn.operations.builders import EnvBuilder, WorldInfo, env_builder
from robolearn.operations.goals import world_for
from robolearn.operations.practice.actors import ActorPlan, Flown, RoundTask
from robolearn.operations.practice.correcting import require_person
from robolearn.operations.practice.elsewhere.link import (
    LearnerAddress,
    learner_of,
    second_of,
)
from robolearn.operations.practice.experiment import PracticeExperiment, require_buildable
from robolearn.operations.practice.frame import (
    Books,
    LearnerBuilder,
    SecondStore,
    identity_of,
    is_over,
    limits_of,
    require_alike,
    require_apart,
    require_correctable,
    require_share,
    standing_of,
)
from robolearn.operations.practice.judging import EpisodeJudge
from robolearn.operations.practice.listener import PracticeListener
from robolearn.operations.practice.result import FinetuneResult, finished, found_result
from robolearn.operations.practice.validation import Validation
from robolearn.operations.reality.worlds import make_world
from robolearn.seeding import child_seed
from robolearn.spec import require_compatible
from robolearn.training.run_directory import Run, load_run
from robolearn.types import Condition
from sim.contract import World
from sim.tasks.starts import draw_start


@dataclass(frozen=True, slots=True)
class Actors:
    """Where episodes are driven: in this process, in so many worker processes, or Ray actors."""

    count: int = 0
    executor: ExecutorName = "processes"
    address: str = ""
    # A round that takes longer counts as hung [s].
    timeout_s: float = 1800.0

    def __post_init__(self) -> None:
        if self.count < 0 or not self.timeout_s > 0:
            raise ConfigError(f"actors: count at least 0 and timeout_s above it, got {self}")
        if self.executor == "ray" and self.count < 1:
            raise ConfigError("Ray needs at least one actor")


def finetune(
    experiment: PracticeExperiment,
    run: Path,
    worlds: Sequence[str],
    store: Path,
    out: Path,
    *,
    second: SecondStore | None = None,
    takeover: str = "",
    judge: Path | None = None,
    actors: Actors = Actors(),
    elsewhere: LearnerAddress | None = None,
    threads: int = 1,
    resume: bool = False,
    listener: PracticeListener = PracticeListener(),  # noqa: B008 (frozen)
) -> FinetuneResult:
    """Let the policy of ``run`` practise in ``worlds``, by turns, as ``experiment`` says.

    Episodes go into ``store``, which may hold others; ``second``: the store that a share of every
    batch comes from. ``takeover``: who takes over where the policy is lost (``scripted``: the
    task's expert). ``judge``: a classifier of pictures, which decides on success (``robolearn
    success``). ``elsewhere``: the machine that learns, where it is not this one; it has the second
    store. ``resume``: go on where a practice stopped, or reuse one that is finished. Ctrl-C leaves
    what going on needs.

    Errors: :class:`ConfigError`, :class:`SpecMismatchError` and :class:`CheckpointError` before
    anything is written; :class:`PracticeError` when there is nothing to learn from.
    """
    use_threads(threads)
    parent = load_run(run)
    judging = EpisodeJudge.of(judge, store)
    builders = tuple(_checked(world, parent, judging) for world in worlds)
    infos = tuple(b.info() for b in builders)
    second = second_of(elsewhere, parent, second)
    require_apart(run, store, out)
    _require_possible(experiment, parent, infos, second, takeover)
    hashes = [info.hash for info in infos]
    away = elsewhere is not None
    identity = identity_of(experiment, parent, hashes, second, takeover, judging, elsewhere=away)
    standing = standing_of(out, identity, resume=resume)
    if standing.result is not None and is_over(standing, limits_of(experiment)):
        return found_result(standing.result, out)
    standing = dataclasses.replace(standing, limits=limits_of(experiment), result=None)
    here = LearnerBuilder(
        *(experiment, run, store, out, second, threads),
        corrected=bool(takeover),
        parent_hash=parent.policy_hash,
    )
    if not away:
        here.require_second()
    require_alike(experiment, parent, store, infos[0].task, standing.id)
    with contextlib.ExitStack() as stack:
        books = Books.opened(stack, store, out, standing, parent.spec.execute, judging)
        build, computed = learner_of(elsewhere, here, parent, standing.id)
        session = books.session(
            experiment,
            build,
            stack.enter_context(_Starts.of(builders, experiment.experiment.seed)),
            tuple(b.world for b in builders),
            listener,
            validation=Validation.of(experiment, parent, out, builders[0]),
            judge=judging,
            beside=computed,
        )
        plan = _actor_plan(experiment, parent, builders, books, takeover)
        stack.callback(session.close)
        try:
            session.catch_up()
            for done in _driven(plan, session.tasks(), actors):
                session.took(done.task, done.result)
        except InferenceError as error:
            if not session.failed(error):
                raise
        except BaseException:
            session.rescue()
            raise
        return finished(session)


def _actor_plan(
    experiment: PracticeExperiment,
    parent: Run,
    builders: tuple[EnvBuilder, ...],
    books: Books,
    takeover: str,
) -> ActorPlan:
    return ActorPlan(
        builders,
        parent.path.absolute(),
        books.out.absolute(),
        books.episodes.staging,
        max_steps=experiment.practice.max_steps,
        practice=books.standing.id,
        takeover=bool(takeover),
        parent_hash=parent.policy_hash,
    )


@dataclass(frozen=True, slots=True)
class _Starts:
    """The starts that practice begins at: those of the task's reset distribution, by number."""

    envs: tuple[World, ...]
    seed: int

    @staticmethod
    @contextlib.contextmanager
    def of(builders: Sequence[EnvBuilder], seed: int) -> Generator[_Starts]:
        """Of these worlds."""
        envs = tuple(make_world(b.world) for b in builders)
        try:
            yield _Starts(envs, child_seed(seed, "practice starts"))
        finally:
            for env in envs:
                env.close()

    def __call__(self, world: int, number: int) -> Condition:
        """Start ``number`` in world ``world``."""
        env = self.envs[world]
        return draw_start(env.task, env.sample_condition, self.seed, number)


def _driven(
    plan: ActorPlan, tasks: Iterator[RoundTask], actors: Actors
) -> Iterator[Done[RoundTask, tuple[Flown, ...]]]:
    """Rounds as they end."""
    if actors.count == 0:
        return run_in_process(plan, tasks)
    if actors.executor == "ray":
        return run_on_ray(
            plan, tasks, workers=actors.count, timeout_s=actors.timeout_s, address=actors.address
        )
    return run_in_workers(plan, tasks, workers=actors.count, timeout_s=actors.timeout_s)


def _checked(world: str, parent: Run, judge: EpisodeJudge | None) -> EnvBuilder:
    """The world, with the goal that the parent learned; it fits the parent and can be reset."""
    info = env_builder(world).info()
    builder = env_builder(world_for(world, info.task, [parent.path]))
    env = make_world(builder.world)
    try:
        require_compatible(parent.spec.task_space, env.spec)
        if not env.capabilities.faster_than_real_time:
            raise ConfigError(f"'{world}' runs in real time; practise on its cell (robot) instead")
        _require_resettable(env, world)
        if judge is not None:
            judge.require_seen(env.spec, world)
    finally:
        env.close()
    return builder


def _require_resettable(env: World, world: str) -> None:
    """It goes to a start of its own: a round that cannot begin would be lost after the warm-up."""
    try:
        env.reset(draw_start(env.task, env.sample_condition, 0, 0), np.random.default_rng(0))
    except RobolearnError as error:
        raise ConfigError(
            f"'{world}' cannot be reset to a start of its own, and practice begins at many:"
            f" {error}. Mend what it settles or places ('robolearn scene view' shows it), or name"
            " another world"
        ) from error


def _require_possible(
    experiment: PracticeExperiment,
    parent: Run,
    worlds: Sequence[WorldInfo],
    second: SecondStore | None,
    takeover: str,
) -> None:
    """Refuse what would fail after the warm-up."""
    if not worlds:
        raise ConfigError("name a world to practise in")
    tasks = {world.task for world in worlds}
    if len(tasks) > 1:
        raise ConfigError(f"worlds of one task, got {sorted(tasks)}")
    require_share(experiment, second, takeover)
    require_person(takeover)
    require_correctable(experiment, takeover)
    require_buildable(experiment.experiment, parent)
