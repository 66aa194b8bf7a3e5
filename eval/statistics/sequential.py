"""Keeps statistics valid when one looks after every trial.

Two policies on the same conditions are compared by ``eval/statistics/betting.py``, more than two by
``eval/statistics/group_sequential.py``. Two more tools, by what they assume:

* :func:`betting_sequence`: a confidence sequence for the mean of outcomes in [0, 1] (partial
  credit too); valid at every trial at once, whatever the stopping rule, no maximum needed.
* :class:`SequentialBarnard`: a test of two success rates over *independent* trials (other
  conditions for either policy) with a maximum fixed beforehand; exact level over the unknown common
  rate. Paired trials correlate: its level is then not kept, and its power is wasted.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.statistics.betting import Decision
from eval.statistics.intervals import Estimate, check_level, paired_successes
from robolearn.errors import DataError
from robolearn.shapes import Floats

Array = NDArray[np.float64]

# Bets never exceed this share of what could be lost at once (Waudby-Smith and Ramdas use 1/2 to
# 3/4), so that the capital stays positive.
_SHARE = 0.75
# Trials that are looked at together.
_PART = 10_000
# The level of the exact test is computed at this many common rates; the probability of rejecting is
# a polynomial in the rate, and the margin covers what lies between two of them.
_GRID = 65
_MARGIN = 0.995


@dataclass(frozen=True, slots=True)
class ConfidenceSequence:
    """``low [n]`` and ``high [n]``: after trial ``i`` the mean lies in ``[low[i], high[i]]``, for
    all ``i`` at once with probability ``level``.
    """

    mean: Floats
    low: Floats
    high: Floats
    level: float

    @property
    def last(self) -> Estimate:
        """The interval after the last trial."""
        return Estimate(
            float(self.mean[-1]),
            float(self.low[-1]),
            float(self.high[-1]),
            int(self.mean.size),
            "betting confidence sequence",
            self.level,
        )


def betting_sequence(values: Any, level: float = 0.95, *, grid: int = 1000) -> ConfidenceSequence:
    """Confidence sequence for the mean of values in [0, 1] by hedged betting.

    Source: Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by
    betting", JRSS-B 86:1, theorem 3 and the predictable plug-in bets of its equation 26. Candidates
    for the mean lie on ``grid`` points; the interval is widened by one spacing on either side.
    """
    check_level(level)
    if grid < 1:
        raise DataError(f"the grid has one point at least, got {grid}")
    x = _bounded(values)
    alpha = 1.0 - level
    m = (np.arange(grid) + 0.5) / grid
    bets = _plug_in_bets(x, alpha)
    first, last = np.zeros(x.size, dtype=np.int64), np.full(x.size, grid - 1)
    # In parts, so that a million trials do not take gigabytes.
    log_up, log_down, inside = np.zeros(grid), np.zeros(grid), np.ones(grid, dtype=np.bool_)
    for begin in range(0, x.size, _PART):
        rows = slice(begin, begin + _PART)
        centred, bet = x[rows, None] - m, bets[rows, None]
        up = np.log1p(np.minimum(bet, _SHARE / m) * centred)
        down = np.log1p(-np.minimum(bet, _SHARE / (1.0 - m)) * centred)
        up[0], down[0] = log_up + up[0], log_down + down[0]
        up, down = np.cumsum(up, axis=0), np.cumsum(down, axis=0)
        # Half of the capital bets that the mean is above m, half that it is below.
        capital = np.maximum(up, down) + math.log(0.5)
        alive = np.logical_and.accumulate(capital < -math.log(alpha), axis=0) & inside
        some = alive.any(axis=1)
        first[rows] = np.where(some, alive.argmax(axis=1), 0)
        last[rows] = np.where(some, grid - 1 - alive[:, ::-1].argmax(axis=1), grid - 1)
        log_up, log_down, inside = up[-1], down[-1], alive[-1]
    step = 0.5 / grid
    low = np.maximum.accumulate(np.maximum(0.0, m[first] - 3 * step))
    high = np.minimum.accumulate(np.minimum(1.0, m[last] + 3 * step))
    means = np.cumsum(x) / np.arange(1, x.size + 1)
    return ConfidenceSequence(means, np.where(first == 0, 0.0, low), high, level)


def _plug_in_bets(x: Array, alpha: float) -> Array:
    """Bet ``i`` from the trials before ``i`` only."""
    t = np.arange(1, x.size + 1)
    mean = (0.5 + np.cumsum(x)) / (t + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (t + 1)
    before = np.concatenate([[0.25], variance[:-1]])
    return np.sqrt(2 * math.log(2 / alpha) / (before * t * np.log1p(t)))


@dataclass(frozen=True, slots=True)
class SequentialResult:
    """``decision``: which policy is better, if that is settled; ``trials``: pairs until then (all
    when undecided); ``evidence``: e-value or p value of the method, see ``method``.
    """

    decision: Decision
    trials: int
    evidence: float
    method: str
    alpha: float


class SequentialBarnard:
    """Two success rates, one trial of each per step, at most ``n_max`` steps; exact level.

    The two must be independent. With correlated pairs (phi -0.25, -0.5, -1) the level is .095, .15
    and .28, and at phi 0.6 :func:`eval.statistics.betting.paired_sequence` needs half the trials.

    After step ``t`` with ``(k_a, k_b)`` successes, "b" is declared when the pooled score statistic
    is beyond the boundary of step ``t``. The boundary takes as many states, most extreme first, as
    keep the probability of having declared anything by step ``t`` within ``alpha t / n_max`` for
    every common rate; "a" mirrors it. Under unequal rates, declaring the worse one is less likely
    still, because a region that is monotone in both counts is most likely left on the border of the
    hypothesis. Source: the construction follows Snyder et al. 2025 ("Is your imitation learning
    policy better than mine? Policy comparison with near-optimal stopping", STEP), with a greedy
    order instead of their linear programme.
    """

    def __init__(self, n_max: int, alpha: float = 0.05) -> None:
        if not 1 <= n_max <= 1000:
            raise DataError(f"n_max lies between 1 and 1000 pairs, got {n_max}")
        if not 0 < alpha < 1:
            raise DataError(f"alpha lies between 0 and 1, got {alpha}")
        self.n_max, self.alpha = n_max, alpha
        self.boundary = _boundary(n_max, alpha)

    def decide(self, t: int, k_a: int, k_b: int) -> Decision:
        """The verdict at step ``t`` from the successes so far."""
        if not (1 <= t <= self.n_max and 0 <= k_a <= t and 0 <= k_b <= t):
            raise DataError(
                f"expected 1 <= t <= {self.n_max} and counts up to t, got t={t}, {k_a}, {k_b}"
            )
        z = score_statistic(k_a, k_b, t)
        if z >= self.boundary[t - 1]:
            return "b"
        return "a" if -z >= self.boundary[t - 1] else "undecided"

    def run(self, a: Any, b: Any) -> SequentialResult:
        """Over whole vectors of successes, in the order of the trials."""
        x, y = paired_successes(_bounded(a), _bounded(b))
        steps = min(self.n_max, int(x.size))
        ka, kb = np.cumsum(x > 0), np.cumsum(y > 0)
        method = f"sequential Barnard, n_max {self.n_max}"
        z = np.abs(score_statistic(ka[:steps], kb[:steps], np.arange(1, steps + 1)))
        settled = np.flatnonzero(z >= self.boundary[:steps])
        if not settled.size:
            return SequentialResult("undecided", steps, 1.0, method, self.alpha)
        t = int(settled[0]) + 1
        found = self.decide(t, int(ka[t - 1]), int(kb[t - 1]))
        return SequentialResult(found, t, self.alpha * t / self.n_max, method, self.alpha)


def score_statistic(k_a: Any, k_b: Any, t: Any) -> Any:
    """Pooled z statistic of ``k_b/t - k_a/t`` (0 where both are all or nothing), elementwise."""
    pooled = (np.asarray(k_a, dtype=np.float64) + k_b) / (2 * t)
    spread = np.sqrt(pooled * (1 - pooled) * 2 / t)
    difference = (np.asarray(k_b, dtype=np.float64) - k_a) / t
    return np.divide(difference, spread, out=np.zeros_like(spread), where=spread > 0)


@functools.lru_cache(maxsize=16)
def _boundary(n_max: int, alpha: float) -> Array:
    """Smallest ``|z|`` that decides, per step (infinity: no state does)."""
    # The mirrored rate gives the mirrored distribution, so half of the rates suffice.
    rates = np.linspace(0.0, 0.5, _GRID + 1)[1:]
    alive = np.ones((rates.size, 1, 1))
    spent = np.zeros(rates.size)
    out = np.full(n_max, math.inf)
    p, q = rates[:, None, None], 1 - rates[:, None, None]
    for t in range(1, n_max + 1):
        grown = np.zeros((rates.size, t + 1, t + 1))
        grown[:, :-1, :-1] = alive * q * q
        grown[:, 1:, :-1] += alive * p * q
        grown[:, :-1, 1:] += alive * p * q
        grown[:, 1:, 1:] += alive * p * p
        counts = np.arange(t + 1)
        z = np.abs(score_statistic(counts[:, None], counts[None, :], t))
        budget = _MARGIN * alpha * t / n_max - spent
        # Only living states near the last boundary can be on the next one.
        floor = 0.7 * out[t - 2] if t > 1 and math.isfinite(out[t - 2]) else 0.0
        near = (z > floor) & (grown[0] > 0)
        out[t - 1] = _threshold(z[near], grown[:, near], budget)
        if floor and out[t - 1] < floor + 1e-6:
            out[t - 1] = _threshold(z.ravel(), grown.reshape(rates.size, -1), budget)
        gone = z >= out[t - 1]
        spent = spent + grown[:, gone].sum(axis=1)
        alive = np.where(gone, 0.0, grown)
    return out


def _threshold(z: Array, mass: Array, budget: Array) -> float:
    """The smallest threshold on ``z [s]`` whose states hold at most ``budget [r]`` at every rate;
    ``mass [r, s]``. Infinity when not even the most extreme states fit.
    """
    # Equal statistics up to rounding are decided alike.
    levels, index = np.unique(np.round(z, 9), return_inverse=True)
    sums = np.stack([np.bincount(index, row, minlength=levels.size) for row in mass])
    allowed = (np.cumsum(sums[:, ::-1], axis=1) <= budget[:, None]).all(axis=0)
    kept = levels.size if allowed.all() else int(np.argmin(allowed))
    return float(levels[::-1][kept - 1]) - 1e-9 if kept and levels[::-1][kept - 1] > 0 else math.inf


def _bounded(values: Any) -> Array:
    x = np.asarray(values, dtype=np.float64).reshape(-1)
    if x.size == 0:
        raise DataError("a sequential procedure needs at least one trial")
    if not (np.isfinite(x).all() and (x >= 0).all() and (x <= 1).all()):
        raise DataError("outcomes must be finite and lie in [0, 1] (success or progress)")
    return x
