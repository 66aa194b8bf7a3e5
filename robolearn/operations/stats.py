"""Answers questions about counts and pairs of outcomes: intervals, comparisons, plans."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from eval.decisions import Outcomes, pair_test
from eval.statistics.exact_difference import MOST_TABLES, exact_difference
from eval.statistics.exact_tests import barnard, boschloo, fisher
from eval.statistics.intervals import (
    Estimate,
    beta_posterior,
    clopper_pearson,
    jeffreys,
    newcombe,
    newcombe_paired,
    paired_values,
    probability_better,
    wilson,
)
from eval.statistics.multiplicity import Direction, family
from eval.statistics.planning import Plan, plan_paired, plan_two_rates
from robolearn.errors import ConfigError

MCNEMAR = "McNemar exact, two-sided"
BOUNDED = "bounded mean of differences, two-sided"
Interval = Literal["exact", "newcombe"]
Better = Literal["a", "b", ""]
_BETTER: dict[Direction, Better] = {"negative": "a", "positive": "b", "undecided": ""}
# Tables of all outcomes of two policies that Boschloo's and Barnard's tests go through: half a
# minute, and as many trials each as plans are made for with Boschloo's.
_MOST_TABLES = 1_001**2


@dataclass(frozen=True, slots=True)
class Counts:
    """Successes of some trials."""

    successes: int
    trials: int

    def __post_init__(self) -> None:
        if not 0 <= self.successes <= self.trials or self.trials == 0:
            raise ConfigError(
                "expected 0 <= successes <= trials and at least one trial, got"
                f" '{self.successes}/{self.trials}'"
            )


@dataclass(frozen=True, slots=True)
class RateComparison:
    """Two success rates from independent trials; the difference is ``b - a``.

    Its interval leaves out 0 exactly where there is a decision.
    """

    a: Counts
    b: Counts
    # Clopper-Pearson and Wilson of each.
    a_intervals: tuple[Estimate, ...]
    b_intervals: tuple[Estimate, ...]
    difference: Estimate
    decision: Better
    # Two-sided p values by the name of the test; the first decides.
    p_values: dict[str, float]
    probability_b_better: float

    @property
    def p_value(self) -> float:
        """The p value that decides."""
        return next(iter(self.p_values.values()))

    @property
    def method(self) -> str:
        """The test that decides."""
        return f"{next(iter(self.p_values))}, two-sided"


@dataclass(frozen=True, slots=True)
class PairComparison:
    """Outcomes under the same conditions; the difference is ``b - a``.

    Its interval leaves out 0 exactly where there is a decision.
    """

    pairs: int
    mean_a: float
    mean_b: float
    difference: Estimate
    decision: Better
    p_value: float
    # The test that decides.
    method: str
    # Of outcomes that are all 0 or 1.
    only_a: int | None = None
    only_b: int | None = None


@dataclass(frozen=True, slots=True)
class RatePlan:
    """How many trials tell ``p`` from ``other``, and of what."""

    p: float
    other: float
    plan: Plan
    unit: str


def intervals(counts: Counts, level: float = 0.95) -> tuple[Estimate, ...]:
    """Intervals of a success rate: exact, Wilson, Jeffreys, and a Beta posterior."""
    k, n = counts.successes, counts.trials
    found = tuple(f(k, n, level) for f in (clopper_pearson, wilson, jeffreys))
    return (*found, beta_posterior(k, n, level, method="Beta posterior, uniform prior"))


def compare_rates(
    a: Counts, b: Counts, level: float = 0.95, interval: Interval = "exact"
) -> RateComparison:
    """Two success rates from independent trials, their number fixed beforehand.

    Boschloo's test and the exact unconditional interval; of more than about 300 trials each
    Newcombe's interval, of more than about 1,000 each Fisher's test, which need no table of all
    outcomes.
    """
    first, second = (a.successes, a.trials), (b.successes, b.trials)
    tables = (a.trials + 1) * (b.trials + 1)
    tests = {"Boschloo": boschloo, "Barnard": barnard} if tables <= _MOST_TABLES else {}
    p_values = {name: test(*first, *second) for name, test in {**tests, "Fisher": fisher}.items()}
    use = exact_difference if interval == "exact" and tables <= MOST_TABLES else newcombe
    (member,) = family(
        p_values=[next(iter(p_values.values()))],
        intervals=[lambda level: use(*second, *first, level)],
        alpha=1.0 - level,
    )
    return RateComparison(
        a=a,
        b=b,
        a_intervals=(clopper_pearson(*first, level), wilson(*first, level)),
        b_intervals=(clopper_pearson(*second, level), wilson(*second, level)),
        difference=member.difference,
        decision=_BETTER[member.direction],
        p_values=p_values,
        probability_b_better=probability_better(*second, *first),
    )


def compare_pairs(
    a: Sequence[float], b: Sequence[float], level: float = 0.95, interval: Interval = "exact"
) -> PairComparison:
    """Outcomes in [0, 1] of two policies under the same conditions, in the same order, by the test
    and the interval of ``robolearn compare``: McNemar's of successes (all 0 or 1), the bounded mean
    of the differences of scores.
    """
    x, y = (np.asarray(v, dtype=np.float64).reshape(-1) for v in (a, b))
    if not (x.size and ((x >= 0) & (x <= 1)).all() and ((y >= 0) & (y <= 1)).all()):
        raise ConfigError("expected outcomes in [0, 1] of both policies, one pair at least")
    x, y = paired_values(x, y)
    successes = bool(np.isin(x, (0.0, 1.0)).all() and np.isin(y, (0.0, 1.0)).all())
    if interval == "newcombe" and not successes:
        raise ConfigError("Newcombe's interval is of successes (all 0 or 1); scores have the exact")
    first, second = (Outcomes("", ("",), v[None], v[None]) for v in (x, y))
    tested = pair_test(first, second, "success" if successes else "score")
    at = tested.interval if interval == "exact" else functools.partial(newcombe_paired, x, y)
    (member,) = family([tested.p], [at], alpha=1.0 - level)
    return PairComparison(
        pairs=int(x.size),
        mean_a=float(x.mean()),
        mean_b=float(y.mean()),
        difference=member.difference,
        decision=_BETTER[member.direction],
        p_value=tested.p,
        method=MCNEMAR if successes else BOUNDED,
        only_a=int((x > y).sum()) if successes else None,
        only_b=int((y > x).sum()) if successes else None,
    )


def plan_rates(
    p: float,
    delta: float,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    correlation: float | None = None,
) -> RatePlan:
    """How many trials tell two rates apart. The second is ``p + delta``, or ``p - delta`` where
    that exceeds 1; with ``correlation`` the two are tried under the same conditions.
    """
    other = round(p + delta if p + delta <= 1 else p - delta, 12)
    if not 0 <= p <= 1 or not 0 <= other <= 1 or delta == 0:
        raise ConfigError(
            f"p and p + delta (or p - delta) must be rates, and delta not 0; got p = {p:g},"
            f" delta = {delta:g}"
        )
    if correlation is None:
        return RatePlan(p, other, plan_two_rates(p, other, power, alpha), "trials of each policy")
    plan = plan_paired(p, other, correlation, power, alpha)
    return RatePlan(p, other, plan, "conditions, both policies on each")
