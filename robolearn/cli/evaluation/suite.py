"""``robolearn suite VERB`` draws and checks suites, and plans what they shall show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.cli.shared.verbs import Verbs, run_verb


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
    # Runs: one half of the conditions are starts that all of them were trained on, the other half
    # such that none was, marked; the report then has a table of both and the gap between them.
    unseen: tuple[Path, ...] = ()
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


@dataclass(frozen=True, slots=True)
class PlanArgs:
    """Write down before the first trial what is compared, by which rule, over how many starts."""

    # The suite.
    suite: Annotated[Path, tyro.conf.Positional]
    # The file to write; 'robolearn evaluate --plan FILE' keeps to it.
    out: Path
    # Worlds that it is about; default: the suite's own.
    worlds: tuple[str, ...] = ()
    # Policies that are compared (folders of their runs); default: whichever are tried under it.
    policies: tuple[str, ...] = ()
    # Training runs of one method: NAME=POLICY,POLICY,... (may be given several times).
    group: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    # What decides.
    by: Literal["success", "score"] = "success"
    # fixed: over exactly --n-max starts; sequential: one may look and stop at any time.
    rule: Literal["fixed", "sequential"] = "fixed"
    # Starts per policy and world; default: the suite's list (fixed), no maximum (sequential).
    n_max: int | None = None
    # Probability of calling equal policies different, over all pairs, worlds and measures.
    alpha: float = 0.05
    # Largest difference in the measure that does not matter.
    margin: float | None = None
    # What is asked of the margin.
    question: Literal["equivalence", "non-inferiority"] = "equivalence"
    # Why, and what else should be known, in words.
    note: str = ""
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Dispatch to a verb."""
    verbs: Verbs = {
        "draw": (DrawArgs, _draw),
        "check": (CheckArgs, _check),
        "plan": (PlanArgs, _plan),
    }
    return run_verb("suite", "Suites: named, hashed lists of starting conditions.", verbs, argv)


def _draw(argv: list[str]) -> int:
    args = parse(DrawArgs, argv, "suite draw", DrawArgs.__doc__ or "")
    from robolearn.cli.shared.output_path import output_file
    from robolearn.operations.suites import draw_suite

    output_file(args.out, "--out", (".yaml", ".yml"))
    suite = draw_suite(
        args.world,
        args.out,
        n=args.n,
        subset=args.subset,
        seed=args.seed,
        name=args.name,
        protocol=args.protocol,
        unseen=args.unseen,
    )
    n, seen = len(suite.config.conditions), suite.seen
    if args.json:
        document = {"suite": suite.label, "file": str(args.out), "conditions": n}
        print_json(document | ({"seen": sum(seen.values())} if seen else {}))
        return 0
    marks = f" ({sum(seen.values())} of them trained on)" if seen else ""
    say(f"{suite.label}: {n} conditions{marks}, each possible in {args.world}: {args.out}")
    return 0


def _plan(argv: list[str]) -> int:
    args = parse(PlanArgs, argv, "suite plan", PlanArgs.__doc__ or "")
    from eval.plain import plain_values
    from eval.rule import Rule
    from robolearn.cli.evaluation.compare import group_of
    from robolearn.cli.shared.output_path import output_file
    from robolearn.operations.suites import plan_suite

    output_file(args.out, "--out", (".yaml", ".yml"))
    found = plan_suite(
        args.suite,
        args.out,
        Rule(
            by=args.by,
            kind=args.rule,
            alpha=args.alpha,
            n_max=args.n_max,
            margin=args.margin,
            question=args.question,
        ),
        worlds=args.worlds,
        policies=args.policies,
        groups=dict(group_of(g) for g in args.group),
        note=args.note,
    )
    if args.json:
        print_json({"plan": found.hash, "file": str(args.out), **plain_values(found.plan)})
        return 0
    say(f"plan {found.hash}, written {found.plan.written}: {args.out}")
    say(f"  suite {found.plan.suite}: {found.plan.words()}")
    say(f"  robolearn evaluate RUN RUN --suite {args.suite} --plan {args.out} --out RESULTS")
    return 0


def _check(argv: list[str]) -> int:
    args = parse(CheckArgs, argv, "suite check", CheckArgs.__doc__ or "")
    from robolearn.operations.suites import check_suite

    found = check_suite(args.suite, args.worlds)
    suite, config = found.suite, found.suite.config
    if args.json:
        print_json(
            {
                "suite": suite.label,
                "task": config.task,
                "conditions": len(config.conditions),
                "variants": list(found.variants),
                "instructions": dict(found.instructions),
                "several_goals": found.several_goals,
                "possible_in": list(found.possible_in),
            }
        )
        return 0
    say(f"{suite.label}: task {config.task}, {len(config.conditions)} conditions")
    say(f"  protocol: {config.protocol}")
    say(
        f"  variants of every world (itself included): {len(found.variants)}, instructions"
        f" in other words: {len(config.instructions)}, conditions with several goals:"
        f" {found.several_goals}"
    )
    for world in found.possible_in:
        say(f"  every condition is possible in {world}")
    return 0
