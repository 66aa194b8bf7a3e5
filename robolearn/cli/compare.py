"""``robolearn compare RESULTS ...``: policies side by side, decided by a declared rule."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError, DataError

if TYPE_CHECKING:
    from eval.compare import Effect, Rule, WorldComparison
    from eval.statistics.intervals import Estimate


@dataclass(frozen=True, slots=True)
class Args:
    """Compare policies over the same conditions: effects, letters, and what can be concluded."""

    # Results folders of 'robolearn evaluate' (or of deployments), one or more.
    results: Annotated[tuple[Path, ...], tyro.conf.Positional]
    # What decides.
    by: Literal["success", "score"] = "success"
    # fixed: the number of trials was chosen beforehand; sequential: one looked while trying.
    rule: Literal["fixed", "sequential"] = "fixed"
    # Probability of calling equal policies different, over all pairs of a world.
    alpha: float = 0.05
    # Largest number of conditions that was planned (sequential rule, by success).
    n_max: int | None = None
    # Training runs of one method: NAME=POLICY,POLICY,... (may be given several times).
    group: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    # Compare on the conditions that all policies have, instead of refusing different ones.
    common: bool = False
    # Write this Markdown file, too.
    out: Path | None = None
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Read the trials, compare, print."""
    args = parse(Args, argv, "compare", Args.__doc__ or "")
    from eval.compare import Rule, compare_policies
    from eval.trials.table import read_trials
    from robolearn.cli.shared.output_path import output_file

    if not args.results:
        raise ConfigError("expected one or more results folders")
    if args.out is not None:
        output_file(args.out, "--out")
    by_folder = {folder: read_trials(folder) for folder in dict.fromkeys(args.results)}
    for folder, found in by_folder.items():
        if not found:
            raise DataError(f"'{folder}' has no trials yet; finish its 'robolearn evaluate' first")
    records = [r for found in by_folder.values() for r in found]
    rule = Rule(by=args.by, kind=args.rule, alpha=args.alpha, n_max=args.n_max)
    worlds = compare_policies(
        records, rule, groups=dict(group_of(g) for g in args.group), common=args.common
    )
    alone = sorted({(r.env, r.policy) for r in records if r.env not in {w.world for w in worlds}})
    left_out = [f"not compared: {policy} is the only one in {world}" for world, policy in alone]
    text = [f"rule: {rule.words()}", *(line for w in worlds for line in _lines(w, rule)), *left_out]
    if args.out is not None:
        page = _markdown(rule, worlds) + "".join(f"\n* {line}\n" for line in left_out)
        args.out.write_text(page, encoding="utf-8")
    if args.json:
        print_json({"rule": dataclasses.asdict(rule) | {"words": rule.words()},
                    "worlds": [_plain(w) for w in worlds], "not_compared": left_out})  # fmt: skip
        return 0
    for line in text:
        say(line)
    return 0


def group_of(text: str) -> tuple[str, tuple[str, ...]]:
    """``NAME=POLICY,POLICY`` as its parts."""
    name, equals, members = text.partition("=")
    names = tuple(m for m in members.split(",") if m)
    if not equals or not name or len(names) < 2:
        raise ConfigError(f"--group: expected NAME=POLICY,POLICY,..., got '{text}'")
    return name, names


def _p(effect: Effect, rule: Rule) -> str:
    """Adjusted; the sequential test of success has only decisions."""
    if rule.kind == "sequential" and rule.by == "success":
        return "decided" if effect.decision else "undecided"
    return "p < 0.0001" if effect.p < 0.0001 else f"p = {effect.p:.4f}"


def _lines(w: WorldComparison, rule: Rule) -> list[str]:
    width = max(len(e.name) for e in w.entries) + 2
    lines = ["", f"{w.world}, suite {w.suite}"]
    lines.append(f"  {'':<{width}}{'':<6}{'success':<26}score")
    for e in w.entries:
        runs = f", {len(e.runs)} training runs" if len(e.runs) > 1 else ""
        lines.append(
            f"  {e.name:<{width}}{e.letters:<6}{_interval(e.success):<26}{_interval(e.score)}"
            f"  ({e.n} trials{runs})"
        )
        if e.spread is not None:
            lines.append(
                f"  {'':<{width}}      standard deviation of score between runs"
                f" {e.spread.between:.3f}, between episodes of a run {e.spread.within:.3f}"
            )
    lines.append("  policies that share a letter are not separated")
    for f in w.effects:
        lines.append(
            f"  {f.b} - {f.a}: success {_interval(f.success)}, score {_interval(f.score)},"
            f" {_p(f, rule)}"
        )
        lines.append(f"    {f.words}.")
    return lines + [f"  note: {n}" for n in w.notes]


def _markdown(rule: Rule, worlds: tuple[WorldComparison, ...]) -> str:
    lines = ["# Comparison", "", f"Rule: {rule.words()}."]
    for w in worlds:
        lines += ["", f"## {w.world}", "", f"Suite `{w.suite}`.", ""]
        lines += ["| policy | letters | success | score | trials |", "|---|---|---|---|---|"]
        lines += [
            f"| {e.name} | {e.letters} | {_interval(e.success)} | {_interval(e.score)} | {e.n} |"
            for e in w.entries
        ]
        lines += ["", "| pair | success | score | adjusted | conclusion |"]
        lines += ["|---|---|---|---|---|"]
        lines += [
            f"| {f.b} - {f.a} | {_interval(f.success)} | {_interval(f.score)} | {_p(f, rule)}"
            f" | {f.words} |"
            for f in w.effects
        ]
        lines += ["", *(f"* {n}" for n in w.notes)]
    return "\n".join(lines) + "\n"


def _interval(e: Estimate) -> str:
    if not math.isfinite(e.low):
        return f"{e.value:.3f} [unknown: one run]"
    return f"{e.value:.3f} [{e.low:.3f}, {e.high:.3f}]"


def _plain(world: WorldComparison) -> dict[str, Any]:
    """As JSON values; infinite bounds become null."""
    text = json.dumps(dataclasses.asdict(world))
    return json.loads(text, parse_constant=lambda _: None)
