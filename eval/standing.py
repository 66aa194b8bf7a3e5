"""Says of every comparison whether it was planned before the first trial, or is exploratory.

Planned is what the plan asks, by its rule, over its starts, for its worlds and policies, from
trials that all carry its hash and of which none is left out. All else may be true as well; but
whoever looks first and chooses then finds something by chance more often than the level says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from eval.compare import Comparison, Effect, WorldComparison
from eval.preregistration import Preregistration, Standing
from eval.rule import Rule
from eval.summary import start_of
from eval.trials.table import SCORED
from robolearn.types import TrialRecord

Plans = Mapping[str, Preregistration | str]
UNPLANNED = "no plan was written before the first trial ('robolearn suite plan')"


def standings(
    comparison: Comparison,
    counted: Sequence[TrialRecord],
    every: Sequence[TrialRecord],
    plans: Plans,
) -> tuple[Standing, ...]:
    """The standing of every pair of ``comparison``, which was made from ``counted``.

    ``every``: all trials of the folders, also those that are kept apart; ``plans``: by hash.
    """
    trials = _Trials(
        _by_cell(counted),
        _by_cell(every),
        {d: _first([r for r in every if r.plan == d]) for d in {r.plan for r in counted} - {""}},
    )
    return tuple(
        _standing(comparison, w, effect, trials, plans)
        for w in comparison.worlds
        for effect in w.effects
    )


@dataclass(frozen=True, slots=True)
class _Trials:
    """Trials by (world, policy), and when the first one under each plan began."""

    counted: Mapping[tuple[str, str], Sequence[TrialRecord]]
    every: Mapping[tuple[str, str], Sequence[TrialRecord]]
    first: Mapping[str, datetime | None]


def standing_lines(comparison: Comparison) -> list[str]:
    """The standings as sentences, equal ones told once."""
    found = comparison.standings
    lines: list[str] = []
    for words in dict.fromkeys(s.words for s in found):
        pairs = [f"{s.b} - {s.a} in {s.world}" for s in found if s.words == words]
        which = "every comparison" if len(pairs) == len(found) else ", ".join(pairs)
        lines.append(f"{which}: {words}")
    other = "score" if comparison.rule.by == "success" else "success"
    effects = [e for w in comparison.worlds for e in w.effects]
    if any(s.planned for s in found) and any(e.other_decision for e in effects):
        lines.append(f"what is said by {other}, which was not planned, is exploratory")
    return lines


def standing_of(comparison: Comparison, world: str, effect: Effect) -> str:
    """``planned`` or ``exploratory``; empty where nobody asked."""
    for s in comparison.standings:
        if (s.world, s.a, s.b) == (world, effect.a, effect.b):
            return "planned" if s.planned else "exploratory"
    return ""


def _standing(
    comparison: Comparison,
    w: WorldComparison,
    effect: Effect,
    trials: _Trials,
    plans: Plans,
) -> Standing:
    runs = {e.name: e.runs for e in w.entries}
    cells = [(w.world, name) for name in {*runs[effect.a], *runs[effect.b]}]
    mine = [r for cell in cells for r in trials.counted.get(cell, ())]
    digests = {r.plan for r in mine}
    if digests == {""}:
        return _exploratory(w, effect, [UNPLANNED])
    if len(digests) > 1:
        told = sorted(d or "none" for d in digests)
        return _exploratory(w, effect, [f"its trials were run under different plans ({told})"])
    digest = digests.pop()
    plan = plans.get(digest, f"the plan {digest} that its trials name is not in the results folder")
    if isinstance(plan, str):
        return _exploratory(w, effect, [plan])
    under = sum(_under(digest, trials.every.get(cell, ())) for cell in cells)
    left, first = under - effect.n * len(cells), trials.first[digest]
    why = [*_of_rule(comparison.rule, plan.rule), *_of_number(effect.n, w.world, plan)]
    why += _of_what(comparison, w, effect, plan)
    if left:
        why.append(f"{left} trials were run under the plan and do not count in it")
    if any(r.judge for r in mine):
        why.append("a classifier decided on success, of which the plan says nothing")
    if first is None or first < plan.begun:
        why.append(f"the plan was written after the first trial ({_shown(first)})")
    if why:
        return _exploratory(w, effect, [f"not as plan {digest} says", *why])
    words = (
        f"planned (plan {digest}, written {_shown(plan.begun)}, before its first trial,"
        f" {_shown(first)})"
    )
    return Standing(w.world, effect.a, effect.b, planned=True, words=words)


def _exploratory(w: WorldComparison, effect: Effect, why: Sequence[str]) -> Standing:
    words = f"exploratory: {'; '.join(why)}"
    return Standing(w.world, effect.a, effect.b, planned=False, words=words)


def _by_cell(records: Sequence[TrialRecord]) -> dict[tuple[str, str], list[TrialRecord]]:
    """The suite's own trials that are results, by (world, policy)."""
    found: dict[tuple[str, str], list[TrialRecord]] = {}
    for r in records:
        if not r.variant and r.status in SCORED:
            found.setdefault((r.env, r.policy), []).append(r)
    return found


def _of_rule(rule: Rule, plan: Rule) -> Iterator[str]:
    for name, mine, planned in (
        ("rule", rule.kind, plan.kind),
        ("measure", rule.by, plan.by),
        ("alpha", f"{rule.alpha:g}", f"{plan.alpha:g}"),
        ("margin", _margin(rule), _margin(plan)),
    ):
        if mine != planned:
            yield f"its {name} is {planned}, here {mine}"


def _margin(rule: Rule) -> str:
    return "none" if rule.margin is None else f"{rule.margin:g} ({rule.question})"


def _of_number(n: int, world: str, plan: Preregistration) -> Iterator[str]:
    wanted = plan.starts_in(world)
    if wanted is None:
        return
    if n > wanted:
        yield f"{n} starts were tried, {wanted} planned"
    elif n < wanted and plan.rule.kind == "fixed":
        yield f"{n} of {wanted} planned starts were tried, and the rule is not sequential"


def _under(digest: str, records: Sequence[TrialRecord]) -> int:
    """How many trials were run under the plan that a comparison should have; those of a robot that
    repeat a start are planned for another question.
    """
    return len({(r.policy_hash, r.env_hash, start_of(r)) for r in records if r.plan == digest})


def _of_what(
    comparison: Comparison, w: WorldComparison, effect: Effect, plan: Preregistration
) -> Iterator[str]:
    if w.suite != plan.suite:
        yield f"its suite is {plan.suite}, here {w.suite}"
    if w.world not in plan.worlds:
        yield f"it is about {', '.join(plan.worlds)}, not {w.world}"
    runs = {e.name: e.runs for e in w.entries}
    for name in (effect.a, effect.b):
        if len(runs[name]) > 1 and set(plan.groups.get(name, ())) != set(runs[name]):
            yield f"it does not say that {', '.join(runs[name])} are the runs of {name}"
        elif plan.methods and name not in plan.methods:
            yield f"it does not name {name}"
    # A family that lacks planned pairs would share the error among fewer than was planned.
    missing = [
        f"{name} in {world}" if name else world
        for world in plan.worlds
        for name in sorted(plan.methods) or [""]
        if not _has(comparison.in_world(world), name)
    ]
    if missing:
        yield f"the error was to be shared with {', '.join(missing)}, not compared here"


def _has(world: WorldComparison | None, name: str) -> bool:
    return world is not None and (not name or name in {e.name for e in world.entries})


def _first(records: Sequence[TrialRecord]) -> datetime | None:
    """When the first of them began; None where one does not say it."""
    times = [datetime.fromisoformat(r.started) for r in records if r.started]
    if len(times) < len(records) or any(t.tzinfo is None for t in times):
        return None
    return min(times, default=None)


def _shown(moment: datetime | None) -> str:
    return "whose time is not known" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"
