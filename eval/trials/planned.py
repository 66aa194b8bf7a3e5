"""Holds an evaluation to its plan: suite, policies, starts, and trials that carry its hash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.preregistration import Registered
from eval.trials.suites import Suite
from eval.trials.table import TrialKey
from robolearn.errors import ConfigError
from robolearn.types import TrialRecord


def counts_by_plan(
    found: Registered | None, suite: Suite, worlds: Sequence[str], conditions: int | None
) -> dict[str, int]:
    """How many starts each world is given: as asked, as planned, or as the suite says.

    Errors: :class:`ConfigError` for more starts than were planned.
    """
    planned = None if found is None else found.plan.rule.n_max
    mine = () if found is None else found.plan.worlds
    if planned is not None and (conditions or 0) > planned and set(worlds) & set(mine):
        raise ConfigError(
            f"conditions: the plan is about {planned} starts, got {conditions}; evaluate more"
            " without it and into another folder, as an exploration"
        )
    if conditions is not None:
        return dict.fromkeys(worlds, conditions)
    return {w: planned if planned and w in mine else suite.count_for(w) for w in worlds}


def require_planned(found: Registered | None, suite: Suite, policies: Sequence[str]) -> None:
    """:class:`ConfigError` for another suite, or another version of it, than was planned, and for
    policies that the plan does not name.
    """
    if found is None:
        return
    if found.plan.suite != suite.label:
        raise ConfigError(
            f"plan {found.hash} is about the suite {found.plan.suite}, got {suite.label}; give that"
            " suite, or write another plan"
        )
    named = found.plan.policies
    odd = [name for name in policies if named and name not in named]
    if odd:
        raise ConfigError(
            f"plan {found.hash} names the policies {list(named)}, not {odd}; evaluate these without"
            " it and into another folder, or write another plan"
        )


def require_one_plan(
    digest: str,
    wanted: Sequence[TrialKey],
    known: Mapping[TrialKey, TrialRecord],
    folder: Path,
) -> None:
    """:class:`ConfigError` where trials that count here are there already under another plan, or
    under none: together they would be neither planned nor what was planned then.
    """
    others = [known[key].plan for key in wanted if key in known and known[key].plan != digest]
    if not others:
        return
    theirs = ", ".join(sorted({f"plan {o}" if o else "no plan" for o in others}))
    mine = f"plan {digest}" if digest else "no plan"
    raise ConfigError(
        f"'{folder}' has {len(others)} of these trials already, run under {theirs}; here they are"
        f" asked for under {mine}. Give the same plan again, or another results folder"
    )
