"""Corrects many comparisons at once: Holm, intervals that agree with it, compact letters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from eval.statistics.intervals import Estimate
from robolearn.errors import DataError

Procedure = Literal["holm", "bonferroni"]
Direction = Literal["positive", "negative", "undecided"]
# Where an interval begins that leaves out 0 and nothing else.
_BEYOND = 1e-12
# The interval of one difference at a level.
IntervalAt = Callable[[float], Estimate]


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p values; rejecting those below alpha keeps the family-wise error at alpha.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.size and not ((p >= 0) & (p <= 1)).all():
        raise DataError(f"p values lie in [0, 1], got {p.tolist()}")
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(scaled) if p.size else scaled
    return tuple(float(v) for v in adjusted)


@dataclass(frozen=True, slots=True)
class FamilyMember:
    """One comparison of a family: ``direction`` and ``difference`` never contradict each other.

    ``difference`` leaves out 0 exactly when there is a direction; its level is that of the family.
    """

    direction: Direction
    # Adjusted for the family.
    p: float
    difference: Estimate


def family(
    p_values: Sequence[float],
    intervals: Sequence[IntervalAt],
    *,
    alpha: float = 0.05,
    procedure: Procedure = "holm",
) -> tuple[FamilyMember, ...]:
    """Decisions and intervals for all comparisons that one page makes (worlds, measures, pairs).

    ``intervals[i](level)`` inverts the test behind ``p_values[i]``; where it does not quite (an
    approximate interval of an exact test), its end moves to 0. Holm's decisions are right together
    with probability ``1 - alpha``, and so are Bonferroni's intervals at ``1 - alpha / m`` for ``m``
    comparisons. A comparison that only Holm's later steps decide has an interval that begins at 0.
    Both promises together fail with probability at most ``alpha (2 - m0 / m)``, ``m0`` of the true
    differences being 0: intervals that are simultaneous to the letter and agree with Holm's
    two-sided procedure cannot tell a decided difference any bounds (Strassburger and Bretz 2008,
    "Compatible simultaneous lower confidence bounds for the Holm procedure and other
    Bonferroni-based closed tests", Statistics in Medicine 27:4914). With
    ``procedure="bonferroni"`` decisions and intervals hold together at ``1 - alpha``, with fewer
    decisions.
    """
    if len(p_values) != len(intervals):
        raise DataError(
            f"every p value needs its interval, got {len(p_values)} and {len(intervals)}"
        )
    if not 0 < alpha < 1:
        raise DataError(f"alpha lies between 0 and 1, got {alpha}")
    m = len(p_values)
    single = tuple(min(1.0, m * p) for p in p_values)
    adjusted = holm(p_values) if procedure == "holm" else single
    found: list[FamilyMember] = []
    for p, at in zip(adjusted, intervals, strict=True):
        wide = at(1.0 - alpha / m)
        low, high = wide.low, wide.high
        direction: Direction = "undecided"
        if p <= alpha:
            direction = "positive" if wide.value > 0 else "negative"
        if direction == "positive":
            low = max(low, _BEYOND)
        elif direction == "negative":
            high = min(high, -_BEYOND)
        else:
            low, high = min(low, 0.0), max(high, 0.0)
        method = f"{wide.method}, family of {m}" if m > 1 else wide.method
        of_family = replace(wide, low=low, high=high, method=method, level=1.0 - alpha)
        found.append(FamilyMember(direction, p, of_family))
    return tuple(found)


def letters(names: Sequence[str], different: Collection[tuple[str, str]]) -> dict[str, str]:
    """Compact letter display: policies that share a letter are not separated.

    ``names`` best first; ``different`` are the pairs that a test separates, in either order.
    Sharing a letter does not mean being equal. Source: insert and absorb, Piepho 2004, "An
    algorithm for a letter-based representation of all-pairwise comparisons".
    """
    if len(set(names)) != len(names):
        raise DataError(f"names must differ, got {list(names)}")
    unknown = {n for pair in different for n in pair} - set(names)
    if unknown:
        raise DataError(f"unknown names {sorted(unknown)}; known: {list(names)}")
    groups: list[frozenset[str]] = [frozenset(names)]
    for a, b in different:
        split = [
            part
            for group in groups
            for part in ((group - {a}, group - {b}) if a in group and b in group else (group,))
        ]
        groups = [g for i, g in enumerate(split) if not _absorbed(g, i, split)]
    rank = {name: i for i, name in enumerate(names)}
    groups.sort(key=lambda g: sorted(rank[n] for n in g))
    return {
        name: "".join(_letter(i) for i, group in enumerate(groups) if name in group)
        for name in names
    }


def _absorbed(group: frozenset[str], index: int, groups: Sequence[frozenset[str]]) -> bool:
    return any(
        group < other or (group == other and i < index)
        for i, other in enumerate(groups)
        if i != index
    )


def _letter(index: int) -> str:
    return chr(ord("a") + index % 26) + (str(index // 26) if index >= 26 else "")
