"""Describes how far a simulator may be trusted: the verdict, and every pair of trials behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eval.statistics.intervals import Estimate
from eval.trials.pages import trial_count
from eval.trials.table import SCORED, read_trials
from eval.trust.outcomes import Side
from eval.trust.report import TrustReport
from eval.trust.tables import PolicyPair, rate_interval
from robolearn.operations.studio.documents.command_line import command_line
from robolearn.operations.studio.documents.evaluation import MOST_TRIALS
from robolearn.operations.studio.documents.problems import Problem, Problems
from robolearn.operations.studio.documents.trials import Plays, ShownTrial, shown_trial
from robolearn.operations.trust.trials import trust_of_trials
from robolearn.types import TrialRecord

MOST_PAIRS = 5000


@dataclass(frozen=True, slots=True)
class SideTrial:
    """A trial of one side: its row, how it went, and what plays it."""

    row: int
    success: bool
    score: float
    plays: Plays
    clip: str
    episode: str
    store: str


@dataclass(frozen=True, slots=True)
class TrialPair:
    """What one policy did from one start, in reality and in simulation."""

    policy: str
    condition: str
    real: tuple[SideTrial, ...]
    sim: tuple[SideTrial, ...]


@dataclass(frozen=True, slots=True)
class PolicyRates:
    """The mean outcome of a policy in a task on both sides; the ends of an interval are NaN where
    nobody knows them (a rate without its number of trials).
    """

    task: str
    policy: str
    real: Estimate
    sim: Estimate


@dataclass(frozen=True, slots=True)
class TrustDocument:
    """A simulator judged by trials of both worlds. ``rates``: of each task's policies."""

    real: str
    sim: str
    report: TrustReport | None
    rates: tuple[PolicyRates, ...]
    # The report as lines, and the same for a terminal.
    lines: tuple[str, ...]
    command: str
    pairs: tuple[TrialPair, ...]
    problems: tuple[Problem, ...]


def trust_document(
    real: Path, sim: Path, real_world: str = "", sim_world: str = ""
) -> TrustDocument:
    """Judge the simulator of ``sim`` by the trials of ``real``; folders of several worlds need one
    of them named. Raises nothing for what the folders hold.
    """
    problems = Problems()
    count = problems.attempt("trials", lambda: trial_count(real) + trial_count(sim), 0)
    found = None
    pairs: tuple[TrialPair, ...] = ()
    if count > MOST_TRIALS:
        problems.say("trust", f"{count:,} trials are too many for a page; use 'robolearn trust'")
    else:
        found = problems.attempt(
            "trust",
            lambda: trust_of_trials((real,), (sim,), real_world=real_world, sim_world=sim_world),
            None,
        )
    if found is not None:
        pairs = problems.attempt("pairs", lambda: _pairs(real, sim, real_world, sim_world), ())
    return TrustDocument(
        real=str(real),
        sim=str(sim),
        report=None if found is None else found.report,
        rates=() if found is None else _rates(found.report),
        lines=() if found is None else tuple(found.lines),
        command=command_line(
            "trust",
            real=real,
            sim=sim,
            real_world=real_world or None,
            sim_world=sim_world or None,
        ),
        pairs=pairs[:MOST_PAIRS],
        problems=problems.found,
    )


def _rates(report: TrustReport) -> tuple[PolicyRates, ...]:
    return tuple(
        PolicyRates(t.table.task, p.policy, _rate(p, "real"), _rate(p, "sim"))
        for t in report.tasks
        for p in t.table.pairs
    )


def _rate(pair: PolicyPair, side: Side) -> Estimate:
    known = rate_interval(pair, side)
    if known is not None:
        return known
    parts = pair.real if side == "real" else pair.sim
    mean = sum(o.rate for o in parts) / len(parts)
    return Estimate(mean, math.nan, math.nan, 0, "not known")


def _pairs(real: Path, sim: Path, real_world: str, sim_world: str) -> tuple[TrialPair, ...]:
    here, there = _by_start(real, real_world), _by_start(sim, sim_world)
    return tuple(TrialPair(*key, here[key], there[key]) for key in here if key in there)


def _by_start(path: Path, world: str) -> Mapping[tuple[str, str], tuple[SideTrial, ...]]:
    found: dict[tuple[str, str], list[SideTrial]] = {}
    for row, trial in enumerate(read_trials(path), 1):
        if _counts(trial, world):
            side = _side(shown_trial(path, row, trial))
            found.setdefault((trial.policy, trial.condition), []).append(side)
    return {key: tuple(trials) for key, trials in found.items()}


def _counts(trial: TrialRecord, world: str) -> bool:
    return trial.status in SCORED and not trial.variant and world in ("", trial.env)


def _side(shown: ShownTrial) -> SideTrial:
    return SideTrial(
        row=shown.row,
        success=shown.trial.success,
        score=shown.trial.score,
        plays=shown.plays,
        clip=shown.clip,
        episode=shown.episode,
        store=shown.store,
    )
