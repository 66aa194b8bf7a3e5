"""``robolearn stats sequence | mixed | blocks | preferences | profile`` computes from tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robolearn.cli.evaluation.csv_tables import number, read_lines, read_numbers, share
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError


@dataclass(frozen=True)
class Sequential:
    """What holds whenever one stops: a mean (one outcome per row, in order), or two policies."""

    # CSV file of outcomes in [0, 1] with one column, or with two: those of a and b under one
    # condition, which are compared by bets on the rows that differ.
    table: Annotated[Path, tyro.conf.Positional]
    # The two columns are successes under conditions of their own, so many trials each planned at
    # most: the sequential Barnard test, which then decides earlier.
    independent: int | None = None
    # Confidence level, over all times at once; decisions err with 1 - level.
    level: float = 0.95
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Mixed:
    """Several rollouts per condition, of one policy or more: means over conditions, what varies
    between conditions and between rollouts, and which policy is better.
    """

    # CSV file, a row per rollout; its first line names the columns: condition, outcome (in [0, 1])
    # and, of several policies, policy.
    table: Annotated[Path, tyro.conf.Positional]
    # Probability of calling equal policies different, over all pairs.
    alpha: float = 0.05
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
    """The last interval of the betting sequence, or what two policies came to."""
    args = parse(Sequential, argv, "stats sequence", Sequential.__doc__ or "")
    from eval.plain import plain_values
    from eval.statistics.betting import paired_sequence
    from eval.statistics.sequential import SequentialBarnard, betting_sequence

    level = share(args.level, "--level")
    _, rows = read_numbers(args.table)
    columns = [list(column) for column in zip(*rows, strict=True)]
    if len(columns) > 2 or (args.independent is not None and len(columns) != 2):
        raise ConfigError(
            f"{args.table}: expected one column, or those of two policies, got {len(columns)}"
        )
    if len(columns) == 1:
        mean = betting_sequence(columns[0], level).last
        document, line = (
            mean,
            f"mean {mean.text(4)} after {mean.n} outcomes, valid whenever one stops",
        )
    elif args.independent is None:
        bets = paired_sequence(*columns, alpha=1.0 - level)
        document = bets
        line = f"b - a: {bets.estimate.text(4)}; {_settled(bets.decision, bets.trials)}"
    else:
        tried = SequentialBarnard(args.independent, 1.0 - level).run(*columns)
        document, line = tried, _settled(tried.decision, tried.trials)
    if args.json:
        print_json(plain_values(document))
    else:
        say(line)
    return 0


def _settled(decision: str, rows: int) -> str:
    if decision == "undecided":
        return f"a and b are not separated after {rows} rows, which does not make them equal"
    return f"{decision} is better, settled after {rows} rows"


def mixed(argv: list[str]) -> int:
    """Means over conditions, what varies, and pairs of policies."""
    args = parse(Mixed, argv, "stats mixed", Mixed.__doc__ or "")
    from eval.plain import plain_values
    from eval.statistics.nested import mixed_model

    found = mixed_model(_rollouts(args.table), share(args.alpha, "--alpha"))
    if args.json:
        print_json(plain_values(found))
        return 0
    say(f"{found.conditions} conditions, drawn anew in the next experiment")
    for name, mean in found.means.items():
        say(f"{name}: {mean.estimate.text(4)} conditions, {mean.trials} rollouts")
    for what, variance in (
        ("of conditions, alike for all", found.of_conditions),
        ("of policies on conditions", found.of_policies_on_conditions),
        ("of rollouts of one condition", found.of_rollouts),
    ):
        if not math.isnan(variance):
            say(f"standard deviation {what}: {math.sqrt(variance):.4f}")
    for e in found.effects:
        verdict = f"{e.better} is better" if e.better else "not separated, which is not equality"
        say(f"{e.b} - {e.a}: {e.difference.text(4)}, p = {e.p:.4f}: {verdict}")
    return 0


def _rollouts(path: Path) -> dict[str, dict[str, list[float]]]:
    """Outcomes by policy and condition; the first line names the columns, in any order."""
    lines = read_lines(path)
    names = [cell.strip() for cell in lines[0][1]] if lines else []
    if sorted(names) not in (["condition", "outcome"], ["condition", "outcome", "policy"]):
        raise ConfigError(
            f"{path}: expected a first line of the names condition, outcome and, of several"
            f" policies, policy; got {','.join(names)!r}"
        )
    found: dict[str, dict[str, list[float]]] = {}
    for line, row in lines[1:]:
        cells = dict(zip(names, (cell.strip() for cell in row), strict=False))
        value = number(cells.get("outcome", ""))
        if (
            len(row) != len(names)
            or not all(cells.values())
            or value is None
            or not 0 <= value <= 1
        ):
            raise ConfigError(
                f"{path}:{line}: expected {','.join(names)} with an outcome in [0, 1], got"
                f" {','.join(row)!r}"
            )
        of_policy = found.setdefault(cells.get("policy", "mean"), {})
        of_policy.setdefault(cells["condition"], []).append(value)
    if not found:
        raise ConfigError(f"{path} has no outcomes")
    return found


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
    if not all(value in (0.0, 1.0) for row in rows for value in row):
        say(
            "assumes that differences of equally good policies are symmetric about 0: where one"
            " fails rarely but badly, compare pairs by 'stats sequence' at alpha over their number"
        )
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
        print_json({**plain_values(found), "identified": found.identified})
        return 0
    if not found.identified:
        say(found.note)
        return 0
    for name, theta in sorted(found.theta.items(), key=lambda item: -item[1].value):
        say(f"{name}: {theta.text(3)}, rating {found.rating(name)}")
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
