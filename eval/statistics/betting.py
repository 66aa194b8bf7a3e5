"""Compares two policies by bets on the differences of their pairs; valid whenever one looks.

A pair on which both did equally well neither wins nor loses a bet on equal means: with successes
only the discordant pairs count, each of which is a fair coin if the success rates are equal,
however the two correlate. The interval of the difference inverts the same bets, so that it leaves
out 0 exactly when there is a decision, and it holds at the trial where one stopped.

Sources: Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting",
JRSS-B 86:1 (capital process, section 4); the mixture over bets is Robbins' (1970, Ann. Math. Stat.
41:1397) and, as a portfolio, Cover's (Orabona and Jun 2024, IEEE Trans. Inf. Theory 70:436).
"""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from eval.statistics.intervals import Estimate, paired_values
from robolearn.errors import DataError
from robolearn.shapes import AnyFloats, Floats

Array = NDArray[np.float64]
Decision = Literal["a", "b", "undecided"]

# Each of so many bettors stakes a fixed share of what can be lost, spread evenly over (0, 1);
# their average is a fair bet, too. None goes bankrupt.
_BETTORS = 64
# Trials that are looked at together.
_PART = 10_000
SHARES: Array = (np.arange(_BETTORS) + 0.5) / _BETTORS
SHARES.flags.writeable = False


@dataclass(frozen=True, slots=True)
class PairedSequence:
    """What was settled about the mean of ``b - a``, and after how many pairs.

    ``decision`` is that of the first pair at which the bets sufficed; later pairs do not change it.
    """

    decision: Decision
    # Pairs until the decision (all of them when undecided).
    trials: int
    # Pairs on which the two differed, of all pairs.
    differing: int
    # Mean difference over all pairs; the interval holds for every stopping rule.
    estimate: Estimate
    # Valid at any stop: the chance of ever seeing so small a value under equality is at most that.
    p_value: float
    alpha: float
    method: str


def paired_sequence(a: Any, b: Any, alpha: float = 0.05) -> PairedSequence:
    """Successes or scores in [0, 1] of two policies, paired, in the order of the trials.

    Half of the error is spent on either direction. The mean difference must be the same for all
    trials (given those before): what changes on the way is neither policy nor world.
    """
    x, y = paired_values(a, b)
    if not 0 < alpha < 1:
        raise DataError(f"alpha lies between 0 and 1, got {alpha}")
    if x.size == 0:
        raise DataError("a sequential procedure needs at least one trial")
    if min(x.min(), y.min()) < 0 or max(x.max(), y.max()) > 1:
        raise DataError("outcomes lie in [0, 1] (success or progress)")
    d, wall = y - x, math.log(2.0 / alpha)
    for_b, for_a = log_capital(d, 0.0), log_capital(-d, 0.0)
    decision, trials = _first(for_b, for_a, wall)
    largest = max(float(for_b.max()), float(for_a.max()))
    binary = bool(np.isin(x, (0.0, 1.0)).all() and np.isin(y, (0.0, 1.0)).all())
    method = "betting on discordant pairs" if binary else "betting on differences"
    low, high = _ends(d, wall)
    return PairedSequence(
        decision,
        trials,
        int(np.count_nonzero(d)),
        Estimate(float(d.mean()), low, high, int(d.size), method, 1.0 - alpha),
        min(1.0, 2.0 * math.exp(-largest)),
        alpha,
        method,
    )


def log_capital(d: Floats, mean: float) -> Floats:
    """Logarithm of the capital ``[n]`` after each difference ``d [n]`` of those who bet that the
    mean is above ``mean``; it starts at 0 and does not grow on average if the mean is at most that.

    The capital falls as ``mean`` rises, so that what it refutes is an interval.
    """
    capital, logs = np.empty_like(d), np.zeros(SHARES.size)
    # In parts, so that a million trials do not take gigabytes.
    for begin in range(0, d.size, _PART):
        rows = slice(begin, begin + _PART)
        # The most that a difference of -1 can cost is the stake.
        gains = np.log1p(np.multiply.outer((d[rows] - mean) / (1.0 + mean), SHARES))
        gains[0] += logs
        gains = np.cumsum(gains, axis=0)
        capital[rows], logs = _log_mean(gains), gains[-1]
    return capital


def log_capital_of_counts(better: Any, worse: Any) -> AnyFloats:
    """:func:`log_capital` against equality after so many discordant pairs of either kind."""
    better, worse = (np.asarray(v, dtype=np.float64)[..., None] for v in (better, worse))
    return _log_mean(better * np.log1p(SHARES) + worse * np.log1p(-SHARES))


def _log_mean(logs: Array) -> Array:
    largest = logs.max(axis=-1)
    return np.asarray(largest + np.log(np.exp(logs - largest[..., None]).mean(axis=-1)))


def _first(for_b: Array, for_a: Array, wall: float) -> tuple[Decision, int]:
    settled = np.flatnonzero((for_b >= wall) | (for_a >= wall))
    if not settled.size:
        return "undecided", int(for_b.size)
    at = int(settled[0])
    return ("b" if for_b[at] >= wall else "a"), at + 1


def _ends(d: Array, wall: float) -> tuple[float, float]:
    """What no bet has refuted at any time; if that is nothing, what was left just before."""

    @functools.cache
    def ends(n: int) -> tuple[float, float]:
        return _largest_refuted(d[:n], wall), -_largest_refuted(-d[:n], wall)

    def empty(n: int) -> bool:
        low, high = ends(n)
        return low > high

    if not empty(d.size):
        return ends(d.size)
    return ends(bisect.bisect_left(range(d.size + 1), True, lo=1, key=empty) - 1)


def _largest_refuted(d: Array, wall: float) -> float:
    """The largest mean that the upward bets have refuted at some time, by bisection."""
    low, high = -1.0, 1.0
    # Zero first, so that the interval and the decision agree to the last bit.
    middle = 0.0
    while high - low > 1e-6:
        if float(log_capital(d, middle).max()) >= wall:
            low = middle
        else:
            high = middle
        middle = (low + high) / 2.0
    # What was refuted is outside of the interval, also when it is 0.
    return low if low == -1.0 else low + 1e-12
