"""Decides pairs of policies, over all worlds and both measures of a page, as one family.

Every interval leaves out 0 exactly when its pair is decided, so that no two sentences of a page
disagree. Single runs with a fixed number of trials: McNemar's exact test of success, which is the
bounded-mean test of the differences, and that test of scores, with the intervals that invert them;
Holm. Methods of several runs: a test over runs and conditions
that names runs that collapsed and decides nothing from two; Holm. Sequential: bets on the
pairs that differ, each at its share of the error.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from eval.rule import MEASURES, Measure, Rule
from eval.statistics.betting import paired_sequence
from eval.statistics.equivalence import Equivalence, equivalence, non_inferiority
from eval.statistics.exact_tests import bounded_difference_p, mcnemar_exact
from eval.statistics.intervals import Estimate, bounded_difference
from eval.statistics.multiplicity import family
from eval.statistics.runs import DifferenceOverRuns, difference_over_runs
from robolearn.errors import DataError

Array = NDArray[np.float64]
Table = Float64[NDArray[np.float64], "runs conditions"]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Outcomes of one method in one world."""

    name: str
    runs: tuple[str, ...]
    success: Table
    score: Table

    def of(self, measure: Measure) -> Table:
        """The outcomes in one measure."""
        return self.success if measure == "success" else self.score


@dataclass(frozen=True, slots=True)
class Settled:
    """``b - a`` in one measure: ``better`` is a name, or empty; ``p`` adjusted for the family;
    ``warnings``: what of the training runs must be known to read it.
    """

    difference: Estimate
    p: float
    better: str
    warnings: tuple[str, ...] = ()


Pair = tuple[Outcomes, Outcomes]


def settle(pairs: Sequence[Pair], rule: Rule) -> tuple[Mapping[Measure, Settled], ...]:
    """Both measures of every pair, decided together."""
    cells: list[tuple[Outcomes, Outcomes, Measure]] = [
        (a, b, m) for a, b in pairs for m in MEASURES
    ]
    if rule.kind == "sequential":
        found = [_in_sequence(a, b, m, rule, len(cells)) for a, b, m in cells]
    else:
        p_values = [_p_value(a, b, m) for a, b, m in cells]
        members = family(p_values, [_interval(*cell) for cell in cells], alpha=rule.alpha)
        found: list[Settled] = []
        for (a, b, measure), m in zip(cells, members, strict=True):
            better = {"negative": a.name, "positive": b.name}.get(m.direction, "")
            warnings = _over_runs(a, b, measure).warnings if _several(a, b) else ()
            found.append(Settled(m.difference, m.p, better, warnings))
    return tuple(
        dict(zip(MEASURES, found[i : i + len(MEASURES)], strict=True))
        for i in range(0, len(found), len(MEASURES))
    )


def within_margin(a: Outcomes, b: Outcomes, rule: Rule, pairs: int) -> Equivalence | None:
    """Whether the pair, one of ``pairs``, differs by less than the declared margin."""
    if rule.margin is None:
        return None
    alpha = rule.alpha / pairs
    if rule.kind == "sequential":
        x, y = _single(a, b, rule.by)
        difference = paired_sequence(x, y, 2.0 * alpha).estimate
    else:
        difference = _interval(a, b, rule.by)(1.0 - 2.0 * alpha)
    ask = equivalence if rule.question == "equivalence" else non_inferiority
    return ask(difference, rule.margin, (a.name, b.name))


def _single(a: Outcomes, b: Outcomes, measure: Measure) -> tuple[Array, Array]:
    if len(a.runs) > 1 or len(b.runs) > 1:
        raise DataError(
            "the sequential rule compares single policies; methods of several training runs"
            " (--group) are compared by the fixed rule"
        )
    return a.of(measure)[0], b.of(measure)[0]


def _in_sequence(a: Outcomes, b: Outcomes, measure: Measure, rule: Rule, cells: int) -> Settled:
    x, y = _single(a, b, measure)
    if rule.n_max is not None and x.size > rule.n_max:
        raise DataError(f"{x.size} pairs were tried, more than the planned maximum of {rule.n_max}")
    found = paired_sequence(x, y, rule.alpha / cells)
    better = {"a": a.name, "b": b.name}.get(found.decision, "")
    said = replace(found.estimate, level=1.0 - rule.alpha, method=f"{found.method}, family")
    return Settled(said, min(1.0, cells * found.p_value), better)


def _several(a: Outcomes, b: Outcomes) -> bool:
    return len(a.runs) > 1 or len(b.runs) > 1


def _over_runs(
    a: Outcomes, b: Outcomes, measure: Measure, level: float = 0.95
) -> DifferenceOverRuns:
    return difference_over_runs(a.of(measure), b.of(measure), level, names=(a.name, b.name))


def _p_value(a: Outcomes, b: Outcomes, measure: Measure) -> float:
    if _several(a, b):
        return _over_runs(a, b, measure).p
    test = mcnemar_exact if measure == "success" else bounded_difference_p
    return test(a.of(measure)[0], b.of(measure)[0])


def _interval(a: Outcomes, b: Outcomes, measure: Measure) -> Callable[[float], Estimate]:
    def at(level: float) -> Estimate:
        if _several(a, b):
            return _over_runs(a, b, measure, level).estimate
        return bounded_difference(a.of(measure)[0], b.of(measure)[0], level)

    return at
