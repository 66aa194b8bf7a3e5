"""Says whether one simulator is closer to reality than another: the same policies, the same real
trials, the same starts in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from eval.statistics.intervals import check_level
from eval.trust.measures import MEASURES
from eval.trust.outcomes import HELD
from eval.trust.pairing import PairedConditions, PairedTask
from eval.trust.repetition import Outcome, means
from robolearn.errors import DataError
from robolearn.seeding import child_seed
from robolearn.shapes import FloatRows, Floats

NAMES = ("pearson", "spearman", "mmrv", "mae")
_DRAWS = 2_000

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Change:
    """A measure of two simulators. ``over_starts``, ``over_policies``: percentiles of ``after``
    less ``before`` when starts, or policies, are drawn anew with replacement, the same for both
    (None: of fewer than four, or where it is never defined).
    """

    before: float
    after: float
    over_starts: Span | None
    over_policies: Span | None

    @property
    def difference(self) -> float:
        """After less before."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Closer:
    """What changed, by measure; over ``policies`` and ``starts`` that all three worlds have."""

    policies: int
    starts: int
    changes: Mapping[str, Change]


def closer(before: PairedTask, after: PairedTask, *, level: float = 0.95, seed: int = 0) -> Closer:
    """Compare two simulators of one reality by the policies and starts that both have.

    Raises :class:`DataError` where their real trials are not the same, or nothing is shared.
    """
    check_level(level)
    if before.by != after.by:
        raise DataError(f"one is judged by {before.by}, the other by {after.by}")
    pairs = _shared(before, after)
    starts = _starts(pairs)
    real, first, second = (
        np.stack([means([side[s] for s in starts]) for side in sides])
        for sides in (
            [a.real for a, _ in pairs],
            [a.sim for a, _ in pairs],
            [b.sim for _, b in pairs],
        )
    )
    rng = np.random.default_rng(child_seed(seed, "closer", before.table.task))
    k, n = real.shape
    by_start = rng.integers(0, n, (_DRAWS, n))
    by_policy = rng.integers(0, k, (_DRAWS, k))
    drawn_starts = [_mean_over(side, by_start) for side in (real, first, second)]
    drawn_policies = [side.mean(axis=1)[by_policy] for side in (real, first, second)]
    changes = {
        name: Change(
            _value(name, first.mean(axis=1), real.mean(axis=1)),
            _value(name, second.mean(axis=1), real.mean(axis=1)),
            _span(name, drawn_starts, level) if n > 3 else None,
            _span(name, drawn_policies, level) if k > 3 else None,
        )
        for name in NAMES
    }
    return Closer(k, n, changes)


def _mean_over(side: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Means ``[draws, policies]`` of ``side [policies, starts]`` over ``rows [draws, starts]``."""
    out = np.empty((len(rows), len(side)))
    step = max(1, HELD // max(1, side.size))
    for at in range(0, len(rows), step):
        out[at : at + step] = side[:, rows[at : at + step]].mean(axis=2).T
    return out


def _shared(
    before: PairedTask, after: PairedTask
) -> list[tuple[PairedConditions, PairedConditions]]:
    others = {c.policy: c for c in after.conditions}
    pairs = [(c, others[c.policy]) for c in before.conditions if c.policy in others]
    if not pairs:
        raise DataError("no policy was tried in both simulators")
    for one, other in pairs:
        both = one.real.keys() & other.real.keys()
        if any(one.real[s] != other.real[s] for s in both):
            raise DataError(
                f"the real trials of '{one.policy}' differ: both simulators must be compared with"
                " the same"
            )
    return pairs


def _starts(pairs: Sequence[tuple[PairedConditions, PairedConditions]]) -> list[str]:
    every: list[Mapping[str, Outcome]] = [c.real for pair in pairs for c in pair]
    shared = reduce(lambda left, side: left & side.keys(), every, set(every[0]))
    if not shared:
        raise DataError("no start was tried with every policy in reality and both simulators")
    return sorted(shared)


def _value(name: str, sim: Floats, real: Floats) -> float:
    return float(MEASURES[name].of(sim=sim[None], real=real[None])[0])


def _span(name: str, drawn: Sequence[FloatRows], level: float) -> Span | None:
    real, first, second = drawn
    of = MEASURES[name].of
    gained = of(sim=second, real=real) - of(sim=first, real=real)
    known = gained[np.isfinite(gained)]
    if not len(known):
        return None
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(known, (tail, 100.0 - tail))
    return float(low), float(high)
