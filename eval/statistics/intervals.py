"""Estimates from trials with their intervals: rates, means, differences, association.

Every estimate carries its interval, its number of trials and the name of its method, so that no
number is ever shown without them. Nothing here is valid under peeking: the number of trials must
be fixed before the first one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from eval.statistics.random_weights import quantile
from robolearn.errors import DataError
from robolearn.shapes import Floats

Array = NDArray[np.float64]
Bounds = tuple[float, float]
# What scores and successes, and differences of them, cannot exceed.
OUTCOME: Bounds = (0.0, 1.0)
DIFFERENCE: Bounds = (-1.0, 1.0)

# Counts up to which every whole number is a float.
_COUNTED = 2**53

RESAMPLES = 10_000
BOOTSTRAP_SEED = 20240501


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval at ``level``, from ``n`` trials, by ``method``.

    ``value`` is nan when it is not defined (a correlation of a constant, no trials).
    """

    value: float
    low: float
    high: float
    n: int
    method: str
    level: float = 0.95

    def text(self, digits: int = 3) -> str:
        """For example ``0.885 [0.851, 0.917], n = 100``."""
        if math.isnan(self.value):
            return f"not defined, n = {self.n}"
        return (
            f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}], n = {self.n}"
        )


def clopper_pearson(k: int, n: int, level: float = 0.95) -> Estimate:
    """Exact interval of a proportion (Clopper and Pearson 1934, Biometrika 26:404).

    Never covers less than ``level``; quantiles of Beta distributions.
    """
    check_counts(k, n)
    check_level(level)
    tail = (1.0 - level) / 2.0
    low = 0.0 if k == 0 else float(scipy.stats.beta.ppf(tail, k, n - k + 1))
    high = 1.0 if k == n else float(scipy.stats.beta.ppf(1.0 - tail, k + 1, n - k))
    return Estimate(_ratio(k, n), low, high, n, "Clopper-Pearson", level)


def wilson(k: int, n: int, level: float = 0.95) -> Estimate:
    """Score interval of a proportion (Wilson 1927, JASA 22:209); covers ``level`` on average."""
    check_counts(k, n)
    if n == 0:
        return Estimate(math.nan, 0.0, 1.0, 0, "Wilson", level)
    low, high = wilson_ends(k / n, float(n), level)
    return Estimate(k / n, low, high, n, "Wilson", level)


def wilson_ends(rate: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Ends of :func:`wilson` around a ``rate`` of trials that are worth ``n`` independent ones."""
    z = _z(level)
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return (0.0 if rate <= 0 else centre - half), (1.0 if rate >= 1 else centre + half)


def jeffreys(k: int, n: int, level: float = 0.95) -> Estimate:
    """Equal-tailed interval of Beta(k + 1/2, n - k + 1/2) (Brown, Cai and DasGupta 2001)."""
    return beta_posterior(k, n, level, prior=(0.5, 0.5), method="Jeffreys")


def beta_posterior(
    k: int,
    n: int,
    level: float = 0.95,
    *,
    prior: tuple[float, float] = (1.0, 1.0),
    method: str = "Beta posterior",
) -> Estimate:
    """Equal-tailed credible interval of Beta(a + k, b + n - k); ``value`` stays ``k / n``."""
    check_counts(k, n)
    check_level(level)
    a, b = prior[0] + k, prior[1] + n - k
    if not (prior[0] > 0 and prior[1] > 0):
        raise DataError(f"a Beta prior has two positive parameters, got {prior}")
    low, high = scipy.stats.beta.ppf([(1 - level) / 2, (1 + level) / 2], a, b)
    return Estimate(_ratio(k, n), float(low), float(high), n, method, level)


def probability_better(k1: int, n1: int, k2: int, n2: int) -> float:
    """Posterior probability that the first success rate exceeds the second, uniform priors.

    Integral of the first density times the second's distribution function.
    """
    check_counts(k1, n1)
    check_counts(k2, n2)
    first = scipy.stats.beta(1 + k1, 1 + n1 - k1)
    second = scipy.stats.beta(1 + k2, 1 + n2 - k2)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    # In quantiles of the first, so that narrow posteriors are resolved as well as wide ones.
    return float(0.5 * (weights * second.cdf(first.ppf(0.5 * (nodes + 1)))).sum())


def bounded_mean(scores: Any, low: float = 0.0, high: float = 1.0, level: float = 0.95) -> Estimate:
    """Mean of independent scores that cannot leave ``[low, high]``; no other assumption.

    The lower end is the quantile ``(1 - level) / 2`` of the mean of the scores and one more at
    ``low`` under random weights (Dirichlet, all ones), the upper end mirrors it with one more at
    ``high``. For successes this is Clopper and Pearson's interval, for equal scores that of
    :func:`mean_of_equals`, for the differences of paired successes (``low=-1``) it leaves out 0
    exactly when McNemar's exact test decides, and for many scores it becomes the normal interval.
    It depends on the scores continuously and not on their order.

    Source: Gaffke 2005, "Three test statistics for a nonparametric one-sided hypothesis on the mean
    of a nonnegative variable", Math. Methods of Statistics 14:451; Learned-Miller and Thomas 2019,
    arXiv:1905.06208. Its coverage is proven for successes, and for one or two scores; for others it
    is a conjecture that no search has refuted (``docs/statistics.md`` has the figures of ours).
    Proven for every distribution, and wider: the last interval of
    :func:`eval.statistics.sequential.betting_sequence`.
    """
    if not (low < high and math.isfinite(high - low)):
        raise DataError(f"scores lie between two bounds, low first; got [{low:g}, {high:g}]")
    check_level(level)
    x = np.sort(_finite(scores, "scores"))
    method = "bounded mean"
    if x.size == 0:
        return Estimate(math.nan, low, high, 0, method, level)
    if x[0] < low - 1e-9 or x[-1] > high + 1e-9:
        raise DataError(
            f"expected scores in [{low:g}, {high:g}], got some from {x[0]:g} to {x[-1]:g};"
            " give their bounds"
        )
    share = np.clip((x - low) / (high - low), 0.0, 1.0)
    tail = (1.0 - level) / 2.0
    least = quantile(np.append(share, 0.0), tail)
    most = 1.0 - quantile(np.append(1.0 - share, 0.0), tail)
    ends = low + (high - low) * least, low + (high - low) * most
    return Estimate(float(x.mean()), *ends, int(x.size), method, level)


def bounded_difference(a: Any, b: Any, level: float = 0.95) -> Estimate:
    """Mean of ``b - a`` over pairs of scores (or successes) in [0, 1] by :func:`bounded_mean`.

    Leaves out 0 exactly when :func:`eval.statistics.exact_tests.bounded_difference_p` is at most
    ``1 - level``.
    """
    x, y = paired_values(a, b)
    found = bounded_mean(y - x, *DIFFERENCE, level)
    return replace(found, method="bounded mean of differences")


def mean_t(values: Any, level: float = 0.95, *, bounds: Bounds | None = None) -> Estimate:
    """Mean with Student's t interval (Student 1908); for one value the interval is unbounded.

    ``bounds``: what the outcomes cannot exceed; then :func:`mean_of_equals` speaks where t cannot
    (one outcome, or all equal), and the interval ends at the bounds.
    """
    check_level(level)
    x = _within(_finite(values, "values"), bounds)
    n = int(x.size)
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, "Student t", level)
    mean = float(x.mean())
    if bounds is not None and (n == 1 or _equal(x)):
        return mean_of_equals(float(x[0]), n, bounds, level)
    if n == 1:
        return Estimate(mean, -math.inf, math.inf, 1, "Student t", level)
    half = float(scipy.stats.t.ppf((1 + level) / 2, n - 1) * x.std(ddof=1) / math.sqrt(n))
    least, most = bounds or (-math.inf, math.inf)
    return Estimate(mean, max(least, mean - half), min(most, mean + half), n, "Student t", level)


def mean_of_equals(value: float, n: int, bounds: Bounds, level: float = 0.95) -> Estimate:
    """Mean of ``n`` bounded outcomes that all came out as ``value``.

    Neither t nor a bootstrap can say anything then: both give an interval of no width. If the mean
    were ``m`` above ``value``, an outcome would be at most ``value`` with probability at most
    ``(top - m) / (top - value)`` (Markov's inequality), all of them with the n-th power of that.
    The interval holds every mean for which this is at least half of the error. For successes that
    are all 1 or all 0 it is the exact interval of Clopper and Pearson.
    """
    least, most = bounds
    check_level(level)
    if n < 1 or not least - 1e-6 <= value <= most + 1e-6:
        raise DataError(f"expected outcomes in [{least:g}, {most:g}], got {value:g} (n = {n})")
    shrink = ((1.0 - level) / 2.0) ** (1.0 / n)
    low, high = least + (value - least) * shrink, most - (most - value) * shrink
    return Estimate(value, low, high, n, "all equal: Markov bound", level)


def mean_bootstrap(
    values: Any,
    level: float = 0.95,
    *,
    resamples: int = RESAMPLES,
    seed: int = BOOTSTRAP_SEED,
    bounds: Bounds | None = None,
) -> Estimate:
    """Mean with the expanded percentile bootstrap interval.

    Percentiles as Efron and Tibshirani 1993, ch. 13, but further out by what Student's t and the
    bootstrap's divisor ``n`` ask for (Hesterberg 2015, "What teachers should know about the
    bootstrap", section 5.3): the plain ones cover 79 to 86 % instead of 95 % with 5 outcomes.
    ``bounds`` as for :func:`mean_t`.
    """
    check_level(level)
    x = _within(_finite(values, "values"), bounds)
    if x.size == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, "expanded bootstrap", level)
    if bounds is not None and _equal(x):
        return mean_of_equals(float(x[0]), int(x.size), bounds, level)
    n = int(x.size)
    if n == 1:
        return Estimate(float(x[0]), -math.inf, math.inf, 1, "expanded bootstrap", level)
    reach = math.sqrt(n / (n - 1)) * float(scipy.stats.t.ppf((1 + level) / 2, n - 1))
    wider = 1.0 - 2.0 * float(scipy.stats.norm.sf(reach))
    low, high = _percentiles(_resampled_means(x, resamples, seed), wider)
    return Estimate(float(x.mean()), low, high, n, "expanded bootstrap", level)


def newcombe(k1: int, n1: int, k2: int, n2: int, level: float = 0.95) -> Estimate:
    """Interval of ``k1/n1 - k2/n2``, independent samples.

    Source: Newcombe 1998, Statistics in Medicine 17:873, method 10 (square-and-add of Wilson).
    """
    first, second = wilson(k1, n1, level), wilson(k2, n2, level)
    return square_and_add(first, second, "Newcombe")


def square_and_add(first: Estimate, second: Estimate, method: str) -> Estimate:
    """Interval of the difference ``first - second`` of two independent estimates.

    The distances to the ends add up as standard errors do. Source: Newcombe 1998 for rates; Zou and
    Donner 2008, "Construction of confidence limits about effect measures: a general approach",
    Statistics in Medicine 27:1693, for any two intervals.
    """
    d = first.value - second.value
    low = d - math.hypot(first.value - first.low, second.high - second.value)
    high = d + math.hypot(first.high - first.value, second.value - second.low)
    return Estimate(d, low, high, first.n + second.n, method, first.level)


def newcombe_paired(a: Any, b: Any, level: float = 0.95) -> Estimate:
    """Interval of the difference of success rates ``b - a`` over the same conditions.

    Source: Newcombe 1998, Statistics in Medicine 17:2635, method 10 (square-and-add of Wilson
    with a continuity-corrected phi).
    """
    x, y = paired_successes(a, b)
    n = int(x.size)
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, "Newcombe paired", level)
    both = float(np.sum((x > 0) & (y > 0)))
    only_b = float(np.sum((x <= 0) & (y > 0)))
    only_a = float(np.sum((x > 0) & (y <= 0)))
    neither = n - both - only_a - only_b
    first = wilson(int(both + only_b), n, level)
    second = wilson(int(both + only_a), n, level)
    d = (only_b - only_a) / n
    phi = _corrected_phi(both, only_b, only_a, neither, n)
    dl1, du1 = first.value - first.low, first.high - first.value
    dl2, du2 = second.value - second.low, second.high - second.value
    low = d - math.sqrt(max(0.0, dl1**2 - 2 * phi * dl1 * du2 + du2**2))
    high = d + math.sqrt(max(0.0, du1**2 - 2 * phi * du1 * dl2 + dl2**2))
    return Estimate(d, max(-1.0, low), min(1.0, high), n, "Newcombe paired", level)


def pearson(a: Any, b: Any, level: float = 0.95) -> Estimate:
    """Correlation with Fisher's z interval (Fisher 1921); undefined (nan) for a constant input."""
    x, y = paired_values(a, b)
    return _fisher_z(x, y, "Pearson, Fisher z", level)


def phi_coefficient(
    a: Any, b: Any, level: float = 0.95, *, resamples: int = RESAMPLES, seed: int = BOOTSTRAP_SEED
) -> Estimate:
    """Correlation of two paired success vectors, interval by resampling pairs.

    Resamples in which either vector is constant have no phi; they are left out. Undefined (nan)
    when an input is constant, that is when one side always or never succeeds. Where all pairs agree
    (or none does) no resample differs; then the end is that of the most disagreement that Clopper
    and Pearson's interval leaves open, at the observed rates.
    """
    x, y = paired_successes(a, b)
    method = "phi, paired bootstrap"
    value, n = _correlation(x, y), int(x.size)
    if math.isnan(value):
        return Estimate(math.nan, math.nan, math.nan, n, method, level)
    if abs(value) > 1.0 - 1e-9:
        spread = 2.0 * float(x.mean() * (1.0 - x.mean()))
        reach = max(-1.0, 1.0 - clopper_pearson(0, n, level).high / spread)
        low, high = (reach, 1.0) if value > 0 else (-1.0, -reach)
        return Estimate(value, low, high, n, "phi, all pairs alike", level)
    rows = np.random.default_rng(seed).integers(0, x.size, (resamples, x.size))
    xs, ys = x[rows], y[rows]
    mx, my = xs.mean(axis=1), ys.mean(axis=1)
    spread = np.sqrt(mx * (1 - mx) * my * (1 - my))
    defined = spread > 0
    draws = ((xs * ys).mean(axis=1) - mx * my)[defined] / spread[defined]
    low, high = _percentiles(draws, level)
    return Estimate(value, low, high, int(x.size), method, level)


def percentiles(values: Any, at: Sequence[float] = (50.0, 90.0, 99.0)) -> tuple[float, ...]:
    """Percentiles in the order asked for; nan without values."""
    x = _finite(values, "values")
    if x.size == 0:
        return (math.nan,) * len(at)
    return tuple(float(v) for v in np.percentile(x, at))


def _corrected_phi(both: float, only_b: float, only_a: float, neither: float, n: int) -> float:
    margins = (both + only_b) * (only_a + neither) * (both + only_a) * (only_b + neither)
    if margins == 0:
        return 0.0
    raw = both * neither - only_b * only_a
    corrected = max(0.0, raw - n / 2) if raw > 0 else raw
    return corrected / math.sqrt(margins)


def _fisher_z(x: Array, y: Array, method: str, level: float) -> Estimate:
    n = int(x.size)
    value = _correlation(x, y)
    if math.isnan(value):
        return Estimate(math.nan, math.nan, math.nan, n, method, level)
    if n <= 3:
        return Estimate(value, -1.0, 1.0, n, method, level)
    if abs(value) >= 1.0:
        return Estimate(value, value, value, n, method, level)
    half = _z(level) / math.sqrt(n - 3)
    centre = math.atanh(value)
    return Estimate(value, math.tanh(centre - half), math.tanh(centre + half), n, method, level)


def _correlation(x: Array, y: Array) -> float:
    if x.size < 2 or _equal(x) or _equal(y):
        return math.nan
    return float(np.clip(np.corrcoef(x, y)[0, 1], -1.0, 1.0))


def _within(x: Array, bounds: Bounds | None) -> Array:
    if (
        bounds is not None
        and x.size
        and not bounds[0] - 1e-6 <= x.min() <= x.max() <= bounds[1] + 1e-6
    ):
        raise DataError(
            f"expected values in [{bounds[0]:g}, {bounds[1]:g}], got some from {x.min():g} to"
            f" {x.max():g}"
        )
    return x


def _equal(x: Array) -> bool:
    """Also where the differences are so small that their squares are 0."""
    return bool(np.ptp(x) == 0 or x.std() == 0)


def _resampled_means(x: Array, resamples: int, seed: int) -> Array:
    """In parts, so that ten thousand trials do not take a gigabyte."""
    rng = np.random.default_rng(seed)
    part = max(1, min(resamples, 4_000_000 // x.size))
    sizes = [min(part, resamples - start) for start in range(0, resamples, part)]
    return np.concatenate([x[rng.integers(0, x.size, (k, x.size))].mean(axis=1) for k in sizes])


def _percentiles(draws: Array, level: float) -> tuple[float, float]:
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(draws, [tail, 100 - tail])
    return float(low), float(high)


def paired_values(a: Any, b: Any) -> tuple[Floats, Floats]:
    """Two vectors of finite numbers, equally long; :class:`DataError` otherwise."""
    x, y = _finite(a, "first"), _finite(b, "second")
    if x.shape != y.shape:
        raise DataError(
            f"paired statistics need the same conditions on both sides, got {x.size} and {y.size}"
        )
    return x, y


def paired_successes(a: Any, b: Any) -> tuple[Floats, Floats]:
    """Two vectors of 0 and 1, equally long; :class:`DataError` otherwise."""
    x, y = paired_values(a, b)
    for v in (x, y):
        other = v[(v != 0) & (v != 1)]
        if other.size:
            raise DataError(
                f"successes are 0 or 1, got {other.size} others, for example {other[0]:g}; scores"
                " have tests of their own (eval.statistics.intervals.bounded_difference)"
            )
    return x, y


def _finite(values: Any, name: str) -> Array:
    x = np.asarray(values, dtype=np.float64).reshape(-1)
    bad = int(np.sum(~np.isfinite(x)))
    if bad:
        raise DataError(
            f"{name}: {bad} of {x.size} values are not finite; drop or fix these trials"
        )
    return x


def check_counts(k: int, n: int) -> None:
    """:class:`DataError` unless ``k`` of ``n`` trials can have succeeded."""
    if not 0 <= k <= n or k != int(k) or n != int(n):
        raise DataError(f"expected 0 <= successes <= trials, whole numbers; got {k} of {n}")
    if n > _COUNTED:
        raise DataError(f"more than {_COUNTED} trials cannot be told apart as floats, got {n}")


def check_level(level: float) -> None:
    """:class:`DataError` unless ``level`` is that of an interval."""
    # The last number before 1 has a quantile that is infinite.
    if not (0 < level < 1 and (1 + level) / 2 < 1):
        raise DataError(f"the level of an interval lies between 0 and 1, got {level}")


def _ratio(k: int, n: int) -> float:
    return k / n if n else math.nan


@functools.lru_cache(maxsize=64)
def _z(level: float) -> float:
    check_level(level)
    return float(scipy.stats.norm.ppf((1 + level) / 2))
