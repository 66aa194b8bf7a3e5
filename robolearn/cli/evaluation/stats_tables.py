"""``robolearn stats sequence | blocks | preferences | profile``: what is read from a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robolearn.cli.evaluation.csv_tables import number, read_lines, read_numbers, share
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError


@dataclass(frozen=True)
class Sequential:
    """A mean of outcomes in [0, 1] that holds whenever one stops: one outcome per row, in order."""

    # CSV file with one column.
    table: Annotated[Path, tyro.conf.Positional]
    # Confidence level, over all times at once.
    level: float = 0.95
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Blocks:
    """Several policies looked at after every block: a column each, a row per condition."""

    # CSV file; its first line names the policies.
    table: Annotated[Path, tyro.conf.Positional]
    # How many looks were planned; the table holds these blocks, or the first of them.
    blocks: int
    # Conditions per block.
    size: int
    # Probability of calling equal policies different, over all pairs and looks.
    alpha: float = 0.05
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Preferences:
    """Ratings from judgements of pairs: first, second, and 1, 0.5 (tie) or 0 for the first."""

    # CSV file with these three columns.
    table: Annotated[Path, tyro.conf.Positional]
    # Confidence level.
    level: float = 0.95
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Profile:
    """Share of runs and tasks whose score is above each threshold: a column per task, a row per
    training run.
    """

    # CSV file; its first line may name the tasks.
    table: Annotated[Path, tyro.conf.Positional]
    # Thresholds.
    at: tuple[float, ...] = (0.1, 0.25, 0.5, 0.75, 0.9)
    # Confidence level, at each threshold.
    level: float = 0.95
    # Print one JSON document.
    json: bool = False


def sequence(argv: list[str]) -> int:
    """The last interval of the betting sequence."""
    args = parse(Sequential, argv, "stats sequence", Sequential.__doc__ or "")
    from eval.plain import plain_values
    from eval.statistics.sequential import betting_sequence

    _, rows = read_numbers(args.table, columns=1)
    found = betting_sequence([row[0] for row in rows], share(args.level, "--level")).last
    if args.json:
        print_json(plain_values(found))
    else:
        say(f"mean {found.text(4)} after {found.n} outcomes, valid whenever one stops")
    return 0


def blocks(argv: list[str]) -> int:
    """Decisions of the group-sequential test, block by block."""
    args = parse(Blocks, argv, "stats blocks", Blocks.__doc__ or "")
    from eval.plain import plain_values
    from eval.statistics.group_sequential import GroupSequential

    names, rows = read_numbers(args.table)
    if not names:
        raise ConfigError(f"{args.table}: the first line must name the policies")
    if args.size < 1 or len(rows) % args.size or len(rows) > args.size * args.blocks:
        raise ConfigError(
            f"{args.table}: expected at most {args.blocks} whole blocks of {args.size} rows, got"
            f" {len(rows)} rows"
        )
    test = GroupSequential(names, args.blocks, alpha=share(args.alpha, "--alpha"))
    for start in range(0, len(rows), args.size):
        if not test.finished:
            block = rows[start : start + args.size]
            test.add([list(column) for column in zip(*block, strict=True)])
    if args.json:
        print_json(plain_values({"decisions": test.decisions, "undecided": test.undecided}))
        return 0
    for d in test.decisions:
        say(f"{d.better} is better than {d.worse} (block {d.block})")
    for a, b in test.undecided:
        say(f"{a} and {b} are not separated, which does not make them equal")
    return 0


def preferences(argv: list[str]) -> int:
    """Bradley-Terry ratings with ties."""
    args = parse(Preferences, argv, "stats preferences", Preferences.__doc__ or "")
    from eval.plain import plain_values
    from eval.statistics.preferences import Preference, bradley_terry

    judged: list[Preference] = []
    for line, row in read_lines(args.table):
        if len(row) != 3 or (number(row[2]) is None and line > 1):
            raise ConfigError(f"{args.table}:{line}: expected first,second,score, got {row}")
        score = number(row[2])
        if score is not None:
            judged.append(Preference(row[0].strip(), row[1].strip(), score))
    found = bradley_terry(judged, share(args.level, "--level"))
    if args.json:
        print_json(plain_values(found))
        return 0
    for name, theta in sorted(found.theta.items(), key=lambda item: -item[1].value):
        say(f"{name}: {theta.text(3)}, rating {found.rating(name)}")
    if not found.connected:
        say("some were never compared, not even over others: their ratings say nothing together")
    return 0


def profile(argv: list[str]) -> int:
    """Shares above thresholds."""
    args = parse(Profile, argv, "stats profile", Profile.__doc__ or "")
    from eval.plain import plain_values
    from eval.statistics.aggregate import performance_profile

    _, rows = read_numbers(args.table)
    found = performance_profile(rows, args.at, share(args.level, "--level"))
    if args.json:
        print_json(plain_values(found))
        return 0
    for line in zip(found.tau, found.value, found.low, found.high, strict=True):
        say("above {:g}: {:.3f} [{:.3f}, {:.3f}]".format(*line))
    return 0
