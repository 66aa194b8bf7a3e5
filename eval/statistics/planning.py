"""How many trials: sample size, power and the bias of stopping early."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from eval.statistics.intervals import wilson
from robolearn.errors import DataError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Plan:
    """``trials`` per policy; ``power``: what they reach, computed exactly for the named test."""

    trials: int
    power: float
    method: str


def power_two_rates(p1: float, p2: float, n: int, alpha: float = 0.05) -> float:
    """Exact power of the two-sided pooled score test with ``n`` independent trials each.

    Sums the binomial probabilities of all tables in which the test rejects; Boschloo's test, whose
    p values this project reports, decides almost the same tables and keeps its level exactly.
    """
    _check(p1, p2, alpha)
    k = np.arange(n + 1)
    z = float(stats.norm.ppf(1 - alpha / 2))
    pooled = (k[:, None] + k[None]) / (2 * n)
    spread = np.sqrt(pooled * (1 - pooled) * 2 / n)
    reject = np.abs(k[:, None] - k[None]) / n > z * spread + 1e-12
    mass = stats.binom.pmf(k, n, p1)[:, None] * stats.binom.pmf(k, n, p2)[None]
    return float(mass[reject].sum())


def plan_two_rates(p1: float, p2: float, power: float = 0.8, alpha: float = 0.05) -> Plan:
    """Trials per policy, independent conditions.

    Starts from the normal approximation (Fleiss, Levin and Paik 2003, equation 4.14 without
    continuity correction) and goes up until the exact power, and that of the next sizes, suffices.
    """
    _check(p1, p2, alpha)
    _check_power(power, alpha)
    za, zb = (float(stats.norm.ppf(v)) for v in (1 - alpha / 2, power))
    mean = (p1 + p2) / 2
    spread = za * math.sqrt(2 * mean * (1 - mean)) + zb * math.sqrt(p1 * (1 - p1) + p2 * (1 - p2))
    n = max(2, math.floor(0.9 * (spread / (p1 - p2)) ** 2))
    if n > 4000:
        raise DataError(
            f"telling {p1:g} from {p2:g} takes about {n} trials per policy; plan for a larger"
            " difference, or pair the conditions"
        )
    # Exact power wobbles with n, since counts are whole; ask for it to last.
    while min(power_two_rates(p1, p2, n + i, alpha) for i in (0, 1, 2)) < power:
        n += 1
    return Plan(n, power_two_rates(p1, p2, n, alpha), "pooled score test, exact power")


def power_paired(only_a: float, only_b: float, n: int, alpha: float = 0.05) -> float:
    """Exact power of McNemar's exact test over ``n`` conditions.

    ``only_a``, ``only_b``: probability that only the one, only the other succeeds.
    """
    m = np.arange(n + 1)
    discordant = only_a + only_b
    if not 0 < discordant <= 1 or min(only_a, only_b) < 0:
        raise DataError(
            f"discordant probabilities must be >= 0 with a sum in (0, 1]: {only_a}, {only_b}"
        )
    weights = stats.binom.pmf(m, n, discordant)
    # The test rejects up to a critical count of the rarer kind (-1: never), from either side.
    critical = stats.binom.ppf(alpha / 2, m, 0.5) - 1
    critical = np.where(stats.binom.cdf(critical + 1, m, 0.5) <= alpha / 2, critical + 1, critical)
    share = only_b / discordant
    either = stats.binom.cdf(critical, m, share) + stats.binom.sf(m - critical - 1, m, share)
    return float((weights * np.where(critical < 0, 0.0, either)).sum())


def plan_paired(
    p1: float, p2: float, correlation: float, power: float = 0.8, alpha: float = 0.05
) -> Plan:
    """Conditions to run both policies on; ``correlation`` of their successes (phi)."""
    _check(p1, p2, alpha)
    _check_power(power, alpha)
    both = p1 * p2 + correlation * math.sqrt(p1 * (1 - p1) * p2 * (1 - p2))
    only_a, only_b = p1 - both, p2 - both
    if min(only_a, only_b, both, 1 - p1 - p2 + both) < -1e-12:
        raise DataError(f"rates {p1:g} and {p2:g} cannot correlate by {correlation:g}")
    only_a, only_b = max(0.0, only_a), max(0.0, only_b)
    z = float(stats.norm.ppf(1 - alpha / 2)) + float(stats.norm.ppf(power))
    n = max(4, math.floor(0.7 * z * z * (only_a + only_b) / (p1 - p2) ** 2))
    if n > 4000:
        raise DataError(f"telling {p1:g} from {p2:g} takes about {n} paired conditions")
    while min(power_paired(only_a, only_b, n + i, alpha) for i in (0, 1, 2)) < power:
        n += 1
    return Plan(n, power_paired(only_a, only_b, n, alpha), "McNemar exact, exact power")


def plan_precision(p: float, half_width: float, level: float = 0.95) -> Plan:
    """Trials until the Wilson interval around an expected rate ``p`` is ``+- half_width``."""
    if not 0 <= p <= 1 or not 0 < half_width < 0.5:
        raise DataError(f"expected a rate and a half width in (0, 0.5), got {p}, {half_width}")
    n = 1
    while n < 1_000_000:
        e = wilson(round(p * n), n, level)
        if (e.high - e.low) / 2 <= half_width:
            return Plan(n, math.nan, "Wilson interval")
        n = max(n + 1, math.floor(n * 1.005))
    raise DataError(f"a half width of {half_width:g} takes more than a million trials")


def stopping_bias(
    p: float,
    *,
    width: float,
    rule: Literal["beta", "wilson"] = "beta",
    n_min: int = 10,
    n_max: int = 200,
    batch: int = 1,
    level: float = 0.95,
) -> tuple[float, float]:
    """Bias of ``k/n``, and trials on average, when one stops once the interval is narrow.

    Exact, by following the distribution of ``k`` over ``n``. ``rule="beta"``: equal-tailed
    interval of Beta(1 + k, 1 + n - k), as in RoboLab. The width depends on ``k / n``, so the
    estimate at the stop is biased, although every ``n`` fixed beforehand would be unbiased.
    """
    mass = np.array([1.0])
    bias = trials = 0.0
    tail = (1 - level) / 2
    for n in range(1, n_max + 1):
        mass = np.convolve(mass, [1 - p, p])
        if n < n_max and (n < n_min or (n - n_min) % batch):
            continue
        k = np.arange(n + 1)
        if rule == "beta":
            spread = stats.beta.ppf(1 - tail, 1 + k, 1 + n - k) - stats.beta.ppf(
                tail, 1 + k, 1 + n - k
            )
        else:
            intervals = [wilson(int(i), n, level) for i in k]
            spread = np.array([e.high - e.low for e in intervals])
        stop = (spread <= width) | (n == n_max)
        bias += float((mass * (k / n - p))[stop].sum())
        trials += n * float(mass[stop].sum())
        mass = np.where(stop, 0.0, mass)
    return bias, trials


def _check(p1: float, p2: float, alpha: float) -> None:
    if not (0 <= p1 <= 1 and 0 <= p2 <= 1) or p1 == p2:
        raise DataError(f"two different rates in [0, 1] are needed, got {p1} and {p2}")
    if not 0 < alpha < 1:
        raise DataError(f"alpha lies between 0 and 1, got {alpha}")


def _check_power(power: float, alpha: float) -> None:
    if not alpha < power < 1:
        raise DataError(f"the power lies between alpha and 1, got {power}")
