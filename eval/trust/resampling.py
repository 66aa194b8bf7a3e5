"""Says what measures of agreement would have been: with other trials, other policies, one policy
less, a simulator that is perfect, one that knows nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from eval.statistics.intervals import wilson_ends
from eval.trust.measures import MEASURES, OF_ORDER, mmrv, pearson, values
from eval.trust.tables import TaskTable
from eval.trust.true_rates import true_rates
from robolearn.seeding import child_seed
from robolearn.shapes import Flags, FloatRows, Floats

# Draws of few policies, and how many pairs of policies all draws of many may compare.
_MOST, _LEAST, _PAIRS = 2_000, 200, 36_000_000
# Most policies of which each is left out once.
_DROPPED = 500
# All orders of so many policies are gone through; of more, some are drawn.
_ENUMERATED = 7
# A share is told from a limit at this level, in at most so many times the draws.
_SURE, _BATCHES = 0.99, 20

# Measures of the calibration line; and those that a simulator may have perfect whose rates are not.
_LINE = ("slope", "intercept")
_SCALED = tuple(name for name in OF_ORDER if name != "ccc")
# Share of lines that may go down where the line is said to rise.
_FLAT = 0.001

Span = tuple[float, float]
Orders = Int64[NDArray[np.int64], "orders policies"]
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


@dataclass(frozen=True, slots=True)
class Share:
    """How often something happens by chance: counted in draws, or in all cases there are."""

    count: int
    draws: int
    exact: bool = False

    @property
    def value(self) -> float:
        """In [0, 1]."""
        return self.count / self.draws

    @property
    def ends(self) -> Span:
        """Between which it lies for sure, as far as draws tell."""
        if self.exact:
            return self.value, self.value
        return wilson_ends(self.value, float(self.draws), _SURE)

    def told(self, limit: float) -> bool:
        """Whether it is told on which side of ``limit`` it lies."""
        low, high = self.ends
        return self.exact or not low < limit < high


@dataclass(frozen=True)
class Drawn:
    """Simulators drawn from ``table``, each once for all that looks at it: ``(sim, real)``."""

    table: TaskTable
    seed: int

    @cached_property
    def perfect(self) -> tuple[FloatRows, FloatRows]:
        """With exactly the real rates."""
        rng = _rng(self.seed, "perfect", self.table.task)
        return self.table.by_name.perfect(draws_of(self.table.k), rng)

    @cached_property
    def ordered(self) -> tuple[FloatRows, FloatRows]:
        """With the perfect order, the bias and the scale of this one."""
        rng = _rng(self.seed, "ordered", self.table.task)
        return self.table.by_name.ordered(draws_of(self.table.k), rng)


def draws_of(k: int) -> int:
    """How many draws stand for a distribution over tables of ``k`` policies."""
    return int(np.clip(_PAIRS // max(1, k * k), _LEAST, _MOST))


def over_trials(
    table: TaskTable, level: float, seed: int, drawn: Drawn | None = None
) -> dict[str, Span]:
    """Intervals of what endless trials of these policies would say.

    Most measures are worse with noise than they are, and worse still in trials done again: theirs
    are of the :func:`true_rates`, up to what was seen where that lies outside, and up to the ideal
    where a simulator that has it is as bad so often. Those of the calibration line, which that
    model draws towards the diagonal, are of the trials done again.
    """
    if not table.noisy:
        return {}
    table, draws = table.by_name, draws_of(table.k)
    seen = {n: float(v[0]) for n, v in values(sim=table.sim[None], real=table.real[None]).items()}
    others = [name for name in MEASURES if name not in _LINE]
    sim, real = true_rates(table, draws, _rng(seed, "true", table.task))
    found = _spans(values(sim=sim, real=real, names=others), level)
    ideal = _ideal(drawn or Drawn(table, seed), level)
    related = found.get("pearson", (-1.0, 1.0))[0] > 0
    for name, span in found.items():
        ends = [*span, seen[name]]
        # A line that may be flat says of every order that it may be the perfect one.
        if name in ideal and (related or name not in _SCALED):
            low, high = ideal[name]
            if low - 1e-9 <= seen[name] <= high + 1e-9:
                ends.append(MEASURES[name].ideal)
        found[name] = (min(ends), max(ends))
    found |= _spans(_lines(table, seen, draws, seed), level)
    return {name: span for name, span in found.items() if math.isfinite(seen[name])}


def _ideal(drawn: Drawn, level: float) -> dict[str, Span]:
    """What simulators have that are perfect: in rates; in order alone, for measures of that."""
    sides = ((_SCALED, drawn.ordered), (("mae", "ccc"), drawn.perfect))
    out: dict[str, Span] = {}
    for names, (sim, real) in sides:
        for name, (low, high) in _spans(values(sim=sim, real=real, names=names), level).items():
            best = MEASURES[name].ideal
            out[name] = (low, best) if MEASURES[name].good == "high" else (best, high)
    return out


def _lines(table: TaskTable, seen: Mapping[str, float], draws: int, seed: int) -> Values:
    """Calibration lines as far from the one that was seen as that is from those of trials done
    again (basic bootstrap): noise flattens every line by the same factor once more. None where all
    trials of a world ended alike for each policy: they have no noise there, and are not known to
    have none.
    """
    sim, real = table.redrawn(draws, _rng(seed, "trials", table.task))
    steep = values(sim=sim, real=real, names=("slope",))["slope"]
    sides = ((table.sim_trials, sim), (table.real_trials, real))
    if any(trials is not None and np.ptp(drawn, axis=0).max() == 0 for trials, drawn in sides):
        return {}
    known = steep[np.isfinite(steep)]
    if known.size and seen["slope"] > 0 and np.mean(known > 0) > 1 - _FLAT:
        with np.errstate(divide="ignore"):
            steep = np.where(steep > 0, seen["slope"] ** 2 / steep, np.nan)
    else:
        steep = 2 * seen["slope"] - steep
    sim_mean, real_mean = (
        2 * rates.mean() - drawn.mean(axis=1)
        for rates, drawn in ((table.sim, sim), (table.real, real))
    )
    return {"slope": steep, "intercept": real_mean - steep * sim_mean}


def over_policies(table: TaskTable, level: float, seed: int) -> dict[str, Span]:
    """Percentiles over as many policies drawn with replacement; nothing of three or fewer."""
    if table.k <= 3:
        return {}
    table, draws = table.by_name, draws_of(table.k)
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
    table: TaskTable,
    seed: int,
    names: Sequence[str] = tuple(MEASURES),
    drawn: Drawn | None = None,
) -> dict[str, NoiseFloor]:
    """A perfect simulator's scores (parametric bootstrap from the real rates)."""
    return _floors(*(drawn or Drawn(table, seed)).perfect, names) if table.noisy else {}


def order_floor(table: TaskTable, seed: int, drawn: Drawn | None = None) -> dict[str, NoiseFloor]:
    """Spearman's correlation and MMRV of a simulator whose order is perfect, with the bias and the
    scale of this one: the closer together its rates, the more often noise swaps them.
    """
    names = ("spearman", "mmrv")
    return _floors(*(drawn or Drawn(table, seed)).ordered, names) if table.noisy else {}


def as_violated(
    table: TaskTable, seed: int, limit: float, drawn: Drawn | None = None
) -> Share | None:
    """How often that simulator's MMRV is as large as this one's, to tell it from ``limit``; None
    without trial numbers.
    """
    if not table.noisy:
        return None
    table, rng = table.by_name, _rng(seed, "ordered", "more", table.task)
    seen = float(mmrv(sim=table.sim[None], real=table.real[None])[0])
    first = [(drawn or Drawn(table, seed)).ordered]

    def draw() -> Flags:
        sim, real = first.pop() if first else table.ordered(draws_of(table.k), rng)
        return mmrv(sim=sim, real=real) >= seen - 1e-9

    return _counted(draw, limit)


def as_correlated(table: TaskTable, seed: int, limit: float) -> Share:
    """How often rates that are dealt out at random correlate as much (one-sided permutation test of
    Pearson's correlation, which is defined), to tell it from ``limit``.
    """
    table, rng = table.by_name, _rng(seed, "chance", table.task)
    seen = float(pearson(sim=table.sim[None], real=table.real[None])[0])

    def as_good(orders: Orders) -> Flags:
        real = np.broadcast_to(table.real, orders.shape)
        return pearson(sim=table.sim[orders], real=real) >= seen - 1e-9

    if table.k <= _ENUMERATED:
        found = as_good(_all_orders(table.k))
        return Share(int(found.sum()), found.size, exact=True)
    # The order that was seen is one of them.
    return _counted(lambda: as_good(_orders(table.k, rng)), limit, Share(1, 1))


def _counted(draw: Callable[[], Flags], limit: float, begun: Share = Share(0, 0)) -> Share:
    for _ in range(_BATCHES):
        found = draw()
        begun = Share(begun.count + int(found.sum()), begun.draws + found.size)
        if begun.told(limit):
            break
    return begun


def _all_orders(k: int) -> Orders:
    return np.array(list(itertools.permutations(range(k))))


def _orders(k: int, rng: np.random.Generator) -> Orders:
    return rng.permuted(np.tile(np.arange(k), (draws_of(k), 1)), axis=1)


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
    table = table.by_name
    sim, real = table.sim, table.real
    if table.k <= _ENUMERATED:
        orders, more = _all_orders(table.k), 0
    else:
        orders, more = _orders(table.k, _rng(seed, "chance", table.task)), 1
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
