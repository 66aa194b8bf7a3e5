"""Estimates strengths from A/B preferences with ties: Bradley and Terry with Davidson's ties.

``P(i beats j) = pi_i / (pi_i + pi_j + nu sqrt(pi_i pi_j))``, ``P(tie)`` has the rest, with
``pi = exp(theta)``. Sources: Bradley and Terry 1952; Davidson 1970, "On extending the Bradley-Terry
model to accommodate ties"; the displayed rating ``200 theta + 1500`` is RoboArena's (Atreya et al.
2025), not the 173.7 of chess.

Strengths have a finite estimate if and only if no direction of (theta, log nu) leads ever further
without making any outcome that came less likely (the condition for exponential families, here in
graphs): over wins and ties every policy leads to every other, and, where ties came, some cycle has
more wins than ties. Half points would make of a tie a win for both; Davidson's ties do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats
from scipy.sparse import csgraph

from eval.statistics.intervals import Estimate, check_level
from robolearn.errors import DataError

Array = NDArray[np.float64]
# Fixes the common shift of all strengths, which outcomes leave open (RoboArena's value).
RIDGE = 1e-6
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Preference:
    """One comparison: ``first`` scored 1 (it won), 0.5 (a tie) or 0 (``second`` won)."""

    first: str
    second: str
    score: float


@dataclass(frozen=True, slots=True)
class Ratings:
    """``theta`` by policy (mean 0) with intervals from the observed information; ``nu`` of ties.

    ``note``: why the comparisons leave strengths open, as a sentence; "": they do not. Where it is
    given, values and intervals of ``theta`` and ``nu`` are nan.
    """

    theta: dict[str, Estimate]
    nu: float
    comparisons: int
    note: str

    @property
    def identified(self) -> bool:
        """Whether the comparisons have a finite estimate."""
        return not self.note

    def rating(self, name: str) -> int | None:
        """Displayed rating: ``200 theta + 1500``; None where strengths are not identified."""
        return round(200 * self.theta[name].value + 1500) if self.identified else None


def bradley_terry(preferences: Sequence[Preference], level: float = 0.95) -> Ratings:
    """Maximum likelihood by Newton's method, where there is a finite estimate (else ``note``).

    ``level``: of the intervals. :class:`DataError` for no preferences, scores other than 0, 0.5
    and 1, a policy compared with itself, and a level that is none.
    """
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
    counts = [int(((i == index) | (j == index)).sum()) for index in range(len(names))]
    method = "Bradley-Terry, Davidson ties"
    if note := _not_identified(names, i, j, score):
        nan = math.nan
        unknown = {
            name: Estimate(nan, nan, nan, counts[index], method, level)
            for name, index in at.items()
        }
        return Ratings(unknown, nan, len(preferences), note)
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
        estimates[name] = Estimate(value, value - half, value + half, counts[index], method, level)
    nu = math.exp(float(x[-1])) if ties else 0.0
    return Ratings(estimates, nu, len(preferences), "")


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


def _not_identified(
    names: Sequence[str], i: NDArray[np.intp], j: NDArray[np.intp], score: Array
) -> str:
    """Why there is no finite estimate, as a sentence; "": there is one."""
    won = np.concatenate([i[score == 1], j[score == 0]])
    lost = np.concatenate([j[score == 1], i[score == 0]])
    a, b = i[score == 0.5], j[score == 0.5]
    if not won.size:
        return (
            "strengths are not known: every comparison was a tie, which tells that policies are"
            " hard to tell apart, not by how much they differ; compare more"
        )
    k = len(names)
    apart = _groups(k, i, j, "weak")
    if len(apart) > 1:
        return (
            f"strengths are not known: {_listed(names, apart)} were never compared with each other,"
            " not even over others; compare across these groups"
        )
    over = _groups(k, np.concatenate([won, a, b]), np.concatenate([lost, b, a]), "strong")
    if len(over) > 1:
        return (
            f"strengths have no finite estimate: whenever policies of two of the groups"
            f" {_listed(names, over)} were compared, the same group won; compare more"
        )
    if a.size and not _more_wins_than_ties(k, won, lost, a, b):
        return (
            "strengths have no finite estimate: no win was answered by a loss to the same policy,"
            " directly or over others, except where ties came in between at least as often;"
            " compare more"
        )
    return ""


def _groups(
    k: int, start: NDArray[np.intp], end: NDArray[np.intp], connection: str
) -> list[list[int]]:
    graph = sparse.coo_matrix((np.ones(start.size), (start, end)), shape=(k, k))
    count, label = csgraph.connected_components(graph, connection=connection)
    return sorted([p for p in range(k) if label[p] == g] for g in range(count))


def _listed(names: Sequence[str], groups: list[list[int]]) -> str:
    """Groups in braces, the first ones of many."""
    shown = [f"{{{', '.join(names[p] for p in group)}}}" for group in groups[:_SHOWN]]
    more = [f"{len(groups) - _SHOWN} more"] if len(groups) > _SHOWN else []
    *most, last = shown + more
    return f"{', '.join(most)} and {last}"


def _more_wins_than_ties(
    k: int,
    won: NDArray[np.intp],
    lost: NDArray[np.intp],
    a: NDArray[np.intp],
    b: NDArray[np.intp],
) -> bool:
    """Whether some cycle, from winners to losers and over ties either way, has more wins than ties:
    a negative cycle, by Bellman and Ford.
    """
    start, end = np.concatenate([won, a, b]), np.concatenate([lost, b, a])
    length = np.concatenate([np.full(won.size, -1), np.full(2 * a.size, 1)])
    distance = np.zeros(k, np.int64)
    for _ in range(k):
        shorter = distance.copy()
        np.minimum.at(shorter, end, distance[start] + length)
        if (shorter == distance).all():
            return False
        distance = shorter
    return True
