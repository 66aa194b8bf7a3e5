"""Reads the folder of ``robolearn deploy`` for the report: trials, times, interventions."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eval.blinded.unblinded import require_open
from eval.plain import read_mapping
from eval.trials.table import SCORED, has_trials, read_trials
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import RobolearnError
from robolearn.types import TrialRecord

log = logging.getLogger(__name__)

FIGURES_FILE = "deploy.json"
# Nested figures deeper than this, and more of them, are for programs.
MAX_DEPTH, MAX_FIGURES = 3, 60


@dataclass(frozen=True, slots=True)
class TickTimes:
    """Times of the control loop [ms]: one value per answer, tick or interval."""

    period_ms: float = 0.0
    inference_ms: tuple[float, ...] = ()
    late_ms: tuple[float, ...] = ()
    interval_ms: tuple[float, ...] = ()
    setpoint_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class DeployFacts:
    """Deployed trials, times of their ticks, what the supervisor did.

    ``interventions``: times by cause; None when nothing was noted. ``figures``: all others, by
    name, as text.
    """

    trials: tuple[TrialRecord, ...]
    times: TickTimes
    interventions: Mapping[str, int] | None
    figures: tuple[tuple[str, str], ...]
    videos: tuple[Path, ...]

    @property
    def virtual(self) -> bool:
        """Whether the robot was emulated."""
        return any(t.kind == "lab" for t in self.trials)


def deploy_facts(folder: Path) -> DeployFacts | None:
    """What a deployment left, if anything."""
    if not folder.is_dir():
        return None
    records = read_trials(folder) if has_trials(folder) else ()
    if records:
        require_open(folder, records)
    trials = tuple(r for r in records if r.status in SCORED)
    path = folder / FIGURES_FILE
    document = read_mapping(path) if path.is_file() else {}
    details: list[Mapping[str, Any]] = list(document.get("trials", ()))
    times = _times(folder / "store", details)
    if not (trials or document or times.inference_ms):
        return None
    causes = [str(e["cause"]) for d in details for e in d.get("interventions", ())]
    return DeployFacts(
        trials=trials,
        times=times,
        interventions=Counter(causes) if "trials" in document else None,
        figures=tuple(_flat(document)[:MAX_FIGURES]),
        videos=tuple(sorted(folder.glob("**/*.mp4"))),
    )


def _times(folder: Path, details: list[Mapping[str, Any]]) -> TickTimes:
    inference: list[float] = []
    late: list[float] = []
    interval: list[float] = []
    period_ms = 0.0
    if folder.is_dir():
        try:
            store = EpisodeStore.open(folder)
            for info in store.list():
                episode = store.read(info.id)
                period_ms = 1e3 / info.rate_hz
                inference += [float(v) * 1e-6 for v in episode.inference_ns if v > 0]
                late += [float(v) * 1e-6 for v in episode.overrun_ns]
                interval += [float(v) * 1e-6 for v in np.diff(episode.tick_t_ns)]
        except RobolearnError as error:
            log.warning("deployed episodes are left out: %s", error)
    setpoints = tuple(float(v) for d in details for v in d.get("setpoint_lateness_ms", ()))
    return TickTimes(period_ms, tuple(inference), tuple(late), tuple(interval), setpoints)


def _flat(figures: Mapping[str, Any], prefix: str = "", depth: int = 0) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in figures.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            rows += _flat(value, f"{prefix}{key}: ", depth + 1)
        elif isinstance(value, (int, float, str, bool)):
            rows.append((name, f"{value:.4g}" if isinstance(value, float) else str(value)))
    return rows
