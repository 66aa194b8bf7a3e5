"""Policies side by side: paired by condition, decided by a rule declared beforehand, in words.

``fixed``: the number of trials was chosen before the first one; McNemar's exact test (success) or
the sign-flip test (score), Holm over all pairs of a world. ``sequential``: one looked after every
trial; the sequential Barnard test up to ``n_max`` pairs (success) or paired betting (score), each
pair at ``alpha`` over the number of pairs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from eval.statistics.aggregate import Spread, spread_over_runs
from eval.statistics.clusters import MethodDifference, difference_of_methods, mean_two_way
from eval.statistics.exact_tests import mcnemar_exact, sign_flip
from eval.statistics.intervals import (
    DIFFERENCE,
    OUTCOME,
    Estimate,
    mean_t,
    newcombe_paired,
    paired_difference,
    wilson,
)
from eval.statistics.multiplicity import holm, letters
from eval.statistics.planning import plan_paired
from eval.statistics.sequential import SequentialBarnard, paired_betting
from eval.summary import TECHNICAL, own_trials
from eval.trials.identity import SLIGHT, require_poolable
from eval.trials.table import SCORED
from robolearn.errors import ConfigError, DataError, did_you_mean
from robolearn.types import TrialRecord

Array = NDArray[np.float64]
Measure = Literal["success", "score"]
RuleKind = Literal["fixed", "sequential"]


@dataclass(frozen=True, slots=True)
class Rule:
    """How pairs are decided. ``n_max``: pairs planned for the sequential test of success."""

    by: Measure = "success"
    kind: RuleKind = "fixed"
    alpha: float = 0.05
    n_max: int | None = None
    power: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1 or not self.alpha < self.power < 1:
            raise ConfigError(
                f"expected 0 < alpha < power < 1, got alpha {self.alpha}, power {self.power}"
            )
        if self.kind == "sequential" and self.by == "success" and self.n_max is None:
            raise ConfigError(
                "the sequential test of success needs the number of trials that was planned"
                " as the maximum (--n-max)"
            )

    def words(self) -> str:
        """The rule as a sentence."""
        if self.kind == "fixed":
            test = "McNemar's exact test" if self.by == "success" else "the sign-flip test"
            return f"{test} of {self.by}, Holm over all pairs, alpha {self.alpha:g}"
        if self.by == "success":
            test = f"sequential Barnard test of success, at most {self.n_max} pairs"
        else:
            test = "paired betting on score, any stopping rule"
        return f"{test}, alpha {self.alpha:g} over the pairs of policies"


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy, or several training runs of one method, in one world.

    ``spread``: between runs and within, only with several runs.
    """

    name: str
    runs: tuple[str, ...]
    n: int
    success: Estimate
    score: Estimate
    letters: str
    spread: Spread | None


@dataclass(frozen=True, slots=True)
class Effect:
    """``b - a`` over the same conditions. ``p``: adjusted over the pairs of the world.

    ``only_a``, ``only_b``: conditions under which only one of the two succeeded, on which
    McNemar's test rests; None with several training runs. ``more``: pairs of trials, these
    included, after which a difference as large as the observed one would be found with the rule's
    power; None when it is settled or nothing was observed.
    """

    a: str
    b: str
    n: int
    success: Estimate
    score: Estimate
    only_a: int | None
    only_b: int | None
    p: float
    decision: str
    more: int | None
    words: str


@dataclass(frozen=True, slots=True)
class WorldComparison:
    """All policies in one world."""

    world: str
    suite: str
    entries: tuple[Entry, ...]
    effects: tuple[Effect, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All worlds. ``alone``: ``(world, policy)`` with nothing to compare with, left out; ``apart``:
    trials that were left out because they were made otherwise, in words.
    """

    rule: Rule
    worlds: tuple[WorldComparison, ...]
    alone: tuple[tuple[str, str], ...]
    apart: tuple[str, ...] = ()

    def in_world(self, world: str) -> WorldComparison | None:
        """All policies in one world; None where nothing was compared."""
        return next((w for w in self.worlds if w.world == world), None)


def compare_policies(
    records: Sequence[TrialRecord],
    rule: Rule,
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    common: bool = False,
    mixed: bool = False,
    least: int = 2,
) -> Comparison:
    """Compare every pair of policies in every world that has at least two (``least`` 1: describe
    a method of several runs, too, that has nothing to compare with).

    ``groups``: method -> names of its training runs; other policies stand for themselves.
    ``common``: compare on the conditions that all have, instead of refusing different ones.
    ``mixed``: accept trials of different code, libraries or batch sizes, and say so. Raises
    :class:`DataError` for trials that may not be pooled (:mod:`eval.trials.identity`), for trials
    that appear twice, and for unpaired conditions.
    """
    if not records:
        raise DataError("no trials to compare; run 'robolearn evaluate' first")
    methods = _methods(records, groups or {})
    worlds = list(dict.fromkeys(r.env for r in records))
    found = [
        _world(world, [r for r in records if r.env == world], methods, rule, common, mixed)
        for world in worlds
        if len({methods[r.policy] for r in records if r.env == world}) >= least
    ]
    if not found:
        seen = sorted({(r.policy, r.env) for r in records})
        raise DataError(f"a comparison needs two policies in one world; there are {seen}")
    compared = {w.world for w in found}
    alone = sorted({(r.env, r.policy) for r in records if r.env not in compared})
    return Comparison(rule, tuple(found), tuple(alone))


def _methods(records: Sequence[TrialRecord], groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    policies = list(dict.fromkeys(r.policy for r in records))
    methods = {name: name for name in policies}
    for group, members in groups.items():
        for name in members:
            if name not in policies:
                raise ConfigError(
                    f"group '{group}': no policy '{name}'.{did_you_mean(name, policies)}"
                    f" Policies: {policies}"
                )
            if methods[name] != name:
                raise ConfigError(f"policy '{name}' is in two groups")
            methods[name] = group
    return methods


@dataclass(frozen=True, slots=True)
class _Table:
    """Outcomes of one method: ``success`` and ``score [runs, conditions]``."""

    name: str
    runs: tuple[str, ...]
    success: Array
    score: Array


def _world(
    world: str,
    records: Sequence[TrialRecord],
    methods: Mapping[str, str],
    rule: Rule,
    common: bool,
    mixed: bool,
) -> WorldComparison:
    notes = _check_mixture(records, mixed)
    by_policy = _once_per_condition(records, notes)
    keys, dropped = _shared(world, by_policy, common)
    notes += dropped
    tables: list[_Table] = []
    names = {methods[p] for p in by_policy}
    for method in (m for m in dict.fromkeys(methods.values()) if m in names):
        runs = tuple(p for p in by_policy if methods[p] == method)
        rows = [[by_policy[p][k] for k in keys] for p in runs]
        tables.append(
            _Table(
                method,
                runs,
                np.array([[float(r.success) for r in row] for row in rows]),
                np.array([[r.score for r in row] for row in rows]),
            )
        )
    # Pairs in the order in which the policies are given, so that a difference means the same in
    # every world; entries by what was measured.
    pairs = list(itertools.combinations(tables, 2))
    values = {t.name: float((t.success if rule.by == "success" else t.score).mean())
              for t in tables}  # fmt: skip
    tables.sort(key=lambda t: -values[t.name])
    p_values = [_p_value(a, b, rule, len(pairs)) for a, b in pairs]
    adjusted = holm(p_values) if rule.kind == "fixed" else tuple(p_values)
    effects = tuple(
        _effect(a, b, p, rule, len(pairs)) for (a, b), p in zip(pairs, adjusted, strict=True)
    )
    notes += [
        f"'{t.name}' is one training run: what is said about it holds for that run only"
        for t in tables
        if len(t.runs) == 1 and any(len(o.runs) > 1 for o in tables)
    ]
    if rule.kind == "sequential":
        notes.append(
            "intervals are those of a number of trials fixed beforehand; where looking decided when"
            " to stop they are too narrow, and only the rule's decisions hold"
        )
    separated = [(e.a, e.b) for e in effects if e.decision]
    marks = letters([t.name for t in tables], separated)
    return WorldComparison(
        world=world,
        suite=records[0].suite,
        entries=tuple(_entry(t, marks[t.name]) for t in tables),
        effects=effects,
        notes=tuple(notes),
    )


def _once_per_condition(
    records: Sequence[TrialRecord], notes: list[str]
) -> dict[str, dict[tuple[str, int], TrialRecord]]:
    """Trials by policy and (condition, seed): the suite's own, one per condition."""
    kept, left_out = own_trials(records)
    found: dict[str, dict[tuple[str, int], TrialRecord]] = {}
    for r in kept:
        trials = found.setdefault(r.policy, {})
        # A robot tries one start several times; its trials are paired in the order they were run.
        turn = r.seed if r.kind == "sim" else sum(name == r.condition for name, _ in trials)
        trials[r.condition, turn] = r
    undone = Counter(r.status for r in records if r.status not in SCORED)
    notes += [f"{n} trials that are {status} are left out" for status, n in sorted(undone.items())]
    if left_out := left_out - undone.total():
        notes.append(f"{left_out} trials of moved or repeated starts are left out")
    if aborted := sum(r.status == "aborted" for r in kept):
        notes.append(f"{aborted} trials were aborted and count as failures")
    return found


def _check_mixture(records: Sequence[TrialRecord], mixed: bool) -> list[str]:
    notes = list(require_poolable(records, accept=SLIGHT if mixed else frozenset()))
    if records[0].judge:
        notes.append(
            "success was judged from pictures by a classifier that errs: rates here are those of"
            " its verdicts; 'robolearn evaluate' printed them corrected for its errors"
        )
    lost = sum(r.reason in TECHNICAL for r in records)
    if lost:
        notes.append(f"{lost} trials were lost for technical reasons and count as failures")
    return notes


def _shared(
    world: str, by_policy: Mapping[str, Mapping[tuple[str, int], TrialRecord]], common: bool
) -> tuple[list[tuple[str, int]], list[str]]:
    """Conditions that all policies have, in the order of the first."""
    sets = {name: set(trials) for name, trials in by_policy.items()}
    every = set.union(*sets.values())
    shared = set.intersection(*sets.values())
    first = next(iter(by_policy.values()))
    keys = [k for k in first if k in shared]
    if every == shared:
        return keys, []
    missing = {name: len(every - s) for name, s in sets.items() if every - s}
    seeds = _other_seeds(sets, shared)
    detail = f"missing per policy: {missing}, for example {min(every - shared)}{seeds}"
    if not common or not keys:
        raise DataError(
            f"{world}: the policies were not tried under the same conditions; {detail}. Evaluate"
            f" what is missing, or use --common to compare on the {len(keys)} shared ones"
        )
    return keys, [f"compared on {len(keys)} shared conditions of {len(every)}; {detail}"]


def _other_seeds(sets: Mapping[str, set[tuple[str, int]]], shared: set[tuple[str, int]]) -> str:
    """Which policies have conditions of others, but with seeds of their own."""
    by_condition: dict[str, set[int]] = {}
    for name, seed in set.union(*sets.values()):
        by_condition.setdefault(name, set()).add(seed)
    odd = {
        policy: sum(len(by_condition[name]) > 1 for name, _ in trials - shared)
        for policy, trials in sets.items()
    }
    return "".join(
        f"; {n} conditions of '{p}' have other seeds than those of another policy"
        for p, n in odd.items()
        if n
    )


def _values(table: _Table, by: Measure) -> Array:
    return (table.success if by == "success" else table.score).mean(axis=0)


def _p_value(a: _Table, b: _Table, rule: Rule, pairs: int) -> float:
    """Unadjusted for the fixed rule; for the sequential one already on the scale of ``alpha``."""
    x, y = _values(a, rule.by), _values(b, rule.by)
    if len(a.runs) > 1 or len(b.runs) > 1:
        if rule.kind == "sequential":
            raise DataError(
                "the sequential rule compares single policies; methods of several training runs"
                " (--group) are compared by the fixed rule"
            )
        return _methods_differ(a, b, rule.by).p
    if rule.kind == "fixed":
        return mcnemar_exact(x, y) if rule.by == "success" else sign_flip(x, y)
    alpha = rule.alpha / pairs
    if rule.by == "score":
        return min(1.0, paired_betting(x, y, alpha).evidence * pairs)
    planned = rule.n_max or 0
    if x.size > planned:
        raise DataError(f"{x.size} pairs were tried, more than the planned maximum of {planned}")
    result = SequentialBarnard(planned, alpha).run(x, y)
    return rule.alpha if result.decision != "undecided" else 1.0


def _methods_differ(a: _Table, b: _Table, by: Measure) -> MethodDifference:
    first, second = (a.success, b.success) if by == "success" else (a.score, b.score)
    return difference_of_methods(first, second)


def _effect(a: _Table, b: _Table, p: float, rule: Rule, pairs: int) -> Effect:
    only_a = only_b = None
    if len(a.runs) > 1 or len(b.runs) > 1:
        success = _methods_differ(a, b, "success").estimate
        score = _methods_differ(a, b, "score").estimate
    else:
        only_a = int(np.sum(a.success[0] > b.success[0]))
        only_b = int(np.sum(b.success[0] > a.success[0]))
        success = newcombe_paired(a.success[0], b.success[0])
        score = paired_difference(a.score[0], b.score[0], bounds=DIFFERENCE)
    estimate = success if rule.by == "success" else score
    settled = p <= rule.alpha
    decision = (b.name if estimate.value > 0 else a.name) if settled else ""
    more = None if settled else _more(a, b, rule, rule.alpha / pairs)
    n = a.success.shape[1]
    words = _words(a.name, b.name, n, estimate, decision, more, rule)
    return Effect(a.name, b.name, n, success, score, only_a, only_b, p, decision, more, words)


def _more(a: _Table, b: _Table, rule: Rule, alpha: float) -> int | None:
    """``alpha``: that of one pair among several, at worst."""
    x, y = _values(a, rule.by), _values(b, rule.by)
    difference = float(y.mean() - x.mean())
    if difference == 0 or x.size < 3:
        return None
    if rule.by == "success" and len(a.runs) == len(b.runs) == 1:
        spread = math.sqrt(x.mean() * (1 - x.mean()) * y.mean() * (1 - y.mean()))
        phi = 0.0 if spread == 0 else float(((x * y).mean() - x.mean() * y.mean()) / spread)
        try:
            return plan_paired(float(x.mean()), float(y.mean()), phi, rule.power, alpha).trials
        except DataError:
            return None
    z = float(stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(rule.power))
    return math.ceil((z * float(np.std(y - x, ddof=1)) / difference) ** 2)


def _words(a: str, b: str, n: int, e: Estimate, decision: str, more: int | None, rule: Rule) -> str:
    if decision:
        other = a if decision == b else b
        return f"{decision} is better than {other} under the declared rule"
    text = (
        f"{a} and {b} are not separated: with {n} conditions a difference in {rule.by} anywhere"
        f" between {e.low:+.3f} and {e.high:+.3f} fits. This does not show that they are equal"
    )
    if e.low > 0 or e.high < 0:
        text += (
            f" (the {e.method} interval leaves out 0, but is not what decides: see the rule and p)"
        )
    if more is None:
        return text
    if more <= n:
        # The estimate of the plan is itself uncertain; a promise would be wrong.
        return f"{text}. The observed difference is near the border: repeat with fresh conditions"
    return (
        f"{text}. If the true difference is the observed {e.value:+.3f}, about {more} conditions"
        f" ({more - n} more) would show it with probability {rule.power:g}"
    )


def _entry(table: _Table, marks: str) -> Entry:
    n = int(table.success.size)
    several = len(table.runs) > 1
    spread = spread_over_runs(list(table.score)) if several else None
    if several:
        conditions = list(range(table.success.shape[1])) * len(table.runs)
        runs = [r for r in table.runs for _ in range(table.success.shape[1])]
        success = mean_two_way(table.success.ravel(), runs, conditions, bounds=OUTCOME)
        score = mean_two_way(table.score.ravel(), runs, conditions, bounds=OUTCOME)
    else:
        success = wilson(int(table.success.sum()), n)
        score = mean_t(table.score.ravel(), bounds=OUTCOME)
    return Entry(table.name, table.runs, n, success, score, marks, spread)
