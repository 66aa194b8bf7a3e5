"""Composes trained policies: the weight is chosen on some conditions, others are reported."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from eval.compare import compare_policies
from eval.rule import Rule
from eval.trials.progress import Progress
from eval.trials.rollouts import Options, PolicyEntry, WorldEntry, evaluate
from eval.trials.suites import Suite, SuiteConfig
from eval.trials.table import TrialStore
from policies.imitation.compose import ComposeConfig, composed_policy
from policies.registry import load_policy
from robolearn.config import config_hash, to_dict
from robolearn.contracts import Policy
from robolearn.errors import ConfigError
from robolearn.instructions import require_understood
from robolearn.operations.builders import env_builder, policy_builder
from robolearn.operations.compose_options import ComposeOptions, Operator
from robolearn.operations.goals import common_goal, world_for
from robolearn.operations.reality.worlds import make_world
from robolearn.operations.suites import open_suite, trial_options
from robolearn.pusht import goal_params
from robolearn.spec import require_compatible
from robolearn.training.run_directory import (
    PARTS,
    PROVENANCE,
    WEIGHTS,
    copy_run,
    load_run,
    policy_hash,
    seal_run,
    write_json,
    write_run,
    write_tensors,
)
from robolearn.types import Condition, TrialRecord


@dataclass(frozen=True, slots=True)
class ComposedBuilder:
    """Builds a composed policy in a worker."""

    runs: tuple[Path, ...]
    operator: Operator
    weights: tuple[float, ...]
    steps: int

    def __call__(self) -> Policy:
        """Load the parts and combine them."""
        config = ComposeConfig(self.operator, self.weights, self.steps)
        return composed_policy([load_policy(r) for r in self.runs], config)


@dataclass(frozen=True, slots=True)
class Composed:
    """What was chosen, and what it is worth where nothing was chosen."""

    run: str
    policy_hash: str
    operator: str
    weights: tuple[float, ...]
    # Mean score on the choosing conditions, by candidate.
    choosing: Mapping[str, float]
    # The single policy that was best there.
    best_part: str
    # Mean score on the reported conditions, by policy.
    reported: Mapping[str, float]
    # Mean paired difference to the best part on the reported conditions, with the interval that
    # ``robolearn compare`` gives it.
    gain: float
    gain_low: float
    gain_high: float
    pairs: int
    # What can be concluded.
    verdict: str


@dataclass(frozen=True, slots=True)
class ComposeListener:
    """Who wants to know how far it is."""

    # So many trials are due: first to choose, then to report.
    on_begin: Callable[[int], None] | None = None
    on_trials: Callable[[Progress], None] | None = None


USUAL = ComposeOptions()


def compose(
    runs: Sequence[Path],
    out: Path,
    options: ComposeOptions = USUAL,
    listener: ComposeListener = ComposeListener(),
) -> Composed:
    """Combine ``runs`` with several weights, choose one, and write it as the run directory ``out``.

    A composition that was stopped goes on: its trials are in ``out/trials``.

    Errors: :class:`ConfigError`, :class:`SpecMismatchError` before anything runs.
    """
    if len(runs) < 2:
        raise ConfigError("give at least two run directories to compose")
    suite = open_suite(options.suite)
    drawn = suite.select(options.report + options.choose)
    report, choose = drawn[: options.report], drawn[options.report :]
    parts, candidates = _entries(runs, options)
    for _, builder in candidates:
        builder()  # Whether they fit together is said before anything runs.
    world = _world(runs, options.world, suite.config)
    how = _options(options, suite)
    composed = tuple(entry for entry, _ in candidates)
    with TrialStore(out / "trials") as store:

        def run(
            policies: Sequence[PolicyEntry], conditions: Sequence[Condition]
        ) -> Sequence[TrialRecord]:
            if listener.on_begin is not None:
                listener.on_begin(len(policies) * len(conditions))
            placed = {world.name: tuple(conditions)}
            return evaluate(tuple(policies), (world,), placed, store, how, listener.on_trials)

        choosing = _means(run((*parts, *composed), choose))
        best = max(parts, key=lambda p: choosing[p.name])
        chosen, builder = max(candidates, key=lambda c: choosing[c[0].name])
        records = run((*parts, chosen), report)
    return _result(out, builder, choosing, best.name, chosen.name, records)


def _entries(
    runs: Sequence[Path], options: ComposeOptions
) -> tuple[tuple[PolicyEntry, ...], tuple[tuple[PolicyEntry, ComposedBuilder], ...]]:
    """The policies alone, and the candidates."""
    builders = [policy_builder(run) for run in runs]
    hashes = [policy_hash(run) for run in runs]
    parts = tuple(
        PolicyEntry(f"{i}-{run.resolve().name}", digest, builder)
        for i, (run, digest, builder) in enumerate(zip(runs, hashes, builders, strict=True))
    )
    count = len(runs)
    choice = (
        [(w, 1 - w) for w in options.weights] if count == 2 and options.operator != "and" else []
    )
    candidates: list[tuple[PolicyEntry, ComposedBuilder]] = []
    for weights in choice or [(1 / count,) * count]:
        folders = tuple(run.resolve() for run in runs)
        builder = ComposedBuilder(folders, options.operator, weights, options.steps)
        digest = config_hash(hashes, options.operator, weights, options.steps)
        name = f"{options.operator}-{'-'.join(f'{w:.2f}' for w in weights)}"
        candidates.append((PolicyEntry(name, digest, builder), builder))
    return parts, tuple(candidates)


def _world(runs: Sequence[Path], name: str, suite: SuiteConfig) -> WorldEntry:
    builder = env_builder(world_for(name, suite.task, runs))
    env = make_world(builder.world)
    try:
        if env.task != suite.task:
            raise ConfigError(f"the suite has the task '{suite.task}', '{name}' '{env.task}'")
        for run in runs:
            space = load_run(run).spec.task_space
            require_compatible(space, env.spec)
            require_understood(space, (suite.instruction,))
        return WorldEntry(env.spec.name, env.scene_hash, env.engine, builder, suite.instruction)
    finally:
        env.close()


def _options(options: ComposeOptions, suite: Suite) -> Options:
    return dataclasses.replace(trial_options(suite), workers=options.workers, batch=options.batch)


def _means(records: Sequence[TrialRecord]) -> dict[str, float]:
    scores: dict[str, list[float]] = {}
    for record in records:
        scores.setdefault(record.policy, []).append(record.score)
    return {name: sum(values) / len(values) for name, values in scores.items()}


def _result(
    out: Path,
    builder: ComposedBuilder,
    choosing: Mapping[str, float],
    best: str,
    chosen: str,
    records: Sequence[TrialRecord],
) -> Composed:
    both = [r for name in (best, chosen) for r in records if r.policy == name]
    (effect,) = compare_policies(both, Rule(by="score")).worlds[0].effects
    gain = effect.score
    digest = write_composed(out, builder)
    result = Composed(
        run=str(out),
        policy_hash=digest,
        operator=builder.operator,
        weights=builder.weights,
        choosing=choosing,
        best_part=best,
        reported=_means(records),
        gain=gain.value,
        gain_low=gain.low,
        gain_high=gain.high,
        pairs=gain.n,
        verdict=effect.words,
    )
    write_json(out / "composition.json", dataclasses.asdict(result))
    return result


def write_composed(out: Path, builder: ComposedBuilder) -> str:
    """A run directory with its parts inside; the hash of the policy."""
    runs = [load_run(path) for path in builder.runs]
    config = ComposeConfig(builder.operator, builder.weights, builder.steps)
    plain = dict(runs[0].config) | {"policy": "compose", "algorithm": to_dict(config)}
    write_run(out, plain, runs[0].spec, runs[0].stats)
    (out / PARTS).mkdir(exist_ok=True)
    for i, run in enumerate(runs):
        copy_run(run.path, out / PARTS / str(i))
    # There is nothing else to keep: the weights, and whose they are.
    tensors = {
        "weights": torch.tensor(builder.weights, dtype=torch.float64),
        "parts": torch.tensor([list(bytes.fromhex(r.policy_hash)) for r in runs]).byte(),
    }
    write_tensors(
        out / WEIGHTS, tensors, {"operator": builder.operator, "steps": str(builder.steps)}
    )
    hashes = [run.policy_hash for run in runs]
    params = goal_params(common_goal(builder.runs))
    write_json(out / PROVENANCE, {"complete": True, "parts": hashes} | params)
    seal_run(out)
    return policy_hash(out)
