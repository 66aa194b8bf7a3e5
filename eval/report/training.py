"""Reads run directories for the report: log, cost, settings, and which differ by seed only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from eval.plain import read_mapping
from robolearn.config import parse_yaml
from robolearn.data.insight.effort import Wear
from robolearn.shapes import Floats
from robolearn.training.diagnosis import PREFIX, Diagnosis, diagnose
from robolearn.training.log import logged

UNKNOWN = "–"
PRACTISED = ("practice/", "test/")
EPISODES = "practice/episodes"
WORN = "practice/robot_seconds"
REGRET, DIP, DRIFT = "practice/regret", "practice/dip", "practice/drift"
MIN_RUNS = 2
MIN_POINTS = 2
# What a line of the log says about the clock and the schedule, not about learning.
CLOCK = frozenset(
    ("step", "total", "seconds", "cpu_seconds", "data_seconds", "diagnosis_seconds", "lr_factor")
)


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure of the log over training: ``steps`` and ``values`` ``[k]``."""

    steps: Floats
    values: Floats


@dataclass(frozen=True, slots=True)
class PracticeCurves:
    """Over the episodes of a practice: shares of successes of what is learned and of its parent
    among the last episodes of each; the regret; on held-out starts the share of successes with its
    interval, and the parent's.
    """

    explorer: Curve | None = None
    parent: Curve | None = None
    regret: Curve | None = None
    tested: Curve | None = None
    tested_low: Curve | None = None
    tested_high: Curve | None = None
    tested_parent: Curve | None = None
    # Share of the last episodes' steps that a person drove.
    person: Curve | None = None


NO_PRACTICE = PracticeCurves()


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A training run. ``config``: its text as written; ``settings``: the same as values."""

    name: str
    # Updates made, and what they took [s]; None: nothing was logged.
    updates: int | None
    seconds: float
    cpu_seconds: float
    # As the provenance says; "–" where it does not.
    episodes: str
    seed: str
    data_hash: str
    commit: str
    config: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # The log, one mapping per line: figures by name.
    log: tuple[Mapping[str, Any], ...] = ()

    def curve(self, name: str) -> Curve | None:
        """A figure over training; None if it was logged less than twice."""
        points = [(line["step"], line[name]) for line in self.log if name in line]
        if len(points) < MIN_POINTS:
            return None
        steps, values = zip(*points, strict=True)
        return Curve(np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64))

    def figures(self) -> list[str]:
        """What was logged about learning, losses first; a critic's figures apart."""
        names = dict.fromkeys(k for line in self.log for k in line if k not in CLOCK)
        plain = [name for name in names if not name.startswith((PREFIX, *PRACTISED))]
        return sorted(plain, key=lambda name: not name.startswith("loss"))

    def critic_curves(self) -> dict[str, Curve]:
        """A critic's figures over training, by their names in the diagnosis."""
        names = dict.fromkeys(k for line in self.log for k in line if k.startswith(PREFIX))
        found = {name.removeprefix(PREFIX): self.curve(name) for name in names}
        return {name: curve for name, curve in found.items() if curve is not None}

    @property
    def practice(self) -> PracticeCurves | None:
        """What a practice logged; None for a run that did not practise."""
        found = PracticeCurves(
            explorer=self._practised("practice/explorer_success"),
            parent=self._practised("practice/parent_success"),
            regret=self._practised(REGRET),
            tested=self._practised("test/success"),
            tested_low=self._practised("test/success_low"),
            tested_high=self._practised("test/success_high"),
            tested_parent=self._practised("test/parent_success"),
            person=self._practised("practice/person_share"),
        )
        return None if found == NO_PRACTICE else found

    @property
    def switch(self) -> tuple[int, int] | None:
        """Successes that a practice cost beside its parent, and the most that it had cost, by its
        last round; None where that was not logged.
        """
        lines = [line for line in self.log if REGRET in line and DIP in line]
        return (round(lines[-1][REGRET]), round(lines[-1][DIP])) if lines else None

    @property
    def drift(self) -> float | None:
        """How far the practised policy's answers were from its parent's when that was last seen."""
        found = [float(line[DRIFT]) for line in self.log if DRIFT in line]
        return found[-1] if found else None

    @property
    def wear(self) -> Wear | None:
        """What a practice cost by its last round; None where that was not logged."""
        lines = [line for line in self.log if WORN in line]
        if not lines:
            return None
        last = lines[-1]

        def told(name: str) -> float:
            """A figure of the last round, 0 where it was not logged."""
            return float(last.get(PRACTISED[0] + name, 0.0))

        return Wear(
            robot_seconds=told("robot_seconds"),
            moves=round(told("moves")),
            travel_rad=told("travel_rad"),
            travel_m=told("travel_m"),
            stops=round(told("stops")),
            interventions=round(told("interventions")),
            force_peaks=round(told("force_peaks")),
            largest_force_n=told("largest_force_n"),
            take_overs=round(told("take_overs")),
            person_seconds=told("person_seconds"),
        )

    def _practised(self, name: str) -> Curve | None:
        """A figure of a practice over its episodes."""
        lines = [line for line in self.log if name in line and EPISODES in line]
        if not lines:
            return None
        columns = ([line[key] for line in lines] for key in (EPISODES, name))
        return Curve(*(np.asarray(column, dtype=np.float64) for column in columns))

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What a critic's curves say; None for a run without one."""
        return diagnose(self.log)

    def losses(self) -> list[str]:
        """The losses in the first line of the log."""
        return [k for k in (self.log[0] if self.log else {}) if k.startswith("loss")]


def run_facts(folder: Path) -> RunFacts:
    """A run directory's log, provenance and configuration."""
    lines = logged(folder)
    last = lines[-1] if lines else {}
    config = folder / "config.yaml"
    written = config.read_text(encoding="utf-8") if config.is_file() else ""
    read: Any = parse_yaml(written)
    settings = cast("Mapping[str, Any]", read) if isinstance(read, dict) else {}
    path = folder / "provenance.json"
    provenance = read_mapping(path) if path.is_file() else {}
    return RunFacts(
        name=folder.name,
        updates=int(last["step"]) if "step" in last else None,
        seconds=float(last.get("seconds", 0.0)),
        cpu_seconds=float(last.get("cpu_seconds", 0.0)),
        episodes=str(provenance.get("episodes", UNKNOWN)),
        seed=str(provenance.get("seed", settings.get("seed", UNKNOWN))),
        data_hash=str(provenance.get("data_hash", "")),
        commit=str(provenance.get("commit", UNKNOWN)),
        config=written,
        settings=settings,
        log=lines,
    )


def run_families(runs: Sequence[RunFacts]) -> list[list[RunFacts]]:
    """Runs that differ in nothing but their seed, where there are several."""
    families: dict[str, list[RunFacts]] = {}
    for run in runs:
        rest = {k: v for k, v in run.settings.items() if k != "seed"}
        if run.settings and run.log:
            families.setdefault(json.dumps(rest, sort_keys=True, default=str), []).append(run)
    return [f for f in families.values() if len(f) >= MIN_RUNS]


def loss_curves(runs: Sequence[RunFacts]) -> tuple[str, dict[str, Curve]]:
    """The first loss of the first run, over training, of every run that has it."""
    name = next(iter(runs[0].losses()), "")
    curves = {run.name: run.curve(name) for run in runs}
    return name, {run: curve for run, curve in curves.items() if curve is not None}
