"""Measures how well simulated rates of policies agree with real ones, many draws at a time.

Every function takes ``sim [draws, policies]`` and ``real [draws, policies]`` by keyword, because
several measures are not symmetric: SIMPLER's documented call swaps the two, and what came out was
published. What is not defined (a correlation of a constant) is nan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray
from scipy import stats

from eval.statistics.intervals import Estimate
from eval.statistics.intervals import pearson as pearson_estimate
from eval.statistics.ranking import spearman as spearman_estimate
from robolearn.shapes import FloatRows, Floats

# Rates closer than this are equal: means over tasks are added up in different orders.
_SAME = 1e-12

# Which values are good: high ones, low ones, or those near what is ideal.
Good = Literal["high", "low", "near"]
Ranks = Int64[NDArray[np.int64], "draws policies"]
Counts = Int64[NDArray[np.int64], " draws"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of agreement."""

    name: str
    # What tables call it.
    words: str
    of: Callable[..., Floats]
    good: Good
    # What a perfect simulator with endless trials has.
    ideal: float
    # The same from counts over pairs, which several measures share.
    of_pairs: Callable[..., Floats] | None = None


def pearson(*, sim: FloatRows, real: FloatRows) -> Floats:
    """Correlation of the rates; nan where either is constant."""
    s = sim - sim.mean(axis=1, keepdims=True)
    r = real - real.mean(axis=1, keepdims=True)
    scale = np.sqrt((s**2).sum(axis=1) * (r**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.clip((s * r).sum(axis=1) / scale, -1.0, 1.0)
    return np.where(_constant(sim) | _constant(real) | (scale == 0), np.nan, value)


def spearman(*, sim: FloatRows, real: FloatRows) -> Floats:
    """Pearson's of the ranks, ties share theirs."""
    value = pearson(sim=_ranks(sim), real=_ranks(real))
    return np.where(_constant(sim) | _constant(real), np.nan, value)


def kendall(*, sim: FloatRows, real: FloatRows) -> Floats:
    """Tau b: concordant less discordant pairs, scaled for ties; nan where either is constant."""
    return _kendall(_Pairs.of(sim=sim, real=real), sim=sim, real=real)


def _kendall(pairs: _Pairs, *, sim: FloatRows, real: FloatRows) -> Floats:
    scale = np.sqrt(pairs.sim_apart * pairs.real_apart)
    with np.errstate(invalid="ignore", divide="ignore"):
        defined = (scale > 0) & ~(_constant(sim) | _constant(real))
        return np.where(defined, (pairs.concordant - pairs.discordant) / scale, np.nan)


def mmrv(*, sim: FloatRows, real: FloatRows) -> Floats:
    """Mean maximum rank violation as SIMPLER computes it (Li et al. 2024, arXiv 2405.05941):
    for every policy the largest real gap to one that the simulator puts on the other side of it,
    ``(s_i > s_j) != (r_i > r_j)``, and their mean. 0 is the best.

    Over ``j`` that are simulated worse the largest gap is to the best real one among them, over the
    others to the worst real one: a sort instead of all pairs.
    """
    order = np.argsort(sim, axis=1, kind="stable")
    s, r = (np.take_along_axis(v, order, axis=1) for v in (sim, real))
    draws, k = s.shape
    index = np.broadcast_to(np.arange(k), (draws, k))
    begins = np.diff(s, axis=1, prepend=-np.inf) > _SAME
    first = np.maximum.accumulate(np.where(begins, index, 0), axis=1)
    best = np.maximum.accumulate(r, axis=1)
    worst = np.minimum.accumulate(r[:, ::-1], axis=1)[:, ::-1]
    before = np.take_along_axis(best, np.maximum(first - 1, 0), axis=1)
    over_worse = np.where(first > 0, before - r, 0.0)
    over_others = r - np.take_along_axis(worst, first, axis=1)
    return np.maximum(np.maximum(over_worse, over_others), 0.0).mean(axis=1)


def pairwise_rank_loss(*, sim: FloatRows, real: FloatRows) -> Floats:
    """Share of pairs in the wrong order; a tie on one side alone counts half."""
    return _rank_loss(_Pairs.of(sim=sim, real=real), sim=sim, real=real)


def _rank_loss(pairs: _Pairs, *, sim: FloatRows, real: FloatRows) -> Floats:
    del sim, real
    both = pairs.concordant + pairs.discordant
    one_sided = pairs.sim_apart + pairs.real_apart - 2 * both
    return (pairs.discordant + 0.5 * one_sided) / pairs.all


def top1_regret(*, sim: FloatRows, real: FloatRows) -> Floats:
    """Real rate lost by taking the simulator's best; of several best ones the mean is taken."""
    chosen = sim >= sim.max(axis=1, keepdims=True) - _SAME
    lost = real.max(axis=1) - (real * chosen).sum(axis=1) / chosen.sum(axis=1)
    return np.maximum(lost, 0.0)


def bias(*, sim: FloatRows, real: FloatRows) -> Floats:
    """Mean of simulated less real rates."""
    return (sim - real).mean(axis=1)


def mae(*, sim: FloatRows, real: FloatRows) -> Floats:
    """Mean absolute difference of the rates."""
    return np.abs(sim - real).mean(axis=1)


def ccc(*, sim: FloatRows, real: FloatRows) -> Floats:
    """Lin's concordance correlation coefficient (Lin 1989, Biometrics 45:255); nan where both are
    the same constant.
    """
    cov = ((sim - sim.mean(axis=1, keepdims=True)) * real).mean(axis=1)
    scale = sim.var(axis=1) + real.var(axis=1) + (sim.mean(axis=1) - real.mean(axis=1)) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(scale > _SAME**2, np.clip(2 * cov / scale, -1.0, 1.0), np.nan)


def slope(*, sim: FloatRows, real: FloatRows) -> Floats:
    """Of the line ``real = intercept + slope sim`` by least squares; 1 is calibrated. nan where the
    simulator is constant.
    """
    s = sim - sim.mean(axis=1, keepdims=True)
    scale = (s**2).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(_constant(sim) | (scale == 0), np.nan, (s * real).sum(axis=1) / scale)


def intercept(*, sim: FloatRows, real: FloatRows) -> Floats:
    """Of the line of :func:`slope`; 0 is calibrated."""
    return real.mean(axis=1) - slope(sim=sim, real=real) * sim.mean(axis=1)


_ALL = (
    Measure("pearson", "Pearson", pearson, "high", 1.0),
    Measure("spearman", "Spearman", spearman, "high", 1.0),
    Measure("kendall", "Kendall tau b", kendall, "high", 1.0, _kendall),
    Measure("mmrv", "MMRV", mmrv, "low", 0.0),
    Measure(
        *("pairwise_rank_loss", "pairs ranked wrong", pairwise_rank_loss, "low", 0.0), _rank_loss
    ),
    Measure("top1_regret", "top-1 regret", top1_regret, "low", 0.0),
    Measure("bias", "bias", bias, "near", 0.0),
    Measure("mae", "mean abs. difference", mae, "low", 0.0),
    Measure("ccc", "Lin's CCC", ccc, "high", 1.0),
    Measure("slope", "calibration slope", slope, "near", 1.0),
    Measure("intercept", "calibration intercept", intercept, "near", 0.0),
)
MEASURES: Mapping[str, Measure] = {m.name: m for m in _ALL}
# Measures of order, which a pairing by chance says something about.
OF_ORDER = ("pearson", "spearman", "kendall", "mmrv", "pairwise_rank_loss", "top1_regret", "ccc")
# Two policies are always on a line.
NEEDS_THREE = ("pearson", "spearman", "kendall", "ccc", "slope", "intercept")


def values(
    *, sim: FloatRows, real: FloatRows, names: Sequence[str] = tuple(MEASURES)
) -> dict[str, Floats]:
    """Measures of every draw; pairs of policies are counted once for all of them."""
    chosen = {name: MEASURES[name] for name in names}
    wanted = any(m.of_pairs is not None for m in chosen.values())
    pairs = _Pairs.of(sim=sim, real=real) if wanted else None
    return {
        name: m.of(sim=sim, real=real)
        if pairs is None or m.of_pairs is None
        else m.of_pairs(pairs, sim=sim, real=real)
        for name, m in chosen.items()
    }


def fisher_z(name: str, *, sim: Floats, real: Floats, level: float) -> Estimate | None:
    """The interval by Fisher's z of Pearson's or Spearman's correlation, where it is valid: more
    than three policies, and for Pearson's no perfect line.
    """
    if sim.size <= 3:
        return None
    if name == "pearson":
        found = pearson_estimate(sim, real, level)
        return found if abs(found.value) < 1.0 - 1e-9 else None
    found = spearman_estimate(sim, real, level) if name == "spearman" else None
    return found if found is not None and np.isfinite(found.value) else None


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Counts over all pairs of policies, per draw."""

    concordant: Floats
    discordant: Floats
    sim_apart: Floats
    real_apart: Floats
    all: float

    @staticmethod
    def of(*, sim: FloatRows, real: FloatRows) -> _Pairs:
        """Counts by sorting rounded rates, as many policies have too many pairs to go through."""
        k = sim.shape[1]
        s, r = (_dense(v) for v in (sim, real))
        both = np.sort(s * k + r, axis=1)
        every = k * (k - 1) // 2
        tied = [_tied(v) for v in (np.sort(s, axis=1), np.sort(r, axis=1), both)]
        s_apart, r_apart = (every - t for t in tied[:2])
        discordant = _inversions(both % k)
        concordant = every - tied[0] - tied[1] + tied[2] - discordant
        return _Pairs(
            concordant=concordant.astype(np.float64),
            discordant=discordant.astype(np.float64),
            sim_apart=s_apart.astype(np.float64),
            real_apart=r_apart.astype(np.float64),
            all=float(max(1, every)),
        )


def _tied(ordered: Ranks) -> Counts:
    """Pairs that are equal, per row of sorted numbers."""
    index = np.broadcast_to(np.arange(ordered.shape[1]), ordered.shape)
    begins = np.diff(ordered, axis=1, prepend=-1) > 0
    return (index - np.maximum.accumulate(np.where(begins, index, 0), axis=1)).sum(axis=1)


def _inversions(found: Ranks) -> Counts:
    """Pairs of which the larger number stands first, per row: each at the highest bit in which both
    differ, among those that are alike above it.
    """
    count = np.zeros(len(found), dtype=np.int64)
    for bit in reversed(range((found.shape[1] - 1).bit_length())):
        above, ones = found >> (bit + 1), (found >> bit) & 1
        begins = np.diff(above, axis=1, prepend=-1) > 0
        before = np.cumsum(ones, axis=1) - ones
        before = before - np.maximum.accumulate(np.where(begins, before, 0), axis=1)
        count += (before * (1 - ones)).sum(axis=1)
        order = np.argsort((found >> bit).astype(np.int16), axis=1, kind="stable")
        found = np.take_along_axis(found, order, axis=1)
    return count


def _dense(values: FloatRows) -> Ranks:
    return stats.rankdata(np.round(values, 12), "dense", axis=1).astype(np.int64) - 1


def _ranks(values: FloatRows) -> FloatRows:
    return stats.rankdata(np.round(values, 12), axis=1).astype(np.float64)


def _constant(values: FloatRows) -> np.ndarray:
    return np.ptp(values, axis=1) <= _SAME
