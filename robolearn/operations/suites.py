"""Opens, draws, checks and plans suites, with what their tasks know of where episodes start."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from eval.preregistration import Preregistration, Registered, write_plan
from eval.rule import Rule
from eval.trials.rollouts import Options, utc_now
from eval.trials.suites import (
    ConditionConfig,
    Poses,
    Suite,
    SuiteConfig,
    load_suite,
    make_suite,
    suite_yaml,
)
from eval.trials.unseen import seen_and_unseen
from robolearn.config import config_hash
from robolearn.data.episode import EpisodeStart
from robolearn.data.provenance import git_revision
from robolearn.errors import ConfigError, RobolearnError
from robolearn.files import write_atomic
from robolearn.operations.builders import env_builder
from robolearn.operations.code_hash import code_hash, deciding_libraries
from robolearn.operations.reality.worlds import is_scene, make_world
from robolearn.types import Condition
from sim.tasks.pusht import PushT
from sim.tasks.starts import draw_start, start_problem
from sim.world_name import WorldName


def trial_options(suite: Suite) -> Options:
    """What a suite and this code say of its trials; the rest is up to who runs them."""
    return Options(
        suite=suite.label,
        task=suite.config.task,
        max_steps=suite.config.max_steps,
        code=code_hash(),
        libraries=deciding_libraries(),
        commit=git_revision(),
        forbidden=suite.config.forbidden,
    )


def aside(suite: SuiteConfig, max_steps: int, instruction: str) -> str:
    """What trials do otherwise than their suite says, for the names of policies; "": nothing. Text
    stands there by its hash.
    """
    length = "" if max_steps == suite.max_steps else f"max_steps={max_steps}"
    same = instruction == suite.instruction
    told = "" if same else f"instruction={config_hash(instruction)[:8]}"
    return ",".join(filter(None, (length, told)))


@dataclass(frozen=True, slots=True)
class TaskStarts:
    """The starts of ``task`` as ``world`` has it."""

    task: str
    world: str

    @staticmethod
    def of(config: SuiteConfig) -> TaskStarts:
        """Those of a suite's task in its source world."""
        return TaskStarts(config.task, config.source_world)

    def draw(self, seed: int, indices: Sequence[int]) -> Sequence[Condition]:
        """Those of the list that belongs to ``seed``, from the task's reset distribution."""
        with self._distribution() as sample:
            return [draw_start(self.task, sample, seed, i) for i in indices]

    def problem(self, poses: Poses) -> str:
        """Why a start is not feasible; empty if it is."""
        return start_problem(self.task, poses)

    @contextmanager
    def _distribution(self) -> Generator[Callable[[int], Condition]]:
        # Push-T starts alike in all its worlds, and a robot's computer may have none of them.
        if self.task == PushT.name:
            yield PushT().sample_condition
            return
        env = make_world(env_builder(self.world).world)
        try:
            if env.task != self.task:
                raise ConfigError(
                    f"starts of the task '{self.task}' cannot be drawn from '{self.world}', which"
                    f" has the task '{env.task}'; mend the suite's source_world"
                )
            yield env.sample_condition
        finally:
            env.close()


@dataclass(frozen=True, slots=True)
class SuiteChecked:
    """A suite whose file is sound, and the worlds that every condition of it is possible in."""

    suite: Suite
    possible_in: tuple[str, ...]
    # Every world is tried in so many ways, as it is included.
    variants: tuple[str, ...]
    # What policies that read text are told, by name ("": the suite's own words).
    instructions: Mapping[str, str]
    # Conditions that name more than one goal.
    several_goals: int


def open_suite(path: Path) -> Suite:
    """Read and check a suite; beyond its list it goes on with its task's starts."""
    return load_suite(path, TaskStarts.of)


def draw_suite(
    world: str,
    out: Path,
    *,
    n: int = 100,
    subset: int | None = None,
    seed: int = 20261121,
    name: str = "",
    protocol: str = "",
    unseen: Sequence[Path] = (),
) -> Suite:
    """Draw ``n`` starts of ``world`` from its reset distribution and write them as a suite's file.

    ``subset``: how many of them other worlds are given (None: half); ``name``: else the file's;
    ``protocol``: the rule by which results are scored, in words; ``unseen``: run directories: half
    of the starts are then such that all of them were trained on, the others such that none was, by
    turns and marked.

    Errors: :class:`ConfigError`, also for a file that exists; :class:`DataError` for runs that do
    not say what they were trained on; nothing written.
    """
    least = 2 if unseen else 1
    if n < least:
        raise ConfigError(f"n must be at least {least}, got {n}")
    if out.exists():
        raise ConfigError(f"out: '{out}' is there already; results refer to its hash")
    env = make_world(env_builder(world).world)
    try:
        draw = partial(draw_start, env.task, env.sample_condition, seed)
        if unseen:
            trained, trained_on = _trained(unseen)
            problem = partial(start_problem, env.task)
            starts = seen_and_unseen(draw, problem, n, seed, world, trained)
        else:
            drawn = (draw(i) for i in range(n))
            starts = [ConditionConfig(c.id, c.seed, dict(c.poses)) for c in drawn]
            trained_on = ()
        config = SuiteConfig(
            name=name or out.stem,
            task=env.task,
            max_steps=env.max_steps,
            seed=seed,
            source_world=world,
            subset=subset or max(1, len(starts) // 2),
            protocol=protocol
            or f"score = highest progress; success as judged by the task; {env.max_steps} control"
            f" steps at {env.spec.rate_hz:g} Hz ({env.max_steps / env.spec.rate_hz:g} s)",
            conditions=tuple(starts),
            trained_on=trained_on,
        )
    finally:
        env.close()
    suite = make_suite(config, starts=TaskStarts.of)
    _place(suite, world)
    write_atomic(out, suite_yaml(config))
    return suite


def _trained(
    runs: Sequence[Path],
) -> tuple[dict[str, tuple[EpisodeStart, ...]], tuple[str, ...]]:
    """The starts of every run, and their hashes."""
    # Imported here because it imports torch, which other suites do not need.
    from robolearn.training.run_directory import load_run
    from robolearn.training.trained_starts import starts_hash, starts_of

    found = {str(run): load_run(run).provenance for run in runs}
    starts = {run: starts_of(provenance, run) for run, provenance in found.items()}
    return starts, tuple(dict.fromkeys(starts_hash(p) for p in found.values()))


def world_label(world: str) -> str:
    """What a world is called in results: a scene's folder is not part of its name, a family is
    (``robosuite/Lift``).
    """
    return Path(world).name if is_scene(WorldName.parse(env_builder(world).world)) else world


def plan_suite(
    path: Path,
    out: Path,
    rule: Rule,
    *,
    worlds: Sequence[str] = (),
    policies: Sequence[str] = (),
    groups: Mapping[str, Sequence[str]] | None = None,
    note: str = "",
) -> Registered:
    """Write the plan of a comparison over the suite ``path``.

    ``rule``: without ``n_max`` the fixed rule takes the suite's list; ``worlds``: default the
    suite's own; ``policies``, ``groups``: as they will be called in results (a run's folder).

    Errors: :class:`ConfigError`, also for a file that exists; nothing written.
    """
    suite = open_suite(path)
    if rule.kind == "fixed" and rule.n_max is None:
        rule = rule.limited(len(suite.config.conditions))
    members = [name for runs in (groups or {}).values() for name in runs]
    plan = Preregistration(
        suite=suite.label,
        worlds=tuple(world_label(w) for w in worlds or (suite.config.source_world,)),
        rule=rule,
        written=utc_now(),
        policies=tuple(dict.fromkeys((*policies, *members))),
        groups={name: tuple(runs) for name, runs in (groups or {}).items()},
        note=note,
    )
    return write_plan(out, plan)


def check_suite(path: Path, worlds: Sequence[str] = ()) -> SuiteChecked:
    """Read a suite's file and place every condition in each of ``worlds``.

    Errors: :class:`ConfigError` that names the first condition which a world refuses.
    """
    suite = open_suite(path)
    for world in worlds:
        _place(suite, world)
    config = suite.config
    return SuiteChecked(
        suite,
        tuple(worlds),
        config.perturbations.variants(),
        {"": config.instruction, **config.instructions},
        sum(any("#" in name for name in c.poses) for c in config.conditions),
    )


def _place(suite: Suite, world: str) -> None:
    """Reset ``world`` to every condition; the first that it refuses is named."""
    env = make_world(env_builder(world).world)
    try:
        if env.task != suite.config.task:
            raise ConfigError(
                f"'{world}' has the task '{env.task}', the suite '{suite.config.task}'"
            )
        for condition in suite.select(len(suite.config.conditions)):
            try:
                env.reset(condition, np.random.default_rng(condition.seed))
            except RobolearnError as error:
                raise ConfigError(
                    f"condition '{condition.id}' is not possible in {world}: {error}"
                ) from error
            if env.outcome().success:
                raise ConfigError(f"condition '{condition.id}' is solved at its start in {world}")
    finally:
        env.close()
