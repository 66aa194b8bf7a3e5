"""Describes blinded trials: where they stand, and nothing of what they came to before the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eval.blinded.plan import LockedPlan, read_locked
from eval.blinded.unblinded import UNBLINDED, require_open
from eval.plain import read_mapping
from eval.trials.pages import trial_page
from robolearn.operations.studio.documents.command_line import command_line
from robolearn.operations.studio.documents.evaluation import Rate, evaluation_document
from robolearn.operations.studio.documents.loose import mapping, texts
from robolearn.operations.studio.documents.problems import Problem, Problems, gone
from robolearn.operations.trial.report import TrialReport, trial_report


@dataclass(frozen=True, slots=True)
class PlannedTrials:
    """What was fixed before the first trial."""

    hash: str
    suite: str
    cells: tuple[str, ...]
    aliases: tuple[str, ...]
    slots: int
    pairs: bool
    written: str
    score: str
    rubric: tuple[str, ...]
    rule: str
    requeue: str


@dataclass(frozen=True, slots=True)
class TrialSessionDocument:
    """Blinded trials. ``names``: alias -> policy, once they were unblinded; then ``rates`` say what
    the trials came to.
    """

    name: str
    path: str
    plan: PlannedTrials | None
    report: TrialReport | None
    lines: tuple[str, ...]
    unblinded: bool
    names: Mapping[str, str]
    rates: tuple[Rate, ...]
    commands: tuple[str, ...]
    problems: tuple[Problem, ...]


def trial_session_document(path: Path) -> TrialSessionDocument:
    """Where blinded trials stand. Raises nothing for what the folder holds."""
    problems = Problems()
    if missing := gone(path):
        problems.say("trials", missing)
    plan = problems.attempt("plan", lambda: _planned(read_locked(path)), None)
    report = problems.attempt("trials", lambda: trial_report(path), None)
    unblinded = (path / UNBLINDED).is_file()
    names = problems.attempt("names", lambda: _names(path), {}) if unblinded else texts(None)
    results = evaluation_document(path) if unblinded else None
    if results is not None:
        for problem in results.problems:
            problems.say(problem.where, problem.words)
    return TrialSessionDocument(
        name=path.name,
        path=str(path),
        plan=plan,
        report=report,
        lines=() if report is None else report.lines,
        unblinded=unblinded,
        names=names,
        rates=() if results is None else results.rates,
        commands=_commands(path, report, unblinded),
        problems=problems.found,
    )


def _planned(locked: LockedPlan) -> PlannedTrials:
    plan = locked.plan
    return PlannedTrials(
        hash=locked.hash,
        suite=plan.suite,
        cells=tuple(plan.cells),
        aliases=plan.aliases,
        slots=len(plan.slots),
        pairs=plan.pairs,
        written=plan.written,
        score=plan.score,
        rubric=plan.rubric,
        rule=plan.rule.words(),
        requeue=plan.requeue,
    )


def _names(path: Path) -> Mapping[str, str]:
    require_open(path, trial_page(path, 0, 1).trials)
    policies = mapping(read_mapping(path / UNBLINDED)["policies"])
    return {str(alias): str(entry["policy"]) for alias, entry in policies.items()}


def _commands(path: Path, report: TrialReport | None, unblinded: bool) -> tuple[str, ...]:
    if unblinded:
        return (command_line("compare", path),)
    complete = report is not None and report.complete
    return (command_line("trial report", path, unblind=complete),)
