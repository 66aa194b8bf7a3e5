"""Many comparisons at once: Holm's correction and compact letters."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from robolearn.errors import DataError


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
