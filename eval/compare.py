"""Compares policies by condition, by a rule declared beforehand, in words.

All pairs in all worlds, by success and by score, are one family (:mod:`eval.decisions`); perturbed
worlds are another. Letters, plans and margins are about the declared measure.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from eval.decisions import Outcomes, Settled, settle, within_margin
from eval.preregistration import Standing
from eval.rule import Measure, Rule, ScoreInterval
from eval.statistics.aggregate import Spread, spread_over_runs
from eval.statistics.equivalence import Equivalence
from eval.statistics.intervals import OUTCOME, Estimate, wilson
from eval.statistics.multiplicity import letters
from eval.statistics.planning import plan_paired, plan_sequence
from eval.statistics.runs import mean_over_runs
from eval.summary import (
    TECHNICAL,
    again_words,
    first_of_each_start,
    mean_score,
    own_trials,
    start_of,
)
from eval.trials.identity import SLIGHT, require_poolable
from eval.trials.table import SCORED
from robolearn.errors import ConfigError, DataError, did_you_mean
from robolearn.types import TrialRecord

STOPPED = (
    "differences have intervals that hold whenever one stopped; those of single policies are for a"
    " number of trials that was fixed beforehand"
)


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
    """``b - a`` over the same conditions. ``success``, ``score``: with simultaneous intervals,
    which leave out 0 exactly where there is a decision.

    ``p``, ``decision``: by the declared measure, adjusted over the family; ``other_p``,
    ``other_decision``: by the other one. ``only_a``, ``only_b``: conditions under which only one of
    the two succeeded, on which McNemar's test rests; None with several training runs. ``more``:
    pairs of trials, these included, after which a difference as large as the observed one would be
    found with the rule's power; None when it is settled or nothing was observed. ``margin``: the
    answer to the question about the declared margin.
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
    other_p: float
    other_decision: str
    more: int | None
    margin: Equivalence | None
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
    trials that were left out because they were made otherwise, in words; ``standings``: which
    comparisons were planned (:mod:`eval.standing`).
    """

    rule: Rule
    worlds: tuple[WorldComparison, ...]
    alone: tuple[tuple[str, str], ...]
    apart: tuple[str, ...] = ()
    standings: tuple[Standing, ...] = ()

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
    interval: ScoreInterval = "bounded_mean",
) -> Comparison:
    """Compare every pair of policies in every world that has at least two (``least`` 1: describe
    a method of several runs, too, that has nothing to compare with).

    ``groups``: method -> names of its training runs; other policies stand for themselves.
    ``common``: compare on the conditions that all have, instead of refusing different ones.
    ``mixed``: accept trials of different code, libraries or batch sizes, and say so. ``interval``:
    that of mean scores of single policies (differences keep those that match the decisions). Raises
    :class:`DataError` for trials that may not be pooled (:mod:`eval.trials.identity`), for trials
    that appear twice, and for unpaired conditions.
    """
    if not records:
        raise DataError("no trials to compare; run 'robolearn evaluate' first")
    methods = _methods(records, groups or {})
    worlds = list(dict.fromkeys(r.env for r in records))
    laid = [
        _laid_out(world, [r for r in records if r.env == world], methods, common, mixed)
        for world in worlds
        if len({methods[r.policy] for r in records if r.env == world}) >= least
    ]
    found = _compared(laid, rule, interval)
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
class _World:
    """The trials of one world, laid out by method; ``outcomes`` in the order they were given."""

    world: str
    suite: str
    outcomes: tuple[Outcomes, ...]
    notes: tuple[str, ...]

    @property
    def pairs(self) -> list[tuple[Outcomes, Outcomes]]:
        """In that order, so that a difference means the same in every world."""
        return list(itertools.combinations(self.outcomes, 2))


def _laid_out(
    world: str,
    records: Sequence[TrialRecord],
    methods: Mapping[str, str],
    common: bool,
    mixed: bool,
) -> _World:
    notes = _check_mixture(records, mixed)
    by_policy = _once_per_condition(records, notes)
    keys, dropped = _shared(world, by_policy, common)
    notes += dropped
    outcomes: list[Outcomes] = []
    names = {methods[p] for p in by_policy}
    for method in (m for m in dict.fromkeys(methods.values()) if m in names):
        runs = tuple(p for p in by_policy if methods[p] == method)
        rows = [[by_policy[p][k] for k in keys] for p in runs]
        outcomes.append(
            Outcomes(
                method,
                runs,
                np.array([[float(r.success) for r in row] for row in rows]),
                np.array([[r.score for r in row] for row in rows]),
            )
        )
    notes += [
        f"'{t.name}' is one training run: what is said about it holds for that run only"
        for t in outcomes
        if len(t.runs) == 1 and any(len(o.runs) > 1 for o in outcomes)
    ]
    return _World(world, records[0].suite, tuple(outcomes), tuple(notes))


def _compared(laid: Sequence[_World], rule: Rule, interval: ScoreInterval) -> list[WorldComparison]:
    """Worlds as they are make one family, perturbed ones another: they answer other questions."""
    found: dict[str, WorldComparison] = {}
    for perturbed in (False, True):
        worlds = [w for w in laid if ("~" in w.world) is perturbed]
        pairs = [pair for w in worlds for pair in w.pairs]
        settled = iter(settle(pairs, rule))
        for w in worlds:
            effects = tuple(_effect(a, b, rule, len(pairs), next(settled)) for a, b in w.pairs)
            found[w.world] = _comparison(w, effects, rule, interval)
    return [found[w.world] for w in laid]


def _comparison(
    w: _World, effects: tuple[Effect, ...], rule: Rule, interval: ScoreInterval
) -> WorldComparison:
    ordered = sorted(w.outcomes, key=lambda t: -float(t.of(rule.by).mean()))
    marks = letters([t.name for t in ordered], [(e.a, e.b) for e in effects if e.decision])
    notes = w.notes
    if rule.kind == "sequential":
        notes = (*notes, STOPPED)
    if not effects:
        # Else the words of a pair warn of runs that collapsed.
        notes = (*notes, *(v for t in ordered for v in _collapsed(t, rule.by)))
    return WorldComparison(
        world=w.world,
        suite=w.suite,
        entries=tuple(_entry(t, marks[t.name], interval) for t in ordered),
        effects=effects,
        notes=notes,
    )


def _once_per_condition(
    records: Sequence[TrialRecord], notes: list[str]
) -> dict[str, dict[tuple[str, int], TrialRecord]]:
    """Trials by policy and (condition, seed): the suite's own, one per condition."""
    own, left_out = own_trials(records)
    kept = first_of_each_start(own)
    found: dict[str, dict[tuple[str, int], TrialRecord]] = {}
    for r in kept:
        found.setdefault(r.policy, {})[start_of(r)] = r
    undone = Counter(r.status for r in records if r.status not in SCORED)
    notes += [f"{n} trials that are {status} are left out" for status, n in sorted(undone.items())]
    if left_out := left_out - undone.total():
        notes.append(f"{left_out} trials of moved or repeated starts are left out")
    if again := len(own) - len(kept):
        notes.append(again_words(again))
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


def _effect(
    a: Outcomes, b: Outcomes, rule: Rule, pairs: int, settled: Mapping[Measure, Settled]
) -> Effect:
    only_a = only_b = None
    if len(a.runs) == len(b.runs) == 1:
        only_a = int(np.sum(a.success[0] > b.success[0]))
        only_b = int(np.sum(b.success[0] > a.success[0]))
    other: Measure = "score" if rule.by == "success" else "success"
    mine, also = settled[rule.by], settled[other]
    # One measure of one pair among several, at worst.
    more = None if mine.better else _more(a, b, rule, rule.alpha / (2 * pairs))
    margin = within_margin(a, b, rule, pairs)
    n = a.success.shape[1]
    words = _words(a.name, b.name, n, mine, more, rule)
    if also.better:
        words += f". {_better(a.name, b.name, also, other)}"
    if margin is not None:
        words += f". {margin.words[:1].upper()}{margin.words[1:]}"
    words += "".join(f". Mind: {warning}" for warning in mine.warnings)
    return Effect(
        a=a.name,
        b=b.name,
        n=n,
        success=settled["success"].difference,
        score=settled["score"].difference,
        only_a=only_a,
        only_b=only_b,
        p=mine.p,
        decision=mine.better,
        other_p=also.p,
        other_decision=also.better,
        more=more,
        margin=margin,
        words=words,
    )


def _more(a: Outcomes, b: Outcomes, rule: Rule, alpha: float) -> int | None:
    x, y = a.of(rule.by).mean(axis=0), b.of(rule.by).mean(axis=0)
    difference = float(y.mean() - x.mean())
    if difference == 0 or x.size < 3:
        return None
    if rule.by == "success" and len(a.runs) == len(b.runs) == 1:
        spread = math.sqrt(x.mean() * (1 - x.mean()) * y.mean() * (1 - y.mean()))
        phi = 0.0 if spread == 0 else float(((x * y).mean() - x.mean() * y.mean()) / spread)
        try:
            asked = (float(x.mean()), float(y.mean()), phi, rule.power, alpha)
            if rule.kind == "sequential":
                return plan_sequence(*asked).n_max
            return plan_paired(*asked).trials
        except DataError:
            return None
    z = float(stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(rule.power))
    wanted = (z * float(np.std(y - x, ddof=1)) / difference) ** 2
    if len(a.runs) == len(b.runs) == 1:
        # Fewer show nothing even where all differ alike: that none does otherwise is to be shown.
        alike = math.log1p(abs(difference))
        wanted = max(wanted, math.log(2.0 / alpha) / alike if alike > 1e-9 else math.inf)
    return math.ceil(wanted) if math.isfinite(wanted) else None


def _better(a: str, b: str, settled: Settled, measure: Measure) -> str:
    other = a if settled.better == b else b
    e = settled.difference
    return (
        f"{settled.better} is better than {other} by {measure} ({b} minus {a}:"
        f" {e.value:+.3f} [{e.low:+.3f}, {e.high:+.3f}])"
    )


def _words(a: str, b: str, n: int, settled: Settled, more: int | None, rule: Rule) -> str:
    if settled.better:
        return _better(a, b, settled, rule.by)
    e = settled.difference
    text = (
        f"{a} and {b} are not separated by {rule.by}: with {n} conditions a difference anywhere"
        f" between {e.low:+.3f} and {e.high:+.3f} fits. This does not show that they are equal"
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


def _collapsed(table: Outcomes, measure: Measure) -> tuple[str, ...]:
    if len(table.runs) == 1:
        return ()
    return mean_over_runs(table.of(measure), name=table.name).warnings


def _entry(table: Outcomes, marks: str, interval: ScoreInterval) -> Entry:
    n = int(table.success.size)
    several = len(table.runs) > 1
    spread = spread_over_runs(list(table.score), bounds=OUTCOME) if several else None
    if several:
        success = mean_over_runs(table.success).estimate
        score = mean_over_runs(table.score).estimate
    else:
        success = wilson(int(table.success.sum()), n)
        score = mean_score(table.score.ravel(), interval)
    return Entry(table.name, table.runs, n, success, score, marks, spread)
