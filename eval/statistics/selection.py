"""Tells how much choosing the best of several inflates its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from eval.statistics.variance import interaction
from robolearn.errors import DataError
from robolearn.seeding import child_seed

Array = NDArray[np.float64]


def expected_maximum(k: int) -> float:
    """Expected largest of ``k`` independent standard normal numbers (0 for one, 1.54 for ten)."""
    if k < 1:
        raise DataError(f"the maximum of {k} numbers is not defined")
    if k == 1:
        return 0.0
    value, _ = scipy.integrate.quad(
        lambda z: z * k * scipy.stats.norm.pdf(z) * scipy.stats.norm.cdf(z) ** (k - 1),
        -10.0,
        10.0,
        limit=200,
    )
    return float(value)


@dataclass(frozen=True, slots=True)
class SelectionBias:
    """The best of ``k`` candidates over ``n`` shared conditions.

    ``value``: its mean score; ``inflation``: how much of it the choice is expected to have added;
    ``bootstrap``: the same by resampling, which finds only part of it when candidates are alike;
    ``worst_case``: if all candidates were equally good (expected maximum of the noise); ``wins``:
    share of resamples in which this candidate is the best.
    """

    best: int
    value: float
    inflation: float
    bootstrap: float
    worst_case: float
    wins: float
    k: int
    n: int

    @property
    def corrected(self) -> float:
        """What the best one would be expected to score under other conditions."""
        return self.value - self.inflation

    def words(self) -> str:
        """As sentences."""
        if self.k == 1:
            return "one candidate was scored: there was nothing to choose"
        return (
            f"the best of {self.k} scored {self.value:.3f} over the {self.n} tuning conditions;"
            f" the choice itself is expected to have added {self.inflation:.3f} of that"
            f" ({self.worst_case:.3f} if all were equally good), and with other tuning conditions"
            f" it would be chosen again in {100 * self.wins:.0f} % of cases"
        )


def selection_bias(scores: Any, *, resamples: int = 2000, seed: int = 0) -> SelectionBias:
    """Winner's curse over ``scores [candidates, conditions]``.

    ``inflation``: the best mean less the mean of all, times the share of noise in the variance of
    the candidates' means (shrinkage of normal means, James and Stein 1961; Efron 2011, "Tweedie's
    formula and selection bias"). ``bootstrap``: conditions are resampled, the best of each resample
    is chosen, its excess over its full mean averaged (Efron and Tibshirani 1993, chapter 17). The
    luck of training runs is in neither: it needs several runs per candidate.
    """
    x = np.asarray(scores, dtype=np.float64)
    if x.ndim != 2 or x.size == 0 or not np.isfinite(x).all():
        raise DataError(f"expected finite scores [candidates, conditions], got shape {x.shape}")
    k, n = x.shape
    means = x.mean(axis=1)
    best = int(means.argmax())
    rng = np.random.default_rng(child_seed(seed, "selection"))
    excess, wins = 0.0, 0
    for _ in range(resamples):
        drawn = x[:, rng.integers(0, n, n)].mean(axis=1)
        chosen = int(drawn.argmax())
        excess += float(drawn[chosen] - means[chosen])
        wins += chosen == best
    noise, spread = _noise(x), float(means.var(ddof=1)) if k > 1 else 0.0
    share = min(1.0, noise / spread) if spread > 0 else 0.0
    return SelectionBias(
        best=best,
        value=float(means[best]),
        inflation=share * float(means[best] - means.mean()),
        bootstrap=max(0.0, excess / resamples),
        worst_case=float(np.sqrt(noise)) * expected_maximum(k),
        wins=wins / resamples,
        k=k,
        n=n,
    )


def _noise(x: Array) -> float:
    """Variance of a candidate's mean that is due to conditions which suit some and not others."""
    k, n = x.shape
    if k == 1:
        return 0.0
    if n == 1:
        return float(x.var(ddof=1))  # Nothing tells noise from merit: call all of it noise.
    return interaction(x) / n
