"""Describes a training run: where it stands, what it learned from, what its log says of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from eval.plain import read_mapping
from eval.report.training import PracticeCurves, RunFacts, run_facts
from robolearn.config import parse_yaml
from robolearn.data.insight.effort import Wear
from robolearn.operations.studio.documents.loose import (
    at,
    listed,
    mapping,
    number,
    texts,
    whole,
)
from robolearn.operations.studio.documents.problems import Problem, Problems, gone
from robolearn.operations.studio.documents.training.practice import (
    PracticeOutcome,
    practice_outcome,
)
from robolearn.operations.studio.documents.training.run_commands import RunCommand, run_commands
from robolearn.training.diagnosis import Diagnosis
from robolearn.training.log import JOURNAL

State = Literal["training", "finished", "stopped", "unreadable"]

LIVE_S = 90.0
"""A log that was written to within so many seconds belongs to a training that runs."""
MOST_LOG_BYTES = 32 << 20
"""Of a longer log only the curves are read, part by part."""
HELD_OUT = "held_out/"
PRACTISED = "practice.jsonl"


@dataclass(frozen=True, slots=True)
class RunDocument:
    """A run directory. ``None`` and empty: not known, or it has none; ``problems`` say why where
    something is wrong.
    """

    name: str
    path: str
    state: State
    policy: str
    # Updates made, and how many were asked for.
    updates: int | None
    wanted: int | None
    # What they took [s].
    seconds: float
    cpu_seconds: float
    episodes: str
    seed: str
    data_hash: str
    commit: str
    started_wall_s: float | None
    # The configuration as written.
    config: str
    # What is logged, by group: losses first.
    figures: tuple[str, ...]
    held_out: tuple[str, ...]
    critic: tuple[str, ...]
    diagnosis: Diagnosis | None
    practice: PracticeCurves | None
    # Whether there is more to ask: which version succeeded how often.
    practised: bool
    # Why its practice was over; None while it goes on.
    outcome: PracticeOutcome | None
    wear: Wear | None
    # The run that it builds on: its name inside of this one, and how it was called.
    parent: str
    versions: Mapping[str, str]
    # Episodes that were kept from training, for the losses on them.
    held_out_episodes: tuple[str, ...]
    # Where a certificate lies in the run.
    certified: bool
    commands: tuple[RunCommand, ...]
    problems: tuple[Problem, ...]


def run_document(
    path: Path, *, stores: Mapping[str, Path] | None = None, now_s: float | None = None
) -> RunDocument:
    """What there is to know of a run directory, also of one that is half written.

    ``stores``: known stores by the hash of their content, for the commands; ``now_s``: the time, as
    files have it. Raises nothing for what the folder holds.
    """
    problems = Problems()
    if missing := gone(path):
        problems.say("run", missing)
    provenance = problems.attempt("provenance.json", lambda: _provenance(path), {})
    facts = problems.attempt("run", lambda: _facts(path, problems), _nothing(path.name))
    diagnosis = problems.attempt("diagnosis", lambda: facts.diagnosis, None)
    practice = problems.attempt("practice", lambda: facts.practice, None)
    state = _state(path, provenance, facts, time.time() if now_s is None else now_s)
    figures = problems.attempt("figures", facts.figures, [])
    if state == "unreadable" and not problems.found:
        problems.say("run", "nothing of a run can be read here: no settings, no log, no provenance")
    elif not (path / JOURNAL).is_file():
        problems.say(JOURNAL, "nothing was logged yet")
    return RunDocument(
        name=path.name,
        path=str(path),
        state=state,
        policy=str(facts.settings.get("policy", "")),
        updates=facts.updates,
        wanted=whole(at(facts.settings, "fit", "steps")),
        seconds=facts.seconds,
        cpu_seconds=facts.cpu_seconds,
        episodes=facts.episodes,
        seed=facts.seed,
        data_hash=facts.data_hash,
        commit=str(provenance.get("git_revision", "") or ""),
        started_wall_s=number(provenance.get("started_wall_s")),
        config=facts.config,
        figures=tuple(f for f in figures if not f.startswith(HELD_OUT)),
        held_out=tuple(f for f in figures if f.startswith(HELD_OUT)),
        critic=tuple(problems.attempt("critic", facts.critic_curves, {})),
        diagnosis=diagnosis,
        practice=practice,
        practised=(path / PRACTISED).is_file(),
        outcome=problems.attempt("practice", lambda: practice_outcome(path), None),
        wear=problems.attempt("practice", lambda: facts.wear, None),
        parent="parent" if (path / "parent").is_dir() else "",
        versions=texts(provenance.get("versions")),
        held_out_episodes=tuple(map(str, listed(provenance.get("held_out")))),
        certified=(path / "certificate.json").is_file(),
        commands=run_commands(path, facts, state == "finished", stores or {}),
        problems=problems.found,
    )


def _nothing(name: str) -> RunFacts:
    return RunFacts(name, None, 0.0, 0.0, "", "", "", "", "")


def _provenance(path: Path) -> Mapping[str, Any]:
    file = path / "provenance.json"
    return read_mapping(file) if file.is_file() else {}


def _facts(path: Path, problems: Problems) -> RunFacts:
    """The run's facts; of a log that is long or damaged those that do not need it."""
    file = path / JOURNAL
    size = file.stat().st_size if file.is_file() else 0
    if size > MOST_LOG_BYTES:
        problems.say(
            JOURNAL,
            f"the log has {size >> 20} MiB: its curves are shown, what is told from the whole of"
            " it (diagnosis, practice) is not",
        )
    else:
        found = problems.attempt("log", lambda: run_facts(path), None)
        if found is not None:
            return found
    return _without_log(path, problems)


def _without_log(path: Path, problems: Problems) -> RunFacts:
    provenance = problems.attempt("provenance.json", lambda: _provenance(path), {})
    config = path / "config.yaml"
    text = problems.attempt("config.yaml", lambda: _text(config), "")
    settings = problems.attempt("config.yaml", lambda: parse_yaml(text), None)
    return RunFacts(
        name=path.name,
        updates=None,
        seconds=0.0,
        cpu_seconds=0.0,
        episodes=str(provenance.get("episodes", "")),
        seed=str(provenance.get("seed", "")),
        data_hash=str(provenance.get("data_hash", "")),
        commit="",
        config=text,
        settings=mapping(settings),
    )


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _state(path: Path, provenance: Mapping[str, Any], facts: RunFacts, now_s: float) -> State:
    if provenance.get("complete") is True:
        return "finished"
    # Before a practice has learned anything there is only what it has flown.
    if not (facts.settings or provenance or facts.log or (path / PRACTISED).is_file()):
        return "unreadable"
    newest = max(
        (
            (path / name).stat().st_mtime
            for name in (JOURNAL, PRACTISED, "provenance.json", "config.yaml")
            if (path / name).is_file()
        ),
        default=0.0,
    )
    return "training" if now_s - newest < LIVE_S else "stopped"
