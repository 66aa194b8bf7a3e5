"""``robolearn compose RUN RUN``: one policy of several, weighted on conditions held out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, progress, say
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from eval.trials.rollouts import Options, PolicyEntry, WorldEntry
    from eval.trials.suites import SuiteConfig
    from robolearn.contracts import Policy
    from robolearn.types import Condition, TrialRecord


@dataclass(frozen=True, slots=True)
class Args:
    """Combine trained policies with fields; choose the weight on some conditions, report others."""

    # Run directories of two or more policies (flow, diffusion, mean_flow, shortcut, beso).
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    # Run directory to write.
    out: Path | None = None
    # How the fields are combined.
    operator: Literal["convex", "and", "or"] = "convex"
    # Weights of the first policy to choose from (two policies, convex and or); others: equal.
    weights: tuple[float, ...] = (0.2, 0.4, 0.5, 0.6, 0.8)
    # Euler steps of the composed policy.
    steps: int = 4
    # The conditions and the protocol.
    suite: Path = Path("configs/eval/pusht.yaml")
    # World to run in.
    world: str = "gym_pusht"
    # Conditions on which the weight is chosen; none of them is reported.
    choose: int = 50
    # Conditions on which the gain is reported: the first ones of the suite.
    report: int = 100
    # Worker processes; 0: in this process.
    workers: int = 1
    # Environments per forward pass of a policy.
    batch: int = 1
    # Print the result as JSON only.
    json: bool = False


@dataclass(frozen=True, slots=True)
class ComposedBuilder:
    """Builds a composed policy in a worker."""

    runs: tuple[Path, ...]
    operator: Literal["convex", "and", "or"]
    weights: tuple[float, ...]
    steps: int

    def __call__(self) -> Policy:
        """Load the parts and combine them."""
        from policies.imitation.compose import ComposeConfig, composed_policy
        from policies.registry import load_policy

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
    # Mean paired difference to the best part on the reported conditions, with its interval.
    gain: float
    gain_low: float
    gain_high: float
    pairs: int


def main(argv: list[str]) -> int:
    args = parse(Args, argv, "compose", Args.__doc__ or "")
    out = _check(args)
    from eval.trials.table import TrialStore
    from robolearn.operations.suites import open_suite

    suite = open_suite(args.suite)
    drawn = suite.select(args.report + args.choose)
    report, choose = drawn[: args.report], drawn[args.report :]
    parts, candidates = _entries(args)
    for _, builder in candidates:
        builder()  # Whether they fit together is said before anything runs.
    world, options = _world(args, suite.config), _options(args, suite)
    composed = tuple(entry for entry, _ in candidates)
    with TrialStore(out / "trials") as store:
        first = _run((*parts, *composed), world, choose, store, options, quiet=args.json)
        choosing = _means(first)
        best = max(parts, key=lambda p: choosing[p.name])
        chosen, builder = max(candidates, key=lambda c: choosing[c[0].name])
        second = _run((*parts, chosen), world, report, store, options, quiet=args.json)
    result = _result(out, args, builder, choosing, best.name, chosen.name, second)
    if args.json:
        print_json(dataclasses.asdict(result))
    else:
        _show(result)
    return 0


def _check(args: Args) -> Path:
    if len(args.runs) < 2:
        raise ConfigError("give at least two run directories: robolearn compose RUN RUN --out RUN")
    if args.out is None:
        raise ConfigError("--out RUN is missing")
    if min(args.choose, args.report) < 2 or args.steps < 1 or args.batch < 1 or args.workers < 0:
        raise ConfigError(
            "--choose and --report must be at least 2, --steps and --batch at least 1, --workers 0"
        )
    if not args.weights or not all(0 < w < 1 for w in args.weights):
        raise ConfigError(f"--weights must be within (0, 1), got {args.weights}")
    output_folder(args.out, "--out", "a run")
    return args.out


def _entries(
    args: Args,
) -> tuple[tuple[PolicyEntry, ...], tuple[tuple[PolicyEntry, ComposedBuilder], ...]]:
    """The policies alone, and the candidates."""
    from eval.trials.rollouts import PolicyEntry
    from robolearn.config import config_hash
    from robolearn.operations.builders import policy_builder
    from robolearn.training.run_directory import policy_hash

    builders = [policy_builder(run) for run in args.runs]
    hashes = [policy_hash(run) for run in args.runs]
    parts = tuple(
        PolicyEntry(f"{i}-{run.resolve().name}", digest, builder)
        for i, (run, digest, builder) in enumerate(zip(args.runs, hashes, builders, strict=True))
    )
    count = len(args.runs)
    choice = [(w, 1 - w) for w in args.weights] if count == 2 and args.operator != "and" else []
    candidates: list[tuple[PolicyEntry, ComposedBuilder]] = []
    for weights in choice or [(1 / count,) * count]:
        told = tuple(run.resolve() for run in args.runs)
        builder = ComposedBuilder(told, args.operator, weights, args.steps)
        digest = config_hash(hashes, args.operator, weights, args.steps)
        name = f"{args.operator}-{'-'.join(f'{w:.2f}' for w in weights)}"
        candidates.append((PolicyEntry(name, digest, builder), builder))
    return parts, tuple(candidates)


def _world(args: Args, suite: SuiteConfig) -> WorldEntry:
    from eval.trials.rollouts import WorldEntry
    from robolearn.instructions import require_understood
    from robolearn.operations.builders import env_builder
    from robolearn.spec import require_compatible
    from robolearn.training.run_directory import load_run

    builder = env_builder(args.world)
    env = builder()
    try:
        info = builder.info()
        if info.task != suite.task:
            raise ConfigError(
                f"the suite has the task '{suite.task}', '{args.world}' '{info.task}'"
            )
        for run in args.runs:
            space = load_run(run).spec.task_space
            require_compatible(space, env.spec)
            require_understood(space, (suite.instruction,))
    finally:
        env.close()
    return WorldEntry(info.name, info.hash, info.engine, builder, suite.instruction)


def _options(args: Args, suite: Any) -> Options:
    from eval.trials.rollouts import Options
    from robolearn.data.provenance import git_revision
    from robolearn.operations.code_hash import code_hash, deciding_libraries

    return Options(
        suite=suite.label,
        task=suite.config.task,
        max_steps=suite.config.max_steps,
        workers=args.workers,
        batch=args.batch,
        code=code_hash(),
        libraries=deciding_libraries(),
        commit=git_revision(),
    )


def _run(
    policies: Sequence[PolicyEntry],
    world: WorldEntry,
    conditions: Sequence[Condition],
    store: Any,
    options: Options,
    *,
    quiet: bool,
) -> Sequence[TrialRecord]:
    from eval.trials.rollouts import Progress, evaluate

    with progress("compose", len(policies) * len(conditions), quiet=quiet) as advance:

        def show(p: Progress) -> None:
            advance(p.added, p.policy)

        return evaluate(
            tuple(policies), (world,), {world.name: tuple(conditions)}, store, options, show
        )


def _means(records: Sequence[TrialRecord]) -> dict[str, float]:
    scores: dict[str, list[float]] = {}
    for record in records:
        scores.setdefault(record.policy, []).append(record.score)
    return {name: sum(values) / len(values) for name, values in scores.items()}


def _result(
    out: Path,
    args: Args,
    builder: ComposedBuilder,
    choosing: Mapping[str, float],
    best: str,
    chosen: str,
    records: Sequence[TrialRecord],
) -> Composed:
    from eval.statistics.intervals import paired_difference
    from robolearn.training.run_directory import write_json

    by_condition = {(r.policy, r.condition): r.score for r in records}
    shared = [c for p, c in by_condition if p == chosen]
    gain = paired_difference(
        [by_condition[best, c] for c in shared],
        [by_condition[chosen, c] for c in shared],
        bounds=(-1.0, 1.0),
    )
    digest = write_composed(out, builder)
    result = Composed(
        run=str(out),
        policy_hash=digest,
        operator=args.operator,
        weights=builder.weights,
        choosing=choosing,
        best_part=best,
        reported=_means(records),
        gain=gain.value,
        gain_low=gain.low,
        gain_high=gain.high,
        pairs=gain.n,
    )
    write_json(out / "composition.json", dataclasses.asdict(result))
    return result


def write_composed(out: Path, builder: ComposedBuilder) -> str:
    """A run directory with its parts inside; the hash of the policy."""
    import torch

    from policies.imitation.compose import ComposeConfig
    from robolearn.config import to_dict
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
    write_json(out / PROVENANCE, {"complete": True, "parts": hashes})
    seal_run(out)
    return policy_hash(out)


def _show(result: Composed) -> None:
    for name, value in sorted(result.choosing.items(), key=lambda item: -item[1]):
        say(f"  {name}: {value:.3f} on the conditions to choose on")
    say(f"chosen: {result.operator} {result.weights}; best single policy: {result.best_part}")
    for name, value in result.reported.items():
        say(f"  {name}: {value:.3f} on the reported conditions")
    say(
        f"gain over {result.best_part}: {result.gain:+.3f} [{result.gain_low:+.3f},"
        f" {result.gain_high:+.3f}], {result.pairs} pairs"
    )
    say(f"run {result.run} policy {result.policy_hash}")
