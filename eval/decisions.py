"""Decides pairs of policies, over all worlds and both measures of a page, as one family.

Every interval leaves out 0 exactly when its pair is decided, so that no two sentences of a page
disagree. Single runs with a fixed number of trials: McNemar's exact test of success, which is the
bounded-mean test of the differences, and that test of scores, with the intervals that invert them;
Holm. Methods of several runs: a test over runs and conditions that names runs that collapsed and
decides nothing from two; Holm. Sequential: bets on the pairs that differ, each at its share of the
error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eval.rule import MEASURES, Measure, Rule
from eval.statistics.betting import paired_sequence
from eval.statistics.equivalence import Equivalence, equivalence, non_inferiority
from eval.statistics.exact_tests import bounded_difference_p, mcnemar_exact
from eval.statistics.intervals import Estimate, bounded_difference
from eval.statistics.multiplicity import IntervalAt, family
from eval.statistics.runs import difference_over_runs
from robolearn.errors import DataError
from robolearn.shapes import FloatRows, Floats


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Outcomes of one method in one world, ``[runs, conditions]``."""

    name: str
    runs: tuple[str, ...]
    success: FloatRows
    score: FloatRows

    def of(self, measure: Measure) -> FloatRows:
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


@dataclass(frozen=True, slots=True)
class PairTest:
    """``b - a`` in one measure by itself: the p value of equality, and intervals that invert it."""

    p: float
    interval: IntervalAt
    warnings: tuple[str, ...] = ()


Pair = tuple[Outcomes, Outcomes]
Cell = tuple[Outcomes, Outcomes, Measure]


def settle(pairs: Sequence[Pair], rule: Rule) -> tuple[Mapping[Measure, Settled], ...]:
    """Both measures of every pair, decided together."""
    cells: list[Cell] = [(a, b, m) for a, b in pairs for m in MEASURES]
    if rule.kind == "sequential":
        found = [_in_sequence(a, b, m, rule, len(cells)) for a, b, m in cells]
    else:
        found = _as_family(cells, rule)
    return tuple(
        dict(zip(MEASURES, found[i : i + len(MEASURES)], strict=True))
        for i in range(0, len(found), len(MEASURES))
    )


def pair_test(a: Outcomes, b: Outcomes, measure: Measure) -> PairTest:
    """A pair whose number of trials was fixed beforehand."""
    x, y = a.of(measure), b.of(measure)
    if len(x) > 1 or len(y) > 1:
        names = (a.name, b.name)
        over_runs = difference_over_runs(x, y, names=names)

        def at(level: float) -> Estimate:
            return difference_over_runs(x, y, level, names=names).estimate

        return PairTest(over_runs.p, at, over_runs.warnings)
    test = mcnemar_exact if measure == "success" else bounded_difference_p
    return PairTest(test(x[0], y[0]), lambda level: bounded_difference(x[0], y[0], level))


def within_margin(a: Outcomes, b: Outcomes, rule: Rule, pairs: int) -> Equivalence | None:
    """Whether the pair, one of ``pairs``, differs by less than the declared margin."""
    if rule.margin is None:
        return None
    alpha = rule.alpha / pairs
    if rule.kind == "sequential":
        x, y = _single(a, b, rule.by)
        difference = paired_sequence(x, y, 2.0 * alpha).estimate
    else:
        difference = pair_test(a, b, rule.by).interval(1.0 - 2.0 * alpha)
    ask = equivalence if rule.question == "equivalence" else non_inferiority
    return ask(difference, rule.margin, (a.name, b.name))


def _as_family(cells: Sequence[Cell], rule: Rule) -> list[Settled]:
    alone = [pair_test(*cell) for cell in cells]
    members = family([t.p for t in alone], [t.interval for t in alone], alpha=rule.alpha)
    names = [{"negative": a.name, "positive": b.name} for a, b, _ in cells]
    return [
        Settled(m.difference, m.p, better.get(m.direction, ""), t.warnings)
        for t, m, better in zip(alone, members, names, strict=True)
    ]


def _single(a: Outcomes, b: Outcomes, measure: Measure) -> tuple[Floats, Floats]:
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
