"""``robolearn suite VERB``: draw, check and show suites of conditions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.cli.shared.verbs import Verbs, run_verb
from robolearn.errors import ConfigError, RobolearnError

if TYPE_CHECKING:
    from eval.trials.suites import Suite


@dataclass(frozen=True, slots=True)
class DrawArgs:
    """Draw a suite of starts from a world's reset distribution."""

    # A world: packaged scene, scene folder, gym_pusht, robosuite/..., ogbench/... .
    world: Annotated[str, tyro.conf.Positional]
    # The file to write.
    out: Path
    # How many conditions.
    n: int = 100
    # How many of them other worlds are given; default: half.
    subset: int | None = None
    # Every condition follows from this number alone.
    seed: int = 20261121
    # Name of the suite; default: the file's.
    name: str = ""
    # The rule by which results are scored, in words.
    protocol: str = ""
    # Print one JSON document and nothing else.
    json: bool = False


@dataclass(frozen=True, slots=True)
class CheckArgs:
    """Check a suite's file, and with --worlds place every condition in these worlds."""

    # The suite.
    suite: Annotated[Path, tyro.conf.Positional]
    # Worlds in which every condition must be possible.
    worlds: tuple[str, ...] = ()
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Dispatch to a verb."""
    verbs: Verbs = {"draw": (DrawArgs, _draw), "check": (CheckArgs, _check)}
    return run_verb("suite", "Suites: named, hashed lists of starting conditions.", verbs, argv)


def _draw(argv: list[str]) -> int:
    args = parse(DrawArgs, argv, "suite draw", DrawArgs.__doc__ or "")
    from eval.trials.suites import ConditionConfig, SuiteConfig, make_suite, suite_yaml
    from robolearn.cli.shared.output_path import output_file
    from robolearn.operations.builders import env_builder
    from robolearn.operations.suites import TaskStarts
    from sim.tasks.starts import draw_start
    from sim.worlds import make_world

    if args.n < 1:
        raise ConfigError(f"--n must be at least 1, got {args.n}")
    output_file(args.out, "--out", (".yaml", ".yml"))
    if args.out.exists():
        raise ConfigError(f"--out: '{args.out}' is there already; results refer to its hash")
    env = make_world(env_builder(args.world).world)
    try:
        starts = [draw_start(env.task, env.sample_condition, args.seed, i) for i in range(args.n)]
        config = SuiteConfig(
            name=args.name or args.out.stem,
            task=env.task,
            max_steps=env.max_steps,
            seed=args.seed,
            source_world=args.world,
            subset=args.subset or max(1, args.n // 2),
            protocol=args.protocol
            or f"score = highest progress; success as judged by the task; {env.max_steps} control"
            f" steps at {env.spec.rate_hz:g} Hz ({env.max_steps / env.spec.rate_hz:g} s)",
            conditions=tuple(ConditionConfig(c.id, c.seed, dict(c.poses)) for c in starts),
        )
    finally:
        env.close()
    suite = make_suite(config, starts=TaskStarts.of)
    _place(suite, args.world)
    args.out.write_text(suite_yaml(config), encoding="utf-8")
    if args.json:
        print_json({"suite": suite.label, "file": str(args.out), "conditions": args.n})
    else:
        say(f"{suite.label}: {args.n} conditions, each possible in {args.world}: {args.out}")
    return 0


def _check(argv: list[str]) -> int:
    args = parse(CheckArgs, argv, "suite check", CheckArgs.__doc__ or "")
    from robolearn.operations.suites import open_suite

    suite = open_suite(args.suite)
    for world in args.worlds:
        _place(suite, world)
    config = suite.config
    document: dict[str, Any] = {
        "suite": suite.label,
        "task": config.task,
        "conditions": len(config.conditions),
        "variants": list(config.perturbations.variants()),
        "instructions": {"": config.instruction, **config.instructions},
        "several_goals": sum(any("#" in k for k in c.poses) for c in config.conditions),
        "possible_in": list(args.worlds),
    }
    if args.json:
        print_json(document)
        return 0
    say(f"{suite.label}: task {config.task}, {len(config.conditions)} conditions")
    say(f"  protocol: {config.protocol}")
    say(
        f"  variants of every world (itself included): {len(document['variants'])}, instructions"
        f" in other words: {len(config.instructions)}, conditions with several goals:"
        f" {document['several_goals']}"
    )
    for world in args.worlds:
        say(f"  every condition is possible in {world}")
    return 0


def _place(suite: Suite, world: str) -> None:
    """Reset ``world`` to every condition; the first that it refuses is named."""
    import numpy as np

    from robolearn.operations.builders import env_builder
    from sim.worlds import make_world

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
