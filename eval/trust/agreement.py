"""Asks whether the simulator knows under which starts a policy succeeds, and how far any could.

A real trial predicts its own repetition only so far. Where starts were repeated in reality, that
says what a perfect simulator would reach with as many trials of each, and what it would save.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eval.statistics.intervals import Estimate, clopper_pearson, pearson, phi_coefficient
from eval.trust.pairing import PairedConditions, PairedTask
from eval.trust.repetition import expanded, means, repetition, starts_drawn
from robolearn.seeding import child_seed
from robolearn.shapes import Floats

_DRAWS = 2_000

Judged = Literal["below", "within", "above", "not known"]
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ConditionAgreement:
    """Does the simulator say under which conditions a policy succeeds?"""

    # Empty: all policies, each less its own mean.
    policy: str
    # Pairs of a policy and a condition.
    conditions: int
    # Phi of single successes, else Pearson's correlation of means over the condition's trials; of
    # all policies with its interval over starts, which are the same for all of them.
    correlation: Estimate
    # How well one real trial predicts its own repetition: the intra-class correlation, with its
    # interval over starts. None where no two conditions were repeated in reality.
    ceiling: Estimate | None
    # What a simulator without any error reaches with as many trials of each condition as here.
    reachable: Estimate | None

    @property
    def judged(self) -> Judged:
        """Where the simulator stands beside what can be reached, as far as intervals tell."""
        found, reach = self.correlation, self.reachable
        if reach is None or math.isnan(found.value):
            return "not known"
        if found.high < reach.low:
            return "below"
        return "above" if found.low > reach.high else "within"


def agreement(
    task: PairedTask, *, level: float = 0.95, seed: int = 0
) -> tuple[ConditionAgreement, ...]:
    """Condition by condition: each policy, and, of several, all of them together."""
    found = [
        _joined(c.policy, [c], _single(c, level), level, child_seed(seed, "ceiling", c.policy))
        for c in task.conditions
    ]
    if len(found) < 2:
        return tuple(found)
    every = over_starts(task.conditions, level, child_seed(seed, "agreement", task.table.task))
    ceiling_seed = child_seed(seed, "ceiling", task.table.task)
    return (*found, _joined("", task.conditions, every, level, ceiling_seed))


def reach(share: float, real: float, sim: float) -> float:
    """Correlation of means over ``real`` and ``sim`` trials of each condition, where the conditions
    explain ``share`` of the variance of a single trial and both worlds are the same one.

    With one trial each it is ``share`` itself, with endless simulated ones its square root:
    the classical attenuation (Spearman 1904, "The proof and measurement of association").
    """
    if share <= 0.0:
        return 0.0
    rest = (1.0 - share) / share
    return 1.0 / math.sqrt((1.0 + rest / real) * (1.0 + rest / sim))


def _joined(
    policy: str, parts: Sequence[PairedConditions], found: Estimate, level: float, seed: int
) -> ConditionAgreement:
    real, sim = [c.real for c in parts], [c.sim for c in parts]
    ceiling = repetition(real, level=level, seed=seed)
    reachable = None
    if ceiling is not None:
        sizes = [harmonic_mean([len(v) for c in side for v in c.values()]) for side in (real, sim)]
        value, low, high = (reach(v, *sizes) for v in (ceiling.value, ceiling.low, ceiling.high))
        method = "ceiling with as many trials"
        reachable = Estimate(value, low, high, ceiling.n, method, level)
    return ConditionAgreement(policy, sum(len(c.real) for c in parts), found, ceiling, reachable)


def harmonic_mean(counts: Sequence[int]) -> float:
    """Harmonic mean: noise goes with one over the number of trials."""
    return len(counts) / sum(1.0 / n for n in counts)


def _single(c: PairedConditions, level: float) -> Estimate:
    alone = all(len(v) == 1 for side in (c.real, c.sim) for v in side.values())
    x, y = (means(side.values()).tolist() for side in (c.real, c.sim))
    if alone and set(x + y) <= {0.0, 1.0}:
        return phi_coefficient(x, y, level, resamples=_DRAWS)
    return pearson(x, y, level)


def over_starts(parts: Sequence[PairedConditions], level: float, seed: int) -> Estimate:
    """Of all policies, each less its mean. Starts are drawn anew, with all that happened there: one
    that is hard is so for every policy, so that pairs are no independent ones.
    """
    starts = list(dict.fromkeys(name for c in parts for name in c.real))
    at = {name: i for i, name in enumerate(starts)}
    columns = np.zeros((6, len(parts), len(starts)))
    for k, c in enumerate(parts):
        where = [at[name] for name in c.real]
        x, y = means(c.real.values()), means(c.sim.values())
        # Less their means already, which keeps sums of squares exact.
        x, y = x - x.mean(), y - y.mean()
        columns[:, k, where] = (np.ones_like(x), x, y, x * x, y * y, x * y)
    value = float(_correlations(columns.sum(axis=2)[:, None])[0])
    n, method = len(starts), "Pearson, starts drawn anew"
    if math.isnan(value):
        return Estimate(math.nan, math.nan, math.nan, n, method, level)
    if n <= 3:
        return Estimate(value, -1.0, 1.0, n, method, level)
    if abs(value) > 1.0 - 1e-9:
        # No draw differs: what the most disagreement leaves that so many starts do not exclude.
        spread = 2.0 * float(columns[3].sum() / columns[0].sum())
        least = max(-1.0, 1.0 - clopper_pearson(0, n, level).high / spread)
        low, high = (least, 1.0) if value > 0 else (-1.0, -least)
        return Estimate(value, low, high, n, "all pairs alike", level)
    drawn = np.tensordot(starts_drawn(n, seed), columns, axes=([1], [2]))
    low, high = expanded(_correlations(drawn.transpose(1, 0, 2)), n, level)
    return Estimate(value, min(low, value), max(high, value), n, method, level)


def _correlations(sums: Array) -> Floats:
    """``[draws]`` from sums ``[6, draws, policies]`` of 1, x, y, x², y², xy: within policies."""
    n, x, y, xx, yy, xy = sums
    with np.errstate(invalid="ignore", divide="ignore"):
        vx, vy, both = (
            np.where(n > 0, square - a * b / n, 0.0).sum(axis=1)
            for square, a, b in ((xx, x, x), (yy, y, y), (xy, x, y))
        )
        found = np.clip(both / np.sqrt(np.maximum(vx, 0.0) * np.maximum(vy, 0.0)), -1.0, 1.0)
    return np.where((vx > 1e-12) & (vy > 1e-12), found, np.nan)
