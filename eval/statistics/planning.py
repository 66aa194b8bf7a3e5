"""Plans how many trials: sample size, power and the bias of stopping early."""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from eval.statistics.betting import log_capital_of_counts
from eval.statistics.exact_tests import bounded_mean_p
from eval.statistics.intervals import check_level, wilson
from robolearn.errors import DataError
from robolearn.seeding import child_seed

Array = NDArray[np.float64]

# Common rates at which the level of Boschloo's test is looked for, and trials up to which it is.
_RATES = 201
_MOST_BOSCHLOO = 1_000
_MOST_PAIRS = 4_000


@dataclass(frozen=True, slots=True)
class Plan:
    """``trials`` per policy; ``power``: what they reach, computed exactly for the named test."""

    trials: int
    power: float
    method: str


def power_two_rates(p1: float, p2: float, n: int, alpha: float = 0.05) -> float:
    """Exact power of Boschloo's two-sided test with ``n`` independent trials each.

    Sums the binomial probabilities of all tables in which
    :func:`~eval.statistics.exact_tests.boschloo` is at most ``alpha``. Beyond ``1,000`` trials each
    the tables are those of the pooled score test, from which Boschloo's no longer differ visibly.
    """
    _check(p1, p2, alpha)
    if n < 0:
        raise DataError(f"a number of trials is 0 or more, got {n}")
    if n > _MOST_BOSCHLOO:
        return _score_power(p1, p2, n, alpha)
    return _mass(p1, p2, n, _boschloo_rejects(n, alpha))


def _mass(p1: float, p2: float, n: int, tables: Any) -> float:
    k = np.arange(n + 1)
    mass = stats.binom.pmf(k, n, p1)[:, None] * stats.binom.pmf(k, n, p2)[None]
    return float(mass[tables].sum())


def _score_power(p1: float, p2: float, n: int, alpha: float) -> float:
    k = np.arange(n + 1)
    z = float(stats.norm.ppf(1 - alpha / 2))
    pooled = (k[:, None] + k[None]) / (2 * n)
    spread = np.sqrt(pooled * (1 - pooled) * 2 / n)
    return _mass(p1, p2, n, np.abs(k[:, None] - k[None]) / n > z * spread + 1e-12)


def _log_ways(n: int) -> Array:
    """Logarithms of the binomial coefficients of ``n``."""
    k = np.arange(n + 1)
    return special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)


def _boschloo_rejects(n: int, alpha: float) -> Any:
    """Tables ``[k1, k2]`` that Boschloo's two-sided test rejects, ``n`` trials in each group.

    One-sided, a table counts as extreme as its p value by Fisher; the largest such value is sought
    for which the worst common rate gives no more than ``alpha / 2``. Given the total ``s`` of both
    groups Fisher's p value *is* the probability of the more extreme tables, so that the probability
    of all of them is the sum over ``s`` of the largest p value allowed there.
    """
    k, s = np.arange(n + 1), np.arange(2 * n + 1)
    # Probability of k1 successes in the first group, given the total: rows s, columns k1.
    possible = (k[None] <= s[:, None]) & (k[None] >= s[:, None] - n)
    ways, all_ways = _log_ways(n), _log_ways(2 * n)
    second = np.where(possible, s[:, None] - k[None], 0)
    given = np.where(possible, np.exp(ways[None] + ways[second] - all_ways[:, None]), 0.0)
    fisher = np.where(possible, np.cumsum(given, axis=1), 2.0)
    totals = stats.binom.pmf(s[None], 2 * n, np.linspace(0.0, 1.0, _RATES)[1:-1, None])
    values = np.unique(fisher[fisher <= min(1.0, 10.0 * alpha)])

    def size(limit: float) -> float:
        worst = np.where(fisher <= limit * (1 + 1e-13), fisher, 0.0).max(axis=1)
        return float((totals @ worst).max())

    low, high = -1, values.size
    while high - low > 1:
        middle = (low + high) // 2
        if size(float(values[middle])) <= alpha / 2:
            low = middle
        else:
            high = middle
    if low < 0:
        return np.zeros((n + 1, n + 1), dtype=np.bool_)
    extreme = fisher <= values[low] * (1 + 1e-13)
    fewer = extreme[k[:, None] + k[None], k[:, None]]
    return fewer | fewer.T


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
    at = functools.cache(lambda m: power_two_rates(p1, p2, m, alpha))
    # Far below, the score test, which takes no search, shows that no exact test can do.
    while _score_power(p1, p2, n + 10, alpha) < power - 0.03:
        n += 5
    while min(at(n), at(n + 1), at(n + 2)) < power:
        n += 1
    method = "Boschloo" if n <= _MOST_BOSCHLOO else "pooled score test"
    return Plan(n, at(n), f"{method}, exact power")


def power_paired(only_a: float, only_b: float, n: int, alpha: float = 0.05) -> float:
    """Exact power of McNemar's exact test over ``n`` conditions.

    ``only_a``, ``only_b``: probability that only the one, only the other succeeds.
    """
    if n < 0 or not 0 < alpha < 1:
        raise DataError(f"expected n >= 0 and alpha in (0, 1), got {n} and {alpha}")
    discordant = only_a + only_b
    if not 0 < discordant <= 1 or min(only_a, only_b) < 0:
        raise DataError(
            f"discordant probabilities must be >= 0 with a sum in (0, 1]: {only_a}, {only_b}"
        )
    return _paired_power(discordant, n, _rejections(only_b / discordant, n, alpha))


def _rejections(share: float, most: int, alpha: float) -> Array:
    """Probability that McNemar's exact test rejects, given 0 to ``most`` discordant conditions of
    which the share ``share`` speaks for the second policy.
    """
    m = np.arange(most + 1)
    # The test rejects up to a critical count of the rarer kind (-1: never), from either side.
    critical = stats.binom.ppf(alpha / 2, m, 0.5) - 1
    critical = np.where(stats.binom.cdf(critical + 1, m, 0.5) <= alpha / 2, critical + 1, critical)
    either = stats.binom.cdf(critical, m, share) + stats.binom.sf(m - critical - 1, m, share)
    return np.where(critical < 0, 0.0, either)


def _paired_power(discordant: float, n: int, rejections: Array) -> float:
    """The power over ``n`` conditions, each discordant with this probability."""
    weights = stats.binom.pmf(np.arange(n + 1), n, discordant)
    return float((weights * rejections[: n + 1]).sum())


def plan_paired(
    p1: float, p2: float, correlation: float, power: float = 0.8, alpha: float = 0.05
) -> Plan:
    """Conditions to run both policies on; ``correlation`` of their successes (phi)."""
    _check_power(power, alpha)
    only_a, only_b = _discordant(p1, p2, correlation)
    z = float(stats.norm.ppf(1 - alpha / 2)) + float(stats.norm.ppf(power))
    n = max(4, math.floor(0.7 * z * z * (only_a + only_b) / (p1 - p2) ** 2))
    if n > 4000:
        raise DataError(f"telling {p1:g} from {p2:g} takes about {n} paired conditions")
    # What the test does with so many discordant conditions is the same for every n.
    discordant = only_a + only_b
    rejections = _rejections(only_b / discordant, 2 * n + 50, alpha)

    @functools.cache
    def reached(n: int) -> float:
        nonlocal rejections
        if n >= rejections.size:
            rejections = _rejections(only_b / discordant, 2 * n, alpha)
        return _paired_power(discordant, n, rejections)

    while min(reached(n), reached(n + 1), reached(n + 2)) < power:
        n += 1
    return Plan(n, reached(n), "McNemar exact, exact power")


def _discordant(p1: float, p2: float, correlation: float) -> tuple[float, float]:
    """Probabilities that only the one, only the other succeeds."""
    _check(p1, p2, 0.5)
    if not -1 <= correlation <= 1:
        raise DataError(f"a correlation lies between -1 and 1, got {correlation}")
    both = p1 * p2 + correlation * math.sqrt(p1 * (1 - p1) * p2 * (1 - p2))
    only_a, only_b = p1 - both, p2 - both
    if min(only_a, only_b, both, 1 - p1 - p2 + both) < -1e-12:
        raise DataError(f"rates {p1:g} and {p2:g} cannot correlate by {correlation:g}")
    return max(0.0, only_a), max(0.0, only_b)


@dataclass(frozen=True, slots=True)
class SequencePlan:
    """``n_max`` pairs at most; ``expected``: pairs until the decision, or ``n_max``, on average."""

    n_max: int
    power: float
    expected: float
    method: str


def plan_sequence(
    p1: float, p2: float, correlation: float, power: float = 0.8, alpha: float = 0.05
) -> SequencePlan:
    """Pairs after which :func:`~eval.statistics.betting.paired_sequence` has found the better one.

    Exact: the bets depend on the numbers of discordant pairs of either kind, which are followed;
    how many pairs it takes to find so many discordant ones is binomial.
    """
    only_a, only_b = _discordant(p1, p2, correlation)
    _check_power(power, alpha)
    # Towards the better policy, whichever it is.
    discordant = only_a + only_b
    right, either = _decided_after(max(only_a, only_b) / discordant, alpha)
    counts = np.arange(1, right.size + 1)

    def reached(n: int) -> float:
        return float(right @ stats.binom.sf(counts - 1, n, discordant))

    if reached(_MOST_PAIRS) < power:
        raise DataError(
            f"telling {p1:g} from {p2:g} takes more than {_MOST_PAIRS} paired conditions"
        )
    n = 1 + bisect.bisect_left(range(1, _MOST_PAIRS), power, key=reached)
    # The mean of min(T, n) with T the pairs until the k-th discordant one, which is negative
    # binomial: T P(T = t) = k / d P(T' = t + 1) with T' the pairs until the next one.
    until = counts / discordant * stats.binom.sf(counts, n + 1, discordant)
    until += n * stats.binom.cdf(counts - 1, n, discordant)
    expected = float(either @ until) + n * max(0.0, 1.0 - float(either.sum()))
    return SequencePlan(n, reached(n), expected, "betting on discordant pairs, exact power")


def _decided_after(share: float, alpha: float) -> tuple[Array, Array]:
    """Probability that the bets decide at the ``k``-th discordant pair: rightly, and either way."""
    wall, alive = math.log(2.0 / alpha), np.ones(1)
    right: list[float] = []
    either: list[float] = []
    while alive.sum() > 1e-6 and len(right) < _MOST_PAIRS:
        alive = np.convolve(alive, [1.0 - share, share])
        won = np.arange(alive.size)
        for_b = log_capital_of_counts(won, won[::-1]) >= wall
        gone = for_b | for_b[::-1]
        right.append(float(alive[for_b].sum()))
        either.append(float(alive[gone].sum()))
        alive = np.where(gone, 0.0, alive)
    return np.array(right), np.array(either)


def plan_scores(
    pilot: Any, power: float = 0.8, alpha: float = 0.05, *, draws: int = 400, seed: int = 0
) -> Plan:
    """Conditions until paired scores that differ as in ``pilot`` are told apart, by simulation.

    ``pilot``: differences of scores in [-1, 1], ten or more; they are drawn with replacement, and
    :func:`~eval.statistics.exact_tests.bounded_mean_p` decides. Up to the noise of ``draws``.
    """
    differences = np.asarray(pilot, dtype=np.float64).reshape(-1)
    _check_power(power, alpha)
    if differences.size < 10 or not (np.abs(differences) <= 1).all():
        raise DataError(
            f"a pilot has ten or more differences in [-1, 1], got {differences.size} values"
        )
    direction = float(np.sign(differences.mean()))
    if direction == 0:
        raise DataError("the pilot's mean difference is 0: no number of conditions would show it")

    def reached(n: int) -> float:
        rng = np.random.default_rng(child_seed(seed, "plan_scores", n))
        drawn = rng.choice(differences, (draws, n))
        return float(np.mean([_decides(d, direction, alpha) for d in drawn]))

    high = 8
    while reached(high) < power:
        high *= 2
        if high > _MOST_PAIRS:
            raise DataError(
                f"a mean difference of {differences.mean():+.3f} takes more than {_MOST_PAIRS}"
                " paired conditions"
            )
    n = high // 2 + 1 + bisect.bisect_left(range(high // 2 + 1, high), power, key=reached)
    return Plan(n, reached(n), "bounded mean of differences, simulated power")


def _decides(differences: Array, direction: float, alpha: float) -> bool:
    right = float(differences.mean()) * direction > 0
    return right and bounded_mean_p(differences, 0.0, -1.0, 1.0) <= alpha


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
    if not 0 <= p <= 1 or batch < 1 or not 1 <= n_min <= n_max:
        raise DataError(
            f"expected a rate, batch >= 1 and 1 <= n_min <= n_max; got {p}, {batch}, {n_min} and"
            f" {n_max}"
        )
    check_level(level)
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
