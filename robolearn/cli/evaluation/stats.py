"""``robolearn stats`` computes intervals, comparisons and plans for people with a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from robolearn.cli.evaluation import stats_tables as tables
from robolearn.cli.evaluation.csv_tables import read_numbers, share
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.cli.shared.verbs import run_verb
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from eval.statistics.intervals import Estimate
    from robolearn.operations.stats import Counts, PairComparison, RateComparison


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
    # exact: as in 'robolearn compare', never covers too little; newcombe: narrower, of successes
    # only, covers down to .86 instead of .95 near 0 and 1.
    interval: Literal["exact", "newcombe"] = "exact"
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
    from eval.plain import plain_values
    from robolearn.operations.stats import intervals

    counts, level = _counts(args.counts), share(args.level, "--level")
    k, n, found = counts.successes, counts.trials, intervals(counts, level)
    if args.json:
        print_json({"successes": k, "trials": n, "rate": k / n,
                    "level": level, "intervals": [plain_values(e) for e in found]})  # fmt: skip
        return 0
    say(f"{k} of {n}: {k / n:.4f}")
    for e in found:
        note = "  exact: covers at least its level" if e.method == "Clopper-Pearson" else ""
        say(f"  {e.method:<30} [{e.low:.4f}, {e.high:.4f}]{note}")
    return 0


def _compare(argv: list[str]) -> int:
    args = parse(Compare, argv, "stats compare", Compare.__doc__ or "")
    from robolearn.operations.stats import compare_pairs, compare_rates

    level = share(args.level, "--level")
    if args.paired is not None:
        if args.a is not None or args.b is not None:
            raise ConfigError("give either K/N K/N or --paired FILE, not both")
        _, rows = read_numbers(args.paired, columns=2)
        a, b = ([row[i] for row in rows] for i in (0, 1))
        pairs = compare_pairs(a, b, level, args.interval)
        document, lines = _pairs_document(pairs), _pairs_lines(pairs)
    elif args.a is None or args.b is None:
        raise ConfigError("expected two rates K/N K/N, or --paired FILE")
    else:
        rates = compare_rates(_counts(args.a), _counts(args.b), level, args.interval)
        document, lines = _rates_document(rates), _rates_lines(rates)
    if args.json:
        print_json(document)
        return 0
    for line in lines:
        say(line)
    return 0


def _rates_lines(c: RateComparison) -> list[str]:
    better = min(max(c.probability_b_better, 1e-4), 0.9999)
    return [
        *(
            f"{name}: {exact.value:.4f}  exact [{exact.low:.4f}, {exact.high:.4f}]"
            f"  Wilson [{wilson.low:.4f}, {wilson.high:.4f}]"
            for name, (exact, wilson) in (("a", c.a_intervals), ("b", c.b_intervals))
        ),
        f"b - a: {_signed(c.difference)} ({c.difference.method})",
        *(f"p = {_p(v)}  {k}, two-sided" for k, v in c.p_values.items()),
        f"P(b better than a) = {better:.4f}  uniform priors",
        _verdict(c.decision, c.difference),
        "assumes independent trials, their number fixed beforehand",
    ]


def _rates_document(c: RateComparison) -> dict[str, Any]:
    from eval.plain import plain_values

    return {
        **{
            name: {"successes": counts.successes, "trials": counts.trials,
                   "intervals": [plain_values(e) for e in found]}
            for name, counts, found in (("a", c.a, c.a_intervals), ("b", c.b, c.b_intervals))
        },
        "difference": plain_values(c.difference),
        "decision": c.decision,
        "p_value": c.p_value,
        "p_values": c.p_values,
        "method": c.method,
        "probability_b_better": c.probability_b_better,
        "level": c.difference.level,
    }  # fmt: skip


def _pairs_lines(c: PairComparison) -> list[str]:
    lines = [f"{c.pairs} pairs; mean of a {c.mean_a:.4f}, of b {c.mean_b:.4f}"]
    if c.only_a is not None:
        lines.append(f"only a succeeded {c.only_a} times, only b {c.only_b} times")
    return [
        *lines,
        f"b - a: {_signed(c.difference)} ({c.difference.method})",
        f"p = {_p(c.p_value)}  {c.method}",
        _verdict(c.decision, c.difference),
    ]


def _pairs_document(c: PairComparison) -> dict[str, Any]:
    from eval.plain import plain_values

    return {
        "pairs": c.pairs,
        "level": c.difference.level,
        "p_value": c.p_value,
        "method": c.method,
        "only_a": c.only_a,
        "only_b": c.only_b,
        "decision": c.decision,
        "difference": plain_values(c.difference),
    }


def _plan(argv: list[str]) -> int:
    args = parse(Plan, argv, "stats plan", Plan.__doc__ or "")
    from robolearn.operations.stats import plan_rates

    found = plan_rates(
        args.p, args.delta, power=args.power, alpha=args.alpha, correlation=args.correlation
    )
    plan = found.plan
    if args.json:
        print_json({"p": found.p, "other": found.other, "alpha": args.alpha,
                    "trials": plan.trials, "power": plan.power, "unit": found.unit,
                    "method": plan.method})  # fmt: skip
        return 0
    say(f"{plan.trials} {found.unit}")
    say(f"telling {found.p:g} from {found.other:g} at alpha {args.alpha:g} then has power"
        f" {plan.power:.4f} ({plan.method})")  # fmt: skip
    return 0


def _counts(text: str) -> Counts:
    from robolearn.operations.stats import Counts

    k, slash, n = text.partition("/")
    if not slash or not k.strip().isdecimal() or not n.strip().isdecimal():
        raise ConfigError(f"expected successes/trials such as 14/50, got '{text}'")
    return Counts(int(k), int(n))


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 1e-4 else f"{value:.1e}"


def _signed(e: Estimate) -> str:
    return f"{e.value:+.4f} [{e.low:+.4f}, {e.high:+.4f}]"


def _verdict(decision: str, difference: Estimate) -> str:
    alpha = 1 - difference.level
    if not decision:
        return f"not separated at alpha {alpha:.2g}: this does not show that they are equal"
    return f"{decision} is better (alpha {alpha:.2g})"


VERBS = {
    "interval": (Interval, _interval),
    "compare": (Compare, _compare),
    "plan": (Plan, _plan),
    "sequence": (tables.Sequential, tables.sequence),
    "mixed": (tables.Mixed, tables.mixed),
    "blocks": (tables.Blocks, tables.blocks),
    "preferences": (tables.Preferences, tables.preferences),
    "profile": (tables.Profile, tables.profile),
}
