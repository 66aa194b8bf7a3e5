"""Answers questions about counts and pairs of outcomes: intervals, comparisons, plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eval.statistics.exact_tests import barnard, boschloo, fisher, mcnemar_exact
from eval.statistics.intervals import (
    DIFFERENCE,
    Estimate,
    beta_posterior,
    clopper_pearson,
    jeffreys,
    newcombe,
    newcombe_paired,
    paired_difference,
    probability_better,
    wilson,
)
from eval.statistics.planning import Plan, plan_paired, plan_two_rates
from robolearn.errors import ConfigError

BOSCHLOO = "Boschloo, two-sided"
MCNEMAR = "McNemar exact, two-sided"


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
    """Two success rates from independent trials; the difference is ``b - a``."""

    a: Counts
    b: Counts
    # Clopper-Pearson and Wilson of each.
    a_intervals: tuple[Estimate, ...]
    b_intervals: tuple[Estimate, ...]
    difference: Estimate
    # Two-sided p values by the name of the test; Boschloo's decides.
    p_values: dict[str, float]
    probability_b_better: float

    @property
    def p_value(self) -> float:
        """The p value that decides."""
        return self.p_values["Boschloo"]


@dataclass(frozen=True, slots=True)
class PairComparison:
    """Outcomes under the same conditions; the difference is ``b - a``."""

    pairs: int
    mean_a: float
    mean_b: float
    difference: Estimate
    # Outcomes that are not all 0 or 1 have an interval and no test.
    p_value: float | None = None
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


def compare_rates(a: Counts, b: Counts, level: float = 0.95) -> RateComparison:
    """Two success rates from independent trials, their number fixed beforehand."""
    first, second = (a.successes, a.trials), (b.successes, b.trials)
    return RateComparison(
        a=a,
        b=b,
        a_intervals=(clopper_pearson(*first, level), wilson(*first, level)),
        b_intervals=(clopper_pearson(*second, level), wilson(*second, level)),
        difference=newcombe(*second, *first, level),
        p_values={
            name: test(*first, *second)
            for name, test in (("Boschloo", boschloo), ("Barnard", barnard), ("Fisher", fisher))
        },
        probability_b_better=probability_better(*second, *first),
    )


def compare_pairs(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> PairComparison:
    """Outcomes of two policies under the same conditions, in the same order: successes (all 0 or
    1) by McNemar's exact test, progress by the interval of the mean difference.
    """
    means = (sum(a) / len(a), sum(b) / len(b))
    if not set(a) | set(b) <= {0.0, 1.0}:
        inside = all(0 <= v <= 1 for v in (*a, *b))
        bounds = DIFFERENCE if inside else None
        return PairComparison(len(a), *means, paired_difference(a, b, level, bounds=bounds))
    return PairComparison(
        len(a),
        *means,
        newcombe_paired(a, b, level),
        mcnemar_exact(a, b),
        sum(x > y for x, y in zip(a, b, strict=True)),
        sum(y > x for x, y in zip(a, b, strict=True)),
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
