"""``robolearn stats``: intervals, comparisons and plans for people with a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.cli.shared.verbs import run_verb
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from eval.statistics.intervals import Estimate


@dataclass(frozen=True)
class Interval:
    """Intervals of a success rate, for example 14/50."""

    # Successes and trials: K/N.
    counts: tyro.conf.Positional[str]
    # Confidence level.
    level: float = 0.95
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Compare:
    """Compare two success rates, for example 14/50 40/50, or pairs from a file."""

    # First policy: K/N.
    a: Annotated[str | None, tyro.conf.Positional] = None
    # Second policy: K/N.
    b: Annotated[str | None, tyro.conf.Positional] = None
    # CSV file with one row per condition: the outcomes of a and b (0/1, or progress in [0, 1]).
    paired: Path | None = None
    # Confidence level; tests decide at 1 - level.
    level: float = 0.95
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Plan:
    """How many trials tell two success rates apart."""

    # Success rate expected of the first policy.
    p: float
    # Difference worth finding; the second policy has p + delta (p - delta if that exceeds 1).
    delta: float
    # Probability of finding it.
    power: float = 0.8
    # Probability of finding a difference where there is none.
    alpha: float = 0.05
    # Plan for paired conditions; the successes of the two correlate by this much.
    correlation: float | None = None
    # Print one JSON document.
    json: bool = False


def main(argv: list[str]) -> int:
    """Run one verb; returns the exit code."""
    return run_verb("stats", "Statistics of success rates.", VERBS, argv)


def _interval(argv: list[str]) -> int:
    args = parse(Interval, argv, "stats interval", Interval.__doc__ or "")
    from eval.statistics.intervals import beta_posterior, clopper_pearson, jeffreys, wilson

    k, n = _counts(args.counts)
    found = [f(k, n, _level(args.level)) for f in (clopper_pearson, wilson, jeffreys)]
    found.append(beta_posterior(k, n, args.level, method="Beta posterior, uniform prior"))
    if args.json:
        print_json({"successes": k, "trials": n, "rate": k / n,
                    "level": args.level, "intervals": [_estimate(e) for e in found]})  # fmt: skip
        return 0
    say(f"{k} of {n}: {k / n:.4f}")
    for e in found:
        note = "  exact: covers at least its level" if e.method == "Clopper-Pearson" else ""
        say(f"  {e.method:<30} [{e.low:.4f}, {e.high:.4f}]{note}")
    return 0


def _compare(argv: list[str]) -> int:
    args = parse(Compare, argv, "stats compare", Compare.__doc__ or "")
    level = _level(args.level)
    if args.paired is not None:
        if args.a is not None or args.b is not None:
            raise ConfigError("give either K/N K/N or --paired FILE, not both")
        document = _paired(args.paired, level)
    elif args.a is None or args.b is None:
        raise ConfigError("expected two rates K/N K/N, or --paired FILE")
    else:
        document = _unpaired(_counts(args.a), _counts(args.b), level)
    lines = document.pop("lines")
    if args.json:
        print_json(document)
        return 0
    for line in lines:
        say(line)
    return 0


def _unpaired(a: tuple[int, int], b: tuple[int, int], level: float) -> dict[str, Any]:
    from eval.statistics.exact_tests import barnard, boschloo, fisher
    from eval.statistics.intervals import (
        clopper_pearson,
        newcombe,
        probability_better,
        wilson,
    )

    difference = newcombe(*b, *a, level)
    p = {"Boschloo": boschloo(*a, *b), "Barnard": barnard(*a, *b), "Fisher": fisher(*a, *b)}
    better = probability_better(*b, *a)
    rates = {"a": (clopper_pearson(*a, level), wilson(*a, level)),
             "b": (clopper_pearson(*b, level), wilson(*b, level))}  # fmt: skip
    lines = [
        f"{name}: {e[0].value:.4f}  exact [{e[0].low:.4f}, {e[0].high:.4f}]"
        f"  Wilson [{e[1].low:.4f}, {e[1].high:.4f}]"
        for name, e in rates.items()
    ]
    lines += [
        f"b - a: {_signed(difference)} (Newcombe)",
        *(f"p = {_p(v)}  {k}, two-sided" for k, v in p.items()),
        f"P(b better than a) = {min(max(better, 1e-4), 0.9999):.4f}  uniform priors",
        _verdict(p["Boschloo"], difference, 1 - level),
        "assumes independent trials, their number fixed beforehand",
    ]
    return {
        "a": {"successes": a[0], "trials": a[1], "intervals": [_estimate(e) for e in rates["a"]]},
        "b": {"successes": b[0], "trials": b[1], "intervals": [_estimate(e) for e in rates["b"]]},
        "difference": _estimate(difference),
        "p_value": p["Boschloo"],
        "p_values": p,
        "method": "Boschloo, two-sided",
        "probability_b_better": better,
        "level": level,
        "lines": lines,
    }


def _paired(path: Path, level: float) -> dict[str, Any]:
    from eval.statistics.exact_tests import mcnemar_exact
    from eval.statistics.intervals import (
        DIFFERENCE,
        newcombe_paired,
        paired_difference,
    )

    a, b = _read_pairs(path)
    binary = set(a) | set(b) <= {0.0, 1.0}
    inside = all(0 <= v <= 1 for v in (*a, *b))
    score = paired_difference(a, b, level, bounds=DIFFERENCE if inside else None)
    lines = [f"{len(a)} pairs; mean of a {sum(a) / len(a):.4f}, of b {sum(b) / len(b):.4f}"]
    document: dict[str, Any] = {"pairs": len(a), "level": level}
    if binary:
        difference, p = newcombe_paired(a, b, level), mcnemar_exact(a, b)
        only_a = sum(x > y for x, y in zip(a, b, strict=True))
        only_b = sum(y > x for x, y in zip(a, b, strict=True))
        lines += [
            f"only a succeeded {only_a} times, only b {only_b} times",
            f"b - a: {_signed(difference)} (Newcombe, paired)",
            f"p = {_p(p)}  McNemar, exact, two-sided",
            _verdict(p, difference, 1 - level),
        ]
        document |= {"p_value": p, "method": "McNemar exact, two-sided",
                     "only_a": only_a, "only_b": only_b}  # fmt: skip
    else:
        difference = score
        lines += [
            f"b - a: {_signed(score)} (paired bootstrap)",
            "the interval excludes 0" if score.low > 0 or score.high < 0
            else "the interval contains 0: the two are not separated",
        ]  # fmt: skip
        document |= {"method": "paired bootstrap"}
    return document | {"difference": _estimate(difference), "lines": lines}


def _plan(argv: list[str]) -> int:
    args = parse(Plan, argv, "stats plan", Plan.__doc__ or "")
    from eval.statistics.planning import plan_paired, plan_two_rates

    other = round(args.p + args.delta if args.p + args.delta <= 1 else args.p - args.delta, 12)
    if not 0 <= args.p <= 1 or not 0 <= other <= 1 or args.delta == 0:
        raise ConfigError(
            f"p and p + delta (or p - delta) must be rates, and delta not 0; got p = {args.p:g},"
            f" delta = {args.delta:g}"
        )
    if args.correlation is None:
        plan, unit = plan_two_rates(args.p, other, args.power, args.alpha), "trials of each policy"
    else:
        plan = plan_paired(args.p, other, args.correlation, args.power, args.alpha)
        unit = "conditions, both policies on each"
    if args.json:
        print_json({"p": args.p, "other": other, "alpha": args.alpha, "trials": plan.trials,
                    "power": plan.power, "unit": unit, "method": plan.method})  # fmt: skip
        return 0
    say(f"{plan.trials} {unit}")
    say(f"telling {args.p:g} from {other:g} at alpha {args.alpha:g} then has power"
        f" {plan.power:.4f} ({plan.method})")  # fmt: skip
    return 0


def _counts(text: str) -> tuple[int, int]:
    k, slash, n = text.partition("/")
    if not slash or not k.strip().isdigit() or not n.strip().isdigit():
        raise ConfigError(f"expected successes/trials such as 14/50, got '{text}'")
    if not 0 <= int(k) <= int(n) or int(n) == 0:
        raise ConfigError(f"expected 0 <= successes <= trials and at least one trial, got '{text}'")
    return int(k), int(n)


def _read_pairs(path: Path) -> tuple[list[float], list[float]]:
    """Two columns; a first line of names is skipped."""
    import csv

    if not path.is_file():
        raise ConfigError(f"--paired: no file '{path}'")
    a: list[float] = []
    b: list[float] = []
    with path.open(newline="", encoding="utf-8") as stream:
        for number, row in enumerate(csv.reader(stream), 1):
            if not row or (number == 1 and not _number(row[0])):
                continue
            if len(row) != 2 or not all(_number(v) and 0 <= float(v) <= 1 for v in row):
                raise ConfigError(
                    f"{path}:{number}: expected two outcomes in [0, 1], got {','.join(row)!r}"
                )
            a.append(float(row[0]))
            b.append(float(row[1]))
    if not a:
        raise ConfigError(f"{path} has no pairs; one row per condition: a,b")
    return a, b


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _level(level: float) -> float:
    if not 0 < level < 1:
        raise ConfigError(f"--level lies between 0 and 1, got {level:g}")
    return level


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 1e-4 else f"{value:.1e}"


def _signed(e: Estimate) -> str:
    return f"{e.value:+.4f} [{e.low:+.4f}, {e.high:+.4f}]"


def _verdict(p: float, difference: Estimate, alpha: float) -> str:
    if p > alpha:
        return f"not separated at alpha {alpha:.2g}: this does not show that they are equal"
    return f"{'b' if difference.value > 0 else 'a'} is better (alpha {alpha:.2g})"


def _estimate(e: Estimate) -> dict[str, Any]:
    return {"method": e.method, "value": e.value, "low": e.low, "high": e.high, "n": e.n}


VERBS = {
    "interval": (Interval, _interval),
    "compare": (Compare, _compare),
    "plan": (Plan, _plan),
}
