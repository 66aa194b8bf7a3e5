"""Estimates strengths from A/B preferences with ties: Bradley and Terry with Davidson's ties.

``P(i beats j) = pi_i / (pi_i + pi_j + nu sqrt(pi_i pi_j))``, ``P(tie)`` has the rest, with
``pi = exp(theta)``. Sources: Bradley and Terry 1952; Davidson 1970, "On extending the Bradley-Terry
model to accommodate ties"; the displayed rating ``200 theta + 1500`` is RoboArena's (Atreya et al.
2025), not the 173.7 of chess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from eval.statistics.intervals import Estimate, check_level
from robolearn.errors import DataError

Array = NDArray[np.float64]
# Keeps the estimate finite when one policy always wins (RoboArena's value).
RIDGE = 1e-6


@dataclass(frozen=True, slots=True)
class Preference:
    """One comparison: ``first`` scored 1 (it won), 0.5 (a tie) or 0 (``second`` won)."""

    first: str
    second: str
    score: float


@dataclass(frozen=True, slots=True)
class Ratings:
    """``theta`` by policy (mean 0) with intervals from the observed information; ``nu`` of ties.

    ``connected``: whether every policy has, through others, beaten and lost to every other (ties
    count as both). If not, strengths are only finite because of the ridge, and say little.
    """

    theta: dict[str, Estimate]
    nu: float
    comparisons: int
    connected: bool

    def rating(self, name: str) -> int:
        """Displayed rating: ``200 theta + 1500``."""
        return round(200 * self.theta[name].value + 1500)


def bradley_terry(preferences: Sequence[Preference], level: float = 0.95) -> Ratings:
    """Maximum likelihood by Newton's method."""
    check_level(level)
    if not preferences:
        raise DataError("no preferences: at least one comparison is needed")
    names = sorted({n for p in preferences for n in (p.first, p.second)})
    for p in preferences:
        if p.first == p.second or p.score not in (0.0, 0.5, 1.0):
            raise DataError(f"a preference names two policies and scores 0, 0.5 or 1, got {p}")
    at = {name: i for i, name in enumerate(names)}
    i = np.array([at[p.first] for p in preferences])
    j = np.array([at[p.second] for p in preferences])
    score = np.array([p.score for p in preferences])
    ties = bool((score == 0.5).any())
    x = np.zeros(len(names) + ties)  # theta, then log nu
    for _ in range(200):
        gradient, hessian = _derivatives(x, i, j, score, len(names))
        step = np.linalg.solve(hessian, gradient)
        x = x + step * min(1.0, 2.0 / max(1e-12, float(np.abs(step).max())))
        if np.abs(step).max() < 1e-10:
            break
    theta = x[: len(names)] - x[: len(names)].mean()
    _, hessian = _derivatives(x, i, j, score, len(names))
    # Only differences of strengths are identified: project the common shift away.
    k = len(names)
    project = np.eye(len(x))
    project[:k, :k] -= 1.0 / k
    covariance = project @ np.linalg.inv(hessian) @ project.T
    z = float(stats.norm.ppf((1 + level) / 2))
    estimates: dict[str, Estimate] = {}
    for name, index in at.items():
        half = z * math.sqrt(max(0.0, float(covariance[index, index])))
        value = float(theta[index])
        n = int(((i == index) | (j == index)).sum())
        estimates[name] = Estimate(
            value, value - half, value + half, n, "Bradley-Terry, Davidson ties", level
        )
    nu = math.exp(float(x[-1])) if ties else 0.0
    return Ratings(estimates, nu, len(preferences), _connected(k, i, j, score))


def _derivatives(
    x: Array, i: NDArray[np.intp], j: NDArray[np.intp], score: Array, k: int
) -> tuple[Array, Array]:
    """Gradient and negative Hessian of the penalised log-likelihood."""
    ties = x.size > k
    half = 0.5 * (x[i] - x[j])
    terms = np.stack([half, -half, np.full_like(half, x[-1] if ties else -np.inf)])
    terms = np.exp(terms - terms.max(axis=0))
    win, lose, tie = terms / terms.sum(axis=0)
    # Each log-likelihood is a log-softmax of (half, -half, log nu); c is d(term)/d(half).
    observed = np.where(score == 1, 1.0, np.where(score == 0, -1.0, 0.0))
    expected = win - lose
    rows = np.arange(i.size)
    design = np.zeros((i.size, x.size))
    design[rows, i] += 0.5
    design[rows, j] -= 0.5
    gradient = design.T @ (observed - expected) - RIDGE * x
    variance = (win + lose) - expected**2
    hessian = design.T @ (design * variance[:, None])
    if ties:
        gradient[-1] += float(((score == 0.5) - tie).sum())
        hessian[-1, -1] += float((tie * (1 - tie)).sum())
        cross = -design.T @ (expected * tie)
        cross[-1] = 0.0
        hessian[-1, :] += cross
        hessian[:, -1] += cross
    return gradient, hessian + RIDGE * np.eye(x.size)


def _connected(k: int, i: NDArray[np.intp], j: NDArray[np.intp], score: Array) -> bool:
    beats = np.eye(k, dtype=np.bool_)
    beats[i[score >= 0.5], j[score >= 0.5]] = True
    beats[j[score <= 0.5], i[score <= 0.5]] = True
    for _ in range(k):
        beats = (beats.astype(np.int64) @ beats.astype(np.int64)) > 0
    return bool(beats.all())
