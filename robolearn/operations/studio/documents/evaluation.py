"""Describes an evaluation: the typed report, complete or while its trials run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from eval.blinded.unblinded import require_open
from eval.report.data import EvaluationData, load_evaluation
from eval.standing import standing_lines
from eval.statistics.intervals import Estimate, wilson
from eval.trials.pages import Tally, trial_count, trial_page, trial_tallies
from eval.trials.rows import FILE_NAME
from eval.trials.table import SCORED
from robolearn.operations.studio.documents.problems import Problem, Problems, gone

MOST_TRIALS = 20_000
"""Of more trials counts and intervals are shown; what compares them start by start is not."""
LIVE_S = 60.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Trials of one policy in one world that count, and the share of successes."""

    policy: str
    world: str
    kind: str
    trials: int
    successes: int
    success: Estimate


@dataclass(frozen=True, slots=True)
class EvaluationDocument:
    """A results folder. ``data``: what the report is made of; None where it cannot be told (see
    ``problems``), and then ``rates`` say what can. ``live``: trials were added just now.
    """

    name: str
    path: str
    trials: int
    live: bool
    data: EvaluationData | None
    rates: tuple[Rate, ...]
    # How pairs are decided, and which comparisons were planned, in words.
    rule: str
    standings: tuple[str, ...]
    problems: tuple[Problem, ...]


def evaluation_document(path: Path, *, now_s: float | None = None) -> EvaluationDocument:
    """What the trials of a results folder say so far.

    Blinded trials are refused, in words: nobody looks at them before the end. Raises nothing for
    what the folder holds.
    """
    problems = Problems()
    if missing := gone(path):
        problems.say("evaluation", missing)
    count, data, tallies = 0, None, ()
    if not missing and problems.attempt("trials", lambda: _open_to_all(path), False):
        count = problems.attempt("trials", lambda: trial_count(path), 0)
        tallies = problems.attempt("trials", lambda: trial_tallies(path), ())
    if count > MOST_TRIALS:
        problems.say(
            "report",
            f"{count:,} trials are too many to be compared start by start on a page (at most"
            f" {MOST_TRIALS:,}): rates are shown; 'robolearn report' and 'compare' read them all",
        )
    elif any(t.kind == "sim" for t in tallies):
        data = problems.attempt("report", lambda: load_evaluation(path), None)
    comparison = None if data is None else data.comparison
    return EvaluationDocument(
        name=path.name,
        path=str(path),
        trials=count,
        live=_live(path, time.time() if now_s is None else now_s),
        data=data,
        rates=_rates(tallies),
        rule="" if comparison is None else comparison.rule.words(),
        standings=() if comparison is None else tuple(standing_lines(comparison)),
        problems=problems.found,
    )


def _open_to_all(path: Path) -> bool:
    """Whether nobody is blinded here; else DataError."""
    first = trial_page(path, 0, 1).trials
    require_open(path, first)
    return True


def _live(path: Path, now_s: float) -> bool:
    """Whether rows came within the last minute; they come into the log beside the table first."""
    files = (path / f"{FILE_NAME}{end}" for end in ("", "-wal"))
    newest = max((f.stat().st_mtime for f in files if f.is_file()), default=0.0)
    return now_s - newest < LIVE_S


def _rates(tallies: tuple[Tally, ...]) -> tuple[Rate, ...]:
    counted: dict[tuple[str, str, str], tuple[int, int]] = {}
    for t in tallies:
        if t.status in SCORED and not t.variant:
            n, k = counted.get((t.policy, t.env, t.kind), (0, 0))
            counted[t.policy, t.env, t.kind] = n + t.trials, k + t.successes
    return tuple(Rate(*key, n, k, wilson(k, n)) for key, (n, k) in counted.items())
