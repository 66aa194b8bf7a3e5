"""Takes variances apart: groups and what varies within; rows, columns and their interaction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from robolearn.shapes import FloatRows, OwnFloats


@dataclass(frozen=True, slots=True)
class Components:
    """Variance of the groups' true means, and of single values around them.

    nan where it cannot be told: ``within`` without a group of two, ``between`` also with one group.
    """

    between: float
    within: float


def components(groups: Sequence[OwnFloats]) -> Components:
    """One-way random-effects analysis of variance, ``between`` not below 0.

    Source: Searle, Casella and McCulloch 1992, "Variance components", section 3.6 (unbalanced).
    """
    total, count = sum(g.size for g in groups), len(groups)
    if total == count:
        return Components(math.nan, math.nan)
    means = [float(g.mean()) for g in groups]
    within = sum(float(((g - m) ** 2).sum()) for g, m in zip(groups, means, strict=True))
    within /= total - count
    if count == 1:
        return Components(math.nan, within)
    grand = sum(g.size * m for g, m in zip(groups, means, strict=True)) / total
    square = sum(g.size * (m - grand) ** 2 for g, m in zip(groups, means, strict=True))
    usual_size = (total - sum(g.size**2 for g in groups) / total) / (count - 1)
    return Components(max(0.0, (square / (count - 1) - within) / usual_size), within)


def interaction(x: FloatRows) -> float:
    """Variance of ``x [rows, columns]``, two of each at least, around its rows and columns."""
    rest = x - x.mean(axis=0) - x.mean(axis=1)[:, None] + x.mean()
    return float((rest**2).sum()) / ((x.shape[0] - 1) * (x.shape[1] - 1))
