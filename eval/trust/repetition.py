"""Asks how well a trial predicts its own repetition: what the start alone explains."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from eval.statistics.intervals import Estimate, clopper_pearson
from robolearn.shapes import FloatRows, Floats

_DRAWS = 2_000
# Fewer starts that were repeated say nothing of how far a trial predicts its repetition.
LEAST = 5

Array = NDArray[np.float64]
# Each condition's outcomes.
Outcome = tuple[float, ...]


def means(outcomes: Collection[Outcome]) -> Floats:
    """The mean outcome ``[conditions]`` of each; of as many trials each all at once."""
    if len({len(o) for o in outcomes}) == 1:
        return np.array(list(outcomes), dtype=np.float64).mean(axis=1)
    return np.array([np.mean(o) for o in outcomes], dtype=np.float64)


def repetition(
    policies: Sequence[Mapping[str, Outcome]], *, level: float = 0.95, seed: int = 0
) -> Estimate | None:
    """Share of the variance of a single outcome that its condition explains, within policies.

    One-way analysis of variance within each policy (Searle, Casella and McCulloch 1992, section
    3.6), not below 0; interval by drawing starts anew. Only of what was repeated (``n`` pairs of
    policy and condition): policies vary by different amounts, and those without repetitions would
    stand in one variance and not in the other. None of fewer than two, or where all outcomes are
    the same.
    """
    table = _sums(policies)
    repeated, starts = int(table[0].sum()), table.shape[2]
    value = float(_shares(table.sum(axis=2)[:, None])[0]) if repeated > 1 else math.nan
    method = "intra-class correlation, starts drawn anew"
    if math.isnan(value):
        return None
    if starts < LEAST:
        return Estimate(value, 0.0, 1.0, repeated, method, level)
    drawn = np.tensordot(starts_drawn(starts, seed), table, axes=([1], [2]))
    low, high = expanded(_shares(drawn.transpose(1, 0, 2)), starts, level)
    low, high = min(low, value), max(high, value)
    if table[4].sum() <= 1e-12:
        # Every repetition ended alike; so many do not exclude that some would not.
        differ = clopper_pearson(0, repeated, level).high / 2.0
        total = float(table[5].sum() / table[1].sum())
        low = max(0.0, min(low, 1.0 - differ / total))
    return Estimate(value, low, high, repeated, method, level)


def share_repeated(policies: Sequence[Mapping[str, Outcome]]) -> float | None:
    """The value of :func:`repetition`; None, too, of fewer than :data:`LEAST` repeated starts."""
    table = _sums(policies)
    if table.shape[2] < LEAST:
        return None
    value = float(_shares(table.sum(axis=2)[:, None])[0])
    return None if math.isnan(value) else value


def _sums(policies: Sequence[Mapping[str, Outcome]]) -> Array:
    """What :func:`_shares` adds up, ``[6, policies, starts]``, of what was repeated."""
    every = [{name: o for name, o in side.items() if len(o) > 1} for side in policies]
    sides = [side for side in every if side]
    at = {name: i for i, name in enumerate(dict.fromkeys(n for side in sides for n in side))}
    table = np.zeros((6, len(sides), len(at)))
    for k, side in enumerate(sides):
        where = [at[name] for name in side]
        size = np.array([len(o) for o in side.values()], dtype=np.float64)
        centre = means(side.values())
        inner = [float(((np.array(o) - m) ** 2).sum())
                 for o, m in zip(side.values(), centre, strict=True)]  # fmt: skip
        centre = centre - (size * centre).sum() / size.sum()
        table[:, k, where] = (np.ones_like(size), size, size**2, size * centre, inner,
                              size * centre**2)  # fmt: skip
    return table


def _shares(sums: Array) -> Floats:
    """Intra-class correlations ``[draws]`` from sums ``[6, draws, policies]`` over the conditions:
    of 1, n, n², n m, squares around m, n m² (``m``: mean of a condition's ``n`` trials).
    """
    count, n, nn, nm, inner, nmm = sums
    there = count > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        groups = (count - there).sum(axis=1)
        within = inner.sum(axis=1) / (n - count).sum(axis=1)
        across = np.where(there, nmm - nm**2 / n, 0.0).sum(axis=1) / groups
        size = np.where(there, n - nn / n, 0.0).sum(axis=1) / groups
        between = np.maximum(0.0, (across - within) / size)
        found = between / (between + within)
    return np.where(np.isfinite(found), found, np.nan)


def starts_drawn(n: int, seed: int) -> FloatRows:
    """How often each of ``n`` starts is drawn, ``[draws, n]``."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(n, np.full(n, 1.0 / n), _DRAWS).astype(np.float64)


def expanded(drawn: Floats, n: int, level: float) -> tuple[float, float]:
    """Percentiles, farther out where ``n`` starts are few: a bootstrap of so few is too narrow by
    about what Student's t is wider than a normal distribution (Hesterberg 2015, "What teachers
    should know about the bootstrap", Am. Stat. 69:371, the expanded percentile interval).
    """
    known = drawn[np.isfinite(drawn)]
    if not known.size:
        return math.inf, -math.inf
    reach_of_t = math.sqrt(n / (n - 1)) * float(stats.t.ppf((1.0 - level) / 2.0, n - 1))
    tail = 100.0 * float(stats.norm.cdf(reach_of_t))
    low, high = np.percentile(known, (tail, 100.0 - tail))
    return float(low), float(high)
