"""Describes a deployment: what it came to, what the supervisor did, how punctual it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eval.blinded.unblinded import require_open
from eval.plain import read_mapping
from eval.report.deployment import DeployFacts, deploy_facts
from eval.trials.pages import trial_count, trial_page
from robolearn.operations.studio.documents.evaluation import Rate, evaluation_document
from robolearn.operations.studio.documents.problems import Problem, Problems, gone

DOCUMENT = "deploy.json"
MOST_TRIALS = 500
"""Of more trials the times of all ticks are not read, which takes every episode."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of some times [ms]."""

    name: str
    n: int
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class TrialEvents:
    """What the supervisor did in one trial: causes and how often."""

    condition: str
    episode: str
    interventions: Mapping[str, int]
    aborted: str


@dataclass(frozen=True, slots=True)
class DeploymentDocument:
    """A deployment's folder."""

    name: str
    path: str
    robot: str
    policy: str
    suite: str
    # Why the policy was let drive: certified, uncertified, accepted; and what was said.
    permission: Mapping[str, str]
    trials: int
    rates: tuple[Rate, ...]
    figures: tuple[tuple[str, str], ...]
    times: tuple[Quantiles, ...]
    interventions: Mapping[str, int]
    events: tuple[TrialEvents, ...]
    problems: tuple[Problem, ...]


def deployment_document(path: Path) -> DeploymentDocument:
    """What a deployment left behind. Raises nothing for what the folder holds."""
    problems = Problems()
    if missing := gone(path):
        problems.say("deployment", missing)
    raw = problems.attempt(DOCUMENT, lambda: _document(path), {})
    results = evaluation_document(path)
    for problem in results.problems:
        problems.say(problem.where, problem.words)
    facts = problems.attempt("times", lambda: _facts(path, problems), None)
    return DeploymentDocument(
        name=path.name,
        path=str(path),
        robot=str(raw.get("robot", "")),
        policy=str(raw.get("policy", "")),
        suite=str(raw.get("suite", "")),
        permission={k: str(v) for k, v in raw.items() if "certif" in k},
        trials=results.trials,
        rates=results.rates,
        figures=() if facts is None else facts.figures,
        times=() if facts is None else _times(facts),
        interventions=dict(facts.interventions or {}) if facts is not None else {},
        events=problems.attempt("interventions", lambda: _events(raw.get("trials", ())), ()),
        problems=problems.found,
    )


def _document(path: Path) -> Mapping[str, Any]:
    file = path / DOCUMENT
    return read_mapping(file) if file.is_file() else {}


def _facts(path: Path, problems: Problems) -> DeployFacts | None:
    if not path.is_dir():
        return None
    count = trial_count(path)
    if count > MOST_TRIALS:
        problems.say("times", f"{count:,} trials: the times of all their ticks are not read")
        return None
    require_open(path, trial_page(path, 0, 1).trials)
    return deploy_facts(path)


def _times(facts: DeployFacts) -> tuple[Quantiles, ...]:
    named = {
        "answers of the policy": facts.times.inference_ms,
        "ticks that began late": facts.times.late_ms,
        "from tick to tick": facts.times.interval_ms,
        "set-points that came late": facts.times.setpoint_ms,
    }
    return tuple(_quantiles(name, values) for name, values in named.items() if values)


def _quantiles(name: str, values: Sequence[float]) -> Quantiles:
    found = np.array(values, dtype=np.float64)
    p50, p90, p99 = (float(v) for v in np.percentile(found, (50, 90, 99)))
    return Quantiles(name, len(found), p50, p90, p99, float(found.max()))


def _events(trials: Sequence[Mapping[str, Any]]) -> tuple[TrialEvents, ...]:
    return tuple(
        TrialEvents(
            condition=str(t.get("condition", "")),
            episode=str(t.get("episode", "")),
            interventions=_causes(t.get("interventions", ())),
            aborted=str(t.get("aborted", "")),
        )
        for t in trials
    )


def _causes(interventions: Sequence[Mapping[str, Any]]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for entry in interventions:
        cause = str(entry["cause"])
        found[cause] = found.get(cause, 0) + 1
    return found
