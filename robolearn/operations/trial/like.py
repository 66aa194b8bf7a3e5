"""Simulates from where real trials really began, so that real and simulated trials pair up.

Every real trial that counts is a start of its policy: what was measured when it began, over what
its condition names. A measurement is not exact, and one rollout says little about a probability;
so each start is simulated several times, from poses drawn about the measured one.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eval.blinded.plan import FILE_NAME as PLAN_FILE
from eval.blinded.plan import TrialPlan, read_locked, require_unblinded
from eval.blinded.unblinded import require_as_tried
from eval.plain import write_text
from eval.summary import own_trials
from eval.trials import rollouts
from eval.trials.export import to_csv
from eval.trials.progress import Progress
from eval.trials.rollouts import PolicyEntry
from eval.trials.suites import Suite, SuiteConfig, nudged
from eval.trials.table import TrialStore, has_trials, read_trials
from robolearn.agents.execution import Execution
from robolearn.config import from_dict
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.operations.deploy.result import DOCUMENT
from robolearn.operations.evaluate import (
    AS_TRAINED,
    policy_entries,
    rollout_options,
    world_entries,
    worlds_at_goals,
)
from robolearn.operations.evaluate_options import EvaluateOptions
from robolearn.operations.suites import aside, open_suite
from robolearn.operations.trial.begun import Begun, errors_said, go_on, measured
from robolearn.operations.trial.planned import KEPT
from robolearn.operations.trial.start_noise import AS_SAID, StartNoise
from robolearn.seeding import child_seed
from robolearn.types import Condition, TrialRecord

# How often a start is drawn again that is not feasible.
_DRAWS = 100
# What trials' seeds are drawn as. Simulators share theirs, so that scenes are compared under the
# same noise; a repetition in the world that stands for reality shares none with them, as on an arm.
SIMULATED, REPEATED = "like", "again"


@dataclass(frozen=True, slots=True)
class LikeOptions:
    """How real starts become simulated ones."""

    # Rollouts from the start of every real trial.
    rollouts: int = 5
    # How exactly starts were measured.
    noise: StartNoise = AS_SAID
    # The simulated world that stands for reality; empty: trials of a cell do.
    real_world: str = ""

    def __post_init__(self) -> None:
        if self.rollouts < 1:
            raise ConfigError(f"rollouts must be at least 1, got {self.rollouts}")


USUAL = LikeOptions()


@dataclass(frozen=True, slots=True)
class LikeResult:
    """The simulated trials; ``real``: how many real ones they are like; ``alone``: policies of the
    real trials that were not simulated; ``drawn``: how far about the measured ones, and
    who said so, in words.
    """

    trials: tuple[TrialRecord, ...]
    real: int
    alone: tuple[str, ...]
    drawn: str


def evaluate_like(
    runs: Sequence[str | Path],
    like: Path,
    out: Path,
    options: EvaluateOptions,
    execution: Execution = AS_TRAINED,
    how: LikeOptions = USUAL,
    on_progress: Callable[[Progress], None] | None = None,
) -> LikeResult:
    """Simulate every policy from the starts of its real trials in ``like``; resumes.

    Of blinded trials (once they are unblinded) suite, length, instruction and execution are the
    plan's, of a deployment those but the suite are its own.
    :class:`ConfigError` for options that make no sense here, and for an ``out`` that was begun from
    other starts; :class:`DataError` for trials without measured starts, of another suite, or of
    none of the policies.
    """
    if options.plan is not None or options.conditions is not None or options.repeat:
        raise ConfigError("like: the starts are those of the real trials; leave plan, conditions"
                          " and repeat out")  # fmt: skip
    real = real_trials(like, how.real_world)
    plan = read_locked(like).plan if (like / PLAN_FILE).is_file() else None
    suite = like_suite(like, options)
    done = _done(like, plan, suite.config)
    execution = done.execution if execution == AS_TRAINED else execution
    apart = aside(suite.config, done.max_steps, done.instruction)
    names = options.worlds or (suite.config.source_world,)
    at_goal = worlds_at_goals(runs, names, suite)
    policies = policy_entries(runs, options, execution, suite, at_goal, apart)
    worlds = [
        w if w.instruction != suite.config.instruction
        else dataclasses.replace(w, instruction=done.instruction)
        for w in world_entries(runs, at_goal, suite)
    ]  # fmt: skip
    seeds = {w.name: REPEATED if w.name == how.real_world else SIMULATED for w in worlds}
    starts = {
        (p.name, drawn): _starts(p, real, suite, how, drawn)
        for p in policies
        for drawn in sorted(set(seeds.values()))
    }
    asked = dataclasses.replace(options, videos=0)
    rolled = rollout_options(asked, out, suite, "")
    if apart:
        rolled = dataclasses.replace(rolled, max_steps=done.max_steps)
    mine = [r for r in real if r.policy_hash in {p.hash for p in policies}]
    found: list[TrialRecord] = []
    with TrialStore(out) as store:
        go_on(
            out,
            Begun(
                *how.noise.unsaid,
                rolled.max_steps,
                done.instruction,
                measured(mine),
                errors_said(mine, how.noise),
            ),
        )
        for policy in policies:
            conditions = {w.name: starts[policy.name, seeds[w.name]] for w in worlds}
            found += rollouts.evaluate([policy], worlds, conditions, store, rolled, on_progress)
        write_text(out / "trials.csv", to_csv(store.all()))
    tried = {p.name for p in policies}
    alone = tuple(sorted({r.policy for r in real} - tried))
    like_these = sum(r.policy in tried for r in real)
    return LikeResult(tuple(found), like_these, alone, how.noise.words(mine))


def real_trials(like: Path, world: str = "") -> list[TrialRecord]:
    """The trials that count of a folder: of cells, or of the ``world`` that stands for reality.
    :class:`DataError` where there are none, and for unblinded ones that are not those that were
    tried.
    """
    if not has_trials(like):
        require_unblinded(like, ())
    found = read_trials(like)
    require_unblinded(like, found)
    require_as_tried(like, found)
    records, _ = own_trials(found)
    kept = [r for r in records if (r.env == world if world else r.kind != "sim")]
    if not kept:
        where = f" in '{world}'" if world else ""
        raise DataError(f"'{like}' has no real trials that count{where}")
    return kept


def like_suite(like: Path, options: EvaluateOptions) -> Suite:
    """The suite that was asked for, or the one of the trials' plan."""
    kept = like / KEPT / "suite.yaml"
    if options.suite is None and not kept.is_file():
        raise ConfigError(f"suite: '{like}' does not keep its suite; give it")
    return open_suite(options.suite or kept)


@dataclass(frozen=True, slots=True)
class _Done:
    """How real trials were executed."""

    execution: Execution
    max_steps: int
    instruction: str


def _done(like: Path, plan: TrialPlan | None, suite: SuiteConfig) -> _Done:
    """As the trials' plan says, or their deployment; what neither says is as in the suite."""
    usual = _Done(AS_TRAINED, suite.max_steps, suite.instruction)
    if plan is not None:
        return _Done(plan.execution, plan.max_steps, plan.instruction)
    if not (like / DOCUMENT).is_file():
        return usual
    store = EpisodeStore.open(like / "store")
    found = list[_Done]()
    for name in store.ids():
        kept = store.meta(name).provenance
        way = kept.get("execution")
        how = _Done(
            AS_TRAINED if way is None else from_dict(Execution, way, where=f"episode {name}"),
            int(kept.get("max_steps", suite.max_steps)),
            str(kept.get("instruction", suite.instruction)),
        )
        found += [] if how in found else [how]
    # Of several none is everybody's; the names of the policies tell them apart.
    return found[0] if len(found) == 1 else usual


def _starts(
    policy: PolicyEntry, real: Sequence[TrialRecord], suite: Suite, how: LikeOptions, seeds: str
) -> tuple[Condition, ...]:
    mine = [r for r in real if (r.policy, r.policy_hash) == (policy.name, policy.hash)]
    if not mine:
        called = ", ".join(sorted({r.policy for r in real}))
        raise DataError(
            f"no real trial is of '{policy.name}' as it is now; real trials are of {called}. Give"
            " the same run and the same options of execution (they are in the name)"
        )
    other = sorted({r.suite for r in mine} - {suite.label})
    if other:
        raise DataError(f"the real trials are of {', '.join(other)}, not of {suite.label}")
    known = {c.id: c for c in suite.select(_needed(suite, mine))}
    found: list[Condition] = []
    before: Counter[str] = Counter()
    for record in mine:
        if not record.achieved:
            raise DataError(
                f"the real trial of {record.condition} by '{record.policy}' does not say where it"
                " began; trials of this release do"
            )
        number, before[record.condition] = before[record.condition], before[record.condition] + 1
        found += _drawn(known[record.condition], record, suite, how, number, seeds)
    return tuple(found)


def _needed(suite: Suite, mine: Sequence[TrialRecord]) -> int:
    """How many conditions of the suite hold all that were tried, also those drawn beyond it."""
    wanted, count = {r.condition for r in mine}, len(suite.config.conditions)
    while not wanted <= {c.id for c in suite.select(count)}:
        count *= 2
        if count > 100_000:
            raise DataError(f"the suite {suite.label} has none of {sorted(wanted)[:3]}")
    return count


def _drawn(
    condition: Condition,
    record: TrialRecord,
    suite: Suite,
    how: LikeOptions,
    number: int,
    seeds: str,
) -> list[Condition]:
    measured = {**condition.poses, **record.achieved}
    said = how.noise.said(record)
    noise = {name: said.get(name, how.noise.unsaid) for name in measured}
    found: list[Condition] = []
    for k in range(how.rollouts):
        seed = child_seed(condition.seed, seeds, number, k) % 2**31
        poses = _feasible(measured, noise, suite, seed)
        found.append(dataclasses.replace(condition, seed=seed, poses=poses))
    return found


def _feasible(
    measured: Mapping[str, tuple[float, ...]],
    noise: Mapping[str, tuple[float, float]],
    suite: Suite,
    seed: int,
) -> Mapping[str, tuple[float, ...]]:
    rng = np.random.default_rng(seed)
    for _ in range(_DRAWS):
        poses = {name: nudged(name, pose, rng, *noise[name]) for name, pose in measured.items()}
        if not suite.problem(poses):
            return poses
    raise DataError(
        f"a measured start is not feasible in simulation: {suite.problem(measured) or measured};"
        " was an object not where the tracker said?"
    )
