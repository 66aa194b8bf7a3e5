"""Estimates real success more narrowly with the help of simulation, and says what that saved.

Paired conditions show what a simulated success is worth; many more simulated conditions show how
often it happens. If the simulator is useless, nothing is gained and next to nothing lost.
"""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import special, stats

from eval.statistics.intervals import Estimate, bounded_mean, wilson
from eval.trust.agreement import harmonic_mean, reach
from eval.trust.pairing import PairedConditions
from eval.trust.repetition import means
from robolearn.seeding import child_seed
from robolearn.shapes import AnyFloats, Floats, OwnFlags, OwnFloats

# Simulated repetitions of what was estimated.
_WORLDS = 4_000
# Coverage, in these, below which no saving is claimed.
_COVERED = 0.94
_STRATIFIED = "post-stratified by simulation"
# Of so few real successes, or failures, simulation tells nothing where the pairs at hand correlate
# by less than this: how rare they are, and where they happen, is not known, and what repetitions of
# the very sample cover says nothing of it (rate .02, n = 10, a useless simulator: .83, where
# Wilson's interval of the real trials covers .98).
_RARE, _RARE_CORRELATION = 3, 0.6
# No saving is claimed where pairs that know nothing of each other would agree as much so often.
_BY_CHANCE = 0.05
_BETTING = "rectified simulation, betting"
# Of the error: for real trials alone, and for how many simulated ones there are (SureSim).
_ALONE, _SIMULATED = 0.25, 0.1
_GRID = 2_001
# Real trials up to which the same table is drawn again and again.
_FEW = 200


@dataclass(frozen=True, slots=True)
class RealEstimate:
    """Mean outcome of one policy in reality, with simulation and without."""

    policy: str
    # ``n`` counts real trials.
    estimate: Estimate
    # The same real trials alone: Wilson's interval of successes, the bounded mean of scores.
    alone: Estimate
    # Simulated conditions, paired ones included.
    simulated: int
    # Of simulated and real outcomes over paired conditions; None where either is constant.
    correlation: float | None
    # Repetitions of this very case (as many trials, this correlation), of successes: how often the
    # intervals with simulation and alone hold the true value, and how much narrower the former is.
    coverage: float | None
    coverage_alone: float | None
    narrower: float | None
    # So many more real trials alone would have been as exact; 0 where that is not sure, or where
    # the pairs may agree by chance.
    saved: int
    # The same of a simulator without any error, predicted from how far a real trial predicts its
    # own repetition; None where that is not known.
    possible: int | None = None


def real_estimate(
    c: PairedConditions, *, repeats: float | None = None, level: float = 0.95, seed: int = 0
) -> RealEstimate:
    """Of paired conditions and those that were only simulated.

    Successes: Bayesian post-stratification, of the first real trial of each condition
    (repetitions are no independent ones). No saving is claimed with fewer than three real
    successes or failures, where the interval is that of the real trials alone unless the pairs
    correlate by .6, nor where pairs agree no more than by chance (p > .05). Scores: bets on what
    simulation gets wrong (Badithela et al. 2025, SureSim, arXiv 2510.04354), valid for every
    distribution of bounded outcomes; with so few trials as robots have they gain nothing over the
    bounded mean of the real ones, and no saving is claimed. Both take the simulated conditions for
    drawn as the real ones were. ``repeats``: how well a real trial predicts its own repetition, if
    it is known.
    """
    binary = all(v in (0.0, 1.0) for outcome in c.real.values() for v in outcome)
    tried = [v[:1] if binary else v for v in c.real.values()]
    real, paired, more = (
        means(side) for side in (tried, c.sim.values(), c.only_simulated.values())
    )
    varies = real.size > 1 and np.ptp(real) > 0 and np.ptp(paired) > 0
    correlation = float(np.corrcoef(real, paired)[0, 1]) if varies else None
    simulated = paired.size + more.size
    if not binary:
        found = _rectified(real, paired, more, level)
        alone = bounded_mean(real, level=level)
        return RealEstimate(c.policy, found, alone, simulated, correlation, *(None,) * 3, saved=0)
    table = _table(real, paired)
    n, k = real.size, int(real.sum())
    alone = wilson(k, n, level)
    likely = np.array([(np.concatenate([paired, more]) >= 0.5).sum()], dtype=np.float64)
    found = alone
    if not _untold(table[None])[0]:
        value, low, high = _stratified(table[None], likely, simulated, level)
        found = Estimate(float(value[0]), float(low[0]), float(high[0]), n, _STRATIFIED, level)
    rng = np.random.default_rng(child_seed(seed, "estimate", c.policy))
    repeated = repetitions(table, more.size, rng, level=level)
    width = max(found.high - found.low, repeated.width)
    covered = repeated.coverage >= _COVERED and min(k, n - k) >= _RARE
    saved = _saved(found.value, n, width, level) if covered and _agree(table) else 0
    possible = None
    if repeats is not None:
        agreed = reach(repeats, 1.0, harmonic_mean([len(v) for v in c.sim.values()]))
        possible = possible_saving(alone.value, n, more.size, agreed, level=level, seed=seed)
    return RealEstimate(
        policy=c.policy,
        estimate=found,
        alone=alone,
        simulated=simulated,
        correlation=correlation,
        coverage=repeated.coverage,
        coverage_alone=repeated.coverage_alone,
        narrower=1.0 - repeated.width / repeated.width_alone,
        saved=saved,
        possible=possible,
    )


def possible_saving(
    rate: float, n: int, more: int, correlation: float, *, level: float = 0.95, seed: int = 0
) -> int:
    """How many more real trials alone would be as exact as ``n`` with ``more`` simulated conditions
    beside them, in a world with this ``rate`` on both sides and this ``correlation`` of single
    outcomes: what can be expected before anything is simulated.
    """
    both = rate**2 + correlation * rate * (1.0 - rate)
    cells = (both, rate - both, rate - both, 1.0 - 2.0 * rate + both)
    table = np.array([n * share for share in cells], dtype=np.float64)
    rng = np.random.default_rng(child_seed(seed, "possible"))
    found = repetitions(table, more, rng, level=level)
    sure = found.coverage >= _COVERED and _agree(table)
    return _saved(rate, n, found.width, level) if sure else 0


@dataclass(frozen=True, slots=True)
class Repetitions:
    """What intervals do over repetitions of a world."""

    coverage: float
    coverage_alone: float
    width: float
    width_alone: float


def repetitions(
    table: Floats,
    more: int,
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    smooth: float = 0.25,
    draws: int = _WORLDS,
) -> Repetitions:
    """Draw as many paired conditions again as ``table`` counts, and ``more`` simulated ones.

    ``table``: how often (both succeed, only simulation, only reality, neither); ``smooth`` is added
    to each, so that what was not seen is not taken for impossible.
    """
    n = round(float(table.sum()))
    shares = (table + smooth) / (table + smooth).sum()
    rate, likely = float(shares[0] + shares[2]), float(shares[0] + shares[1])
    drawn = rng.multinomial(n, shares, draws).astype(np.float64)
    simulated = drawn[:, 0] + drawn[:, 1] + rng.binomial(more, likely, draws)
    k = (drawn[:, 0] + drawn[:, 2]).astype(np.int64)
    low_alone, high_alone = (ends[k] for ends in _wilson_ends(n, level))
    low, high = low_alone.copy(), high_alone.copy()
    if (known := ~_untold(drawn)).any():
        low[known], high[known] = _ends(drawn[known], simulated[known], n + more, level)
    return Repetitions(
        coverage=float(((low <= rate) & (rate <= high)).mean()),
        coverage_alone=float(((low_alone <= rate) & (rate <= high_alone)).mean()),
        width=float((high - low).mean()),
        width_alone=float((high_alone - low_alone).mean()),
    )


def betting_interval(values: Floats, level: float = 0.95) -> tuple[float, float]:
    """Interval of the mean of independent values in [0, 1], valid for every distribution.

    Hedged capital with a number of values fixed beforehand (Waudby-Smith and Ramdas 2024, JRSS B
    86:1, theorem 3): means at which neither bet would have multiplied its capital by 2 / alpha.
    """
    n, alpha = values.size, 1.0 - level
    if n == 0:
        return 0.0, 1.0
    counts = np.arange(1, n + 1)
    centres = (0.5 + np.cumsum(values)) / (counts + 1)
    variances = (0.25 + np.cumsum((values - centres) ** 2)) / (counts + 1)
    before = np.concatenate([[0.25], variances[:-1]])
    bet = np.sqrt(2 * math.log(2 / alpha) / (n * before))
    m, limit = np.linspace(0, 1, _GRID), math.log(2 / alpha)

    def fails(k: int, sign: int) -> bool:
        """Whether the bets that the mean is above (or below) the ``k``-th have failed."""
        share, off = (m[k], values - m[k]) if sign > 0 else (1 - m[k], m[k] - values)
        with np.errstate(divide="ignore"):
            won = np.log1p(np.minimum(bet, 0.5 / share) * off)
        # One after the other: the sum of a column does not depend on how many columns there are.
        return bool(np.cumsum(won)[-1] < limit)

    # The capital of the former falls with the mean, that of the latter rises: both ends are found
    # by halving.
    first = bisect.bisect_left(range(_GRID), 1, key=lambda k: int(fails(k, 1)))
    last = bisect.bisect_left(range(_GRID), 1, key=lambda k: int(not fails(k, -1))) - 1
    if first > last:
        return 0.0, 1.0
    step = 1.0 / (_GRID - 1)
    return max(0.0, float(m[first]) - step), min(1.0, float(m[last]) + step)


def _untold(tables: AnyFloats) -> OwnFlags:
    """Of which ``tables [draws, 4]`` simulation tells too little: rare outcomes, badly paired."""
    both, likely, really, neither = tables.T
    real, sim, n = both + really, both + likely, tables.sum(axis=1)
    spread = np.sqrt(real * (n - real) * sim * (n - sim))
    paired = both * neither - likely * really >= _RARE_CORRELATION * spread
    return (np.minimum(real, n - real) < _RARE) & ~(paired & (spread > 0))


def _agree(table: Floats) -> bool:
    """Whether paired outcomes agree more than by chance: Fisher's exact test, one-sided."""
    both, likely, really, neither = np.rint(table).astype(np.int64).tolist()
    n = both + likely + really + neither
    chance = stats.hypergeom.sf(both - 1, n, both + really, both + likely)
    return bool(chance <= _BY_CHANCE)


def _ends(
    table: AnyFloats, likely: AnyFloats, simulated: int, level: float
) -> tuple[Floats, Floats]:
    """Ends of :func:`_stratified`, each table that was drawn several times once: quantiles of Beta
    distributions take nearly all of the time, and with few trials there are few tables.
    """
    n = int(table[0].sum())
    if n > _FEW:
        _, low, high = _stratified(table, likely, simulated, level)
        return low, high
    rows = np.column_stack([table[:, :3], likely]).astype(np.int64)
    _, first, same = np.unique(
        np.ravel_multi_index(tuple(rows.T), (n + 1, n + 1, n + 1, simulated + 1)),
        return_index=True,
        return_inverse=True,
    )
    _, low, high = _stratified(table[first], likely[first], simulated, level)
    return low[same], high[same]


@functools.lru_cache(maxsize=64)
def _wilson_ends(n: int, level: float) -> tuple[Floats, Floats]:
    """Of 0 to ``n`` successes; policies of one report mostly have as many trials."""
    found = [wilson(k, n, level) for k in range(n + 1)]
    ends = np.array([e.low for e in found]), np.array([e.high for e in found])
    for end in ends:
        end.setflags(write=False)
    return ends


def _table(real: Floats, paired: Floats) -> OwnFloats:
    succeeds, likely = real == 1.0, paired >= 0.5
    cells = (succeeds & likely, ~succeeds & likely, succeeds & ~likely, ~succeeds & ~likely)
    return np.array([cell.sum() for cell in cells], dtype=np.float64)


def _stratified(
    table: AnyFloats, likely: AnyFloats, simulated: int, level: float
) -> tuple[Floats, Floats, Floats]:
    """Mean and ends of the posterior of real success, one per row of ``table [draws, 4]``.

    ``p = q a + (1 - q) b``: real success where simulation succeeds (a) and where it fails (b),
    Jeffreys' priors; simulated success (q) from ``likely`` of all ``simulated`` conditions, uniform
    prior. Of p the first two moments are exact, its quantiles those of the Beta distribution that
    has them. With uniform priors throughout few trials are covered far too little at rates near 0
    and 1 (n = 10: .85).
    """
    a, a2 = _moments(table[:, 0] + 0.5, table[:, 1] + 0.5)
    b, b2 = _moments(table[:, 2] + 0.5, table[:, 3] + 0.5)
    q, q2 = _moments(likely + 1.0, simulated - likely + 1.0)
    mean = q * a + (1 - q) * b
    variance = q2 * a2 + (1 - 2 * q + q2) * b2 + 2 * (q - q2) * a * b - mean**2
    size = mean * (1 - mean) / variance - 1
    tail = (1 - level) / 2
    ends = (special.betaincinv(mean * size, (1 - mean) * size, t) for t in (tail, 1 - tail))
    low, high = ends
    return mean, low, high


def _moments(x: AnyFloats, y: AnyFloats) -> tuple[AnyFloats, AnyFloats]:
    """First and second moment of Beta(x, y)."""
    total = x + y
    return x / total, x * (x + 1) / (total * (total + 1))


def _saved(rate: float, tried: int, width: float, level: float) -> int:
    """How many more than the ``tried`` ones would give an interval of ``width`` alone, at this
    rate. The width is the wider of an interval and what is usual in its case, so that luck is no
    saving.
    """
    n = tried
    while n < 100 * tried:
        e = wilson(round(rate * (n + 1)), n + 1, level)
        if e.high - e.low < width:
            break
        n += 1
    return n - tried


def _rectified(real: Floats, paired: Floats, more: OwnFloats, level: float) -> Estimate:
    """The interval of simulation plus what it gets wrong, and that of real trials alone; their
    errors add up to that of ``level``, so that both may be used at once.
    """
    alpha = 1.0 - level
    rest = alpha * (1 - _ALONE)
    low, high = betting_interval(real, 1 - alpha * _ALONE)
    # The simulated conditions that are not paired are independent of what is wrong in the others.
    if more.size:
        wrong = betting_interval((real - paired + 1) / 2, 1 - rest * (1 - _SIMULATED))
        mean = betting_interval(more, 1 - rest * _SIMULATED)
        low = max(low, mean[0] + 2 * wrong[0] - 1)
        high = min(high, mean[1] + 2 * wrong[1] - 1)
    value = float(np.clip(real.mean(), min(low, high), max(low, high)))
    found = Estimate(value, low, high, real.size, _BETTING, level)
    return found if low <= high else replace(found, low=0.0, high=1.0, value=float(real.mean()))
