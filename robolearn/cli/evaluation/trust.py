"""``robolearn trust`` says how far a simulator may be trusted to order policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from robolearn.cli.evaluation.csv_tables import share
from robolearn.cli.shared.output_path import output_file
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.cli.shared.without_use import refuse_without_use
from robolearn.errors import ConfigError
from robolearn.operations.trust.options import Beside


@dataclass(frozen=True, slots=True)
class Args:
    """Say how far a simulator may be trusted to order policies: agreement of simulated and real
    rates with their noise, and a verdict per task (docs/trust.md).
    """

    # CSV file, a line per policy and task: task, policy, real_successes, real_trials,
    # sim_successes, sim_trials; or real_score, sim_score (shares in [0, 1]) where only rates are
    # known.
    table: Path | None = None
    # Results folders of real trials (robolearn deploy), instead of a table; they pair up with the
    # simulated ones by policy and condition.
    real: tuple[Path, ...] = ()
    # Results folders of simulated trials of the same policies and suites (robolearn evaluate).
    sim: tuple[Path, ...] = ()
    # The world that stands for reality, and the one that is judged, where a task has several; of
    # several tasks one each.
    real_world: tuple[str, ...] = ()
    sim_world: tuple[str, ...] = ()
    # What else stands on the page.
    beside: Annotated[Beside, tyro.conf.arg(name="")] = field(default_factory=Beside)
    # What counts of trials.
    by: Literal["success", "score"] = "success"
    # Confidence level of the intervals that are shown; the verdict's is always 0.95.
    level: float = 0.95
    # Of what is drawn anew; the same seed gives the same report.
    seed: int = 0
    # Write a self-contained page, too.
    html: Path | None = None
    # Write a Markdown page, too.
    markdown: Path | None = None
    # Print one JSON document: a list with one object per task.
    json: bool = False


def main(argv: list[str]) -> int:
    """Read, judge, print."""
    args = parse(Args, argv, "trust", Args.__doc__ or "")
    from_trials = bool(args.real or args.sim)
    if (args.table is None) != from_trials or bool(args.real) != bool(args.sim):
        raise ConfigError("give either --table FILE, or both --real FOLDER and --sim FOLDER")
    if args.beside != Beside() and not from_trials:
        raise ConfigError(
            "--causes, --rankings, --changed, --trajectories and --against belong to trials: give"
            " --real FOLDER and --sim FOLDER, too"
        )
    if not from_trials:
        what = "of trials: with --real FOLDER and --sim FOLDER"
        refuse_without_use(args, ("real_world", "sim_world", "by"), what)
    if args.beside.against:
        folders = [{f.resolve() for f in side} for side in (args.beside.against, args.sim)]
        if folders[0] == folders[1] and args.beside.against_world in ("", *args.sim_world):
            raise ConfigError(
                "--against is what --sim is: a simulator is compared with another one; give that"
                " one's folder, or its name with --against-world"
            )
    if args.beside.against_world and not args.beside.against:
        raise ConfigError("--against-world is of --against FOLDER, which is missing")
    if args.beside.trajectories_world and args.beside.trajectories is None:
        raise ConfigError("--trajectories-world is of --trajectories STORE, which is missing")
    if args.html is not None:
        output_file(args.html, "--html", (".html", ".htm"))
    if args.markdown is not None:
        output_file(args.markdown, "--markdown", (".md",))
    level = share(args.level, "--level")
    if args.table is not None:
        from robolearn.operations.trust.table import trust_of_table

        trust = trust_of_table(args.table, level=level, seed=args.seed)
    else:
        from robolearn.operations.trust.trials import trust_of_trials

        trust = trust_of_trials(
            args.real,
            args.sim,
            real_world=args.real_world,
            sim_world=args.sim_world,
            beside=args.beside,
            by=args.by,
            level=level,
            seed=args.seed,
        )
    if args.html is not None:
        trust.write_page(args.html)
    if args.markdown is not None:
        trust.write_markdown(args.markdown)
    if args.json:
        print_json(trust.document)
        return 0
    for line in trust.lines:
        say(line)
    for path in (args.html, args.markdown):
        if path is not None:
            say(f"written: {path}")
    return 0
