"""Says what measures of agreement would have been: with other trials, other policies, one policy
less, a simulator that is perfect, one that knows nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eval.trust.measures import MEASURES, OF_ORDER, values
from eval.trust.tables import TaskTable
from robolearn.seeding import child_seed
from robolearn.shapes import FloatRows, Floats

# Draws of few policies, and how many pairs of policies all draws of many may compare.
_MOST, _LEAST, _PAIRS = 2_000, 200, 36_000_000
# Most policies of which each is left out once.
_DROPPED = 500
# All orders of so many policies are gone through; of more, some are drawn.
_ENUMERATED = 7

Span = tuple[float, float]
Values = Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """What a perfect simulator scores with these numbers of trials, over repetitions."""

    mean: float
    p5: float
    p95: float


@dataclass(frozen=True, slots=True)
class Chance:
    """What a simulator scores that knows nothing: simulated rates dealt out at random."""

    # Share of random orders at least as good as what was seen (one-sided permutation test).
    p: float
    # What one in twenty random orders reaches or betters.
    reached: float


def draws_of(k: int) -> int:
    """How many draws stand for a distribution over tables of ``k`` policies."""
    return int(np.clip(_PAIRS // max(1, k * k), _LEAST, _MOST))


def over_trials(table: TaskTable, level: float, seed: int) -> dict[str, Span]:
    """Percentiles over the trials done again (parametric bootstrap)."""
    if not table.noisy:
        return {}
    rng = _rng(seed, "trials", table.task)
    sim, real = table.redrawn(draws_of(table.k), rng)
    return _spans(values(sim=sim, real=real), level)


def over_policies(table: TaskTable, level: float, seed: int) -> dict[str, Span]:
    """Percentiles over as many policies drawn with replacement; nothing of three or fewer."""
    if table.k <= 3:
        return {}
    draws = draws_of(table.k)
    rows = _rng(seed, "policies", table.task).integers(0, table.k, (draws, table.k))
    return _spans(values(sim=table.sim[rows], real=table.real[rows]), level)


def drop_one(table: TaskTable) -> dict[str, Span]:
    """Smallest and largest value with any one policy left out; nothing of three or fewer, nor of so
    many that one makes no difference.
    """
    k = table.k
    if not 3 < k <= _DROPPED:
        return {}
    rows = np.array([[j for j in range(k) if j != i] for i in range(k)])
    found = values(sim=table.sim[rows], real=table.real[rows])
    return {
        name: (float(v[np.isfinite(v)].min()), float(v[np.isfinite(v)].max()))
        for name, v in found.items()
        if np.isfinite(v).any()
    }


def noise_floor(
    table: TaskTable, seed: int, names: Sequence[str] = tuple(MEASURES)
) -> dict[str, NoiseFloor]:
    """A perfect simulator's scores (parametric bootstrap from the real rates)."""
    rng = _rng(seed, "perfect", table.task)
    return _floors(*table.perfect(draws_of(table.k), rng), names) if table.noisy else {}


def order_floor(table: TaskTable, seed: int) -> dict[str, NoiseFloor]:
    """Spearman's correlation and MMRV of a simulator whose order is perfect, with the bias and the
    scale of this one: the closer together its rates, the more often noise swaps them.
    """
    rng = _rng(seed, "ordered", table.task)
    names = ("spearman", "mmrv")
    return _floors(*table.ordered(draws_of(table.k), rng), names) if table.noisy else {}


def _floors(sim: FloatRows, real: FloatRows, names: Sequence[str]) -> dict[str, NoiseFloor]:
    out: dict[str, NoiseFloor] = {}
    for name, v in values(sim=sim, real=real, names=names).items():
        known = v[np.isfinite(v)]
        if known.size * 2 >= v.size:
            p5, p95 = np.percentile(known, (5, 95))
            out[name] = NoiseFloor(float(known.mean()), float(p5), float(p95))
    return out


def chance(table: TaskTable, seed: int, names: Sequence[str] = OF_ORDER) -> dict[str, Chance]:
    """Scores of random orders: all of them of few policies."""
    if table.k < 2:
        return {}
    sim, real = table.sim, table.real
    if table.k <= _ENUMERATED:
        orders, more = np.array(list(itertools.permutations(range(table.k)))), 0
    else:
        rng = _rng(seed, "chance", table.task)
        orders, more = rng.permuted(np.tile(np.arange(table.k), (draws_of(table.k), 1)), axis=1), 1
    seen = values(sim=sim[None], real=real[None], names=names)
    found = values(sim=sim[orders], real=np.broadcast_to(real, orders.shape), names=names)
    out: dict[str, Chance] = {}
    for name in names:
        v, at = found[name], float(seen[name][0])
        if not (math.isfinite(at) and np.isfinite(v).all()):
            continue
        high = MEASURES[name].good == "high"
        as_good = int(np.sum(v >= at - 1e-9) if high else np.sum(v <= at + 1e-9))
        reached = float(np.percentile(v, 95 if high else 5))
        out[name] = Chance((as_good + more) / (v.size + more), reached)
    return out


def least_p(k: int) -> float:
    """The p value of a perfect order of ``k`` policies: nothing better can be shown with them."""
    return 1.0 / math.factorial(min(k, 170))


def _spans(found: Values, level: float) -> dict[str, Span]:
    """Of draws in which a measure is defined, where these are at least half."""
    tail = 50 * (1 - level)
    out: dict[str, Span] = {}
    for name, v in found.items():
        known = v[np.isfinite(v)]
        if known.size * 2 >= v.size:
            low, high = np.percentile(known, (tail, 100 - tail))
            out[name] = (float(low), float(high))
    return out


def _rng(seed: int, *names: str) -> np.random.Generator:
    return np.random.default_rng(child_seed(seed, "trust", *names))
