"""``robolearn compare RESULTS ...`` puts policies side by side and decides by a declared rule."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.cli.shared.without_use import refuse_without_use
from robolearn.errors import ConfigError

# What preferences have no use for.
_OF_RESULTS = ("by", "rule", "n_max", "margin", "question", "group", "common", "mixed", "out")


@dataclass(frozen=True, slots=True)
class Args:
    """Compare policies over the same conditions: effects, letters, and what can be concluded."""

    # Results folders of 'robolearn evaluate' (or of deployments), one or more.
    results: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    # Instead of results: a folder of 'robolearn trial --ab', whose preferences rank the policies
    # (with intervals at 1 - alpha; other options of results are refused).
    preferences: Path | None = None
    # What decides; this and what follows by default as the plan says under which the trials were
    # run (robolearn suite plan). Without a plan: success.
    by: Literal["success", "score"] | None = None
    # fixed: the number of trials was chosen beforehand; sequential: one looked while trying.
    # Without a plan: fixed.
    rule: Literal["fixed", "sequential"] | None = None
    # Probability of calling equal policies different, over all pairs, worlds and measures. Without
    # a plan: 0.05.
    alpha: float | None = None
    # Largest number of conditions that was planned; more are refused.
    n_max: int | None = None
    # Largest difference in the measure that does not matter, declared before the trials.
    margin: float | None = None
    # What is asked of the margin. Without a plan: equivalence.
    question: Literal["equivalence", "non-inferiority"] | None = None
    # Training runs of one method: NAME=POLICY,POLICY,... (may be given several times).
    group: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    # Compare on the conditions that all policies have, instead of refusing different ones.
    common: bool = False
    # Compare trials of different code, libraries or batch sizes, too, and say so.
    mixed: bool = False
    # Write this Markdown file, too.
    out: Path | None = None
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Read the trials, compare, print."""
    args = parse(Args, argv, "compare", Args.__doc__ or "")
    if args.preferences is not None:
        return _by_preferences(args, args.preferences)
    from eval.plain import plain_values
    from eval.report.lines import alone_lines, comparison_lines, comparison_markdown
    from robolearn.cli.shared.output_path import output_file
    from robolearn.operations.compare import compare

    if args.out is not None:
        output_file(args.out, "--out")
    given = {
        "by": args.by,
        "kind": args.rule,
        "alpha": args.alpha,
        "n_max": args.n_max,
        "margin": args.margin,
        "question": args.question,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    comparison = compare(
        args.results,
        lambda declared: dataclasses.replace(declared, **changes),
        groups=dict(group_of(g) for g in args.group),
        common=args.common,
        mixed=args.mixed,
    )
    rule = comparison.rule
    if args.out is not None:
        args.out.write_text(comparison_markdown(comparison), encoding="utf-8")
    if args.json:
        print_json(
            {
                "rule": {**plain_values(rule), "words": rule.words()},
                "worlds": plain_values(comparison.worlds),
                "standings": plain_values(comparison.standings),
                "not_compared": alone_lines(comparison),
            }
        )
        return 0
    for line in comparison_lines(comparison):
        say(line)
    return 0


def _by_preferences(args: Args, folder: Path) -> int:
    if args.results:
        raise ConfigError("--preferences stands for itself: leave out the results folders")
    refuse_without_use(args, _OF_RESULTS, "of results folders; leave out with --preferences")
    from eval.plain import plain_values
    from robolearn.cli.evaluation.csv_tables import share
    from robolearn.operations.trial.preferences import rank_by_preferences

    level = 0.95 if args.alpha is None else 1.0 - share(args.alpha, "--alpha")
    ranking = rank_by_preferences(folder, level)
    if args.json:
        print_json(plain_values(ranking))
        return 0
    for line in ranking.lines:
        say(line)
    return 0


def group_of(text: str) -> tuple[str, tuple[str, ...]]:
    """``NAME=POLICY,POLICY`` as its parts."""
    name, equals, members = text.partition("=")
    names = tuple(m for m in members.split(",") if m)
    if not equals or not name or len(names) < 2:
        raise ConfigError(f"--group: expected NAME=POLICY,POLICY,..., got '{text}'")
    return name, names
