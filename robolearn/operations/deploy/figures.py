"""Counts a deployment's figures: latency, jitter, interventions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.trials.table import SCORED
from robolearn.runtime import EpisodeResult
from robolearn.shapes import Floats
from robolearn.types import TrialRecord

_KEPT = 2000


@dataclass(frozen=True, slots=True)
class Figures:
    """Totals over trials; times are of single calls and set-points [ms]."""

    episodes: int
    mean_score: float
    successes: int
    inference_ms_p50: float
    inference_ms_p99: float
    setpoint_late_ms_p50: float
    setpoint_late_ms_p99: float
    overruns: int
    interventions: int
    implausible_poses: int
    # Trials that a person had to help in, how many of them were solved so, and the steps that the
    # person drove, of all steps.
    corrected: int = 0
    corrected_successes: int = 0
    person_steps: int = 0
    steps: int = 0


def safety_metrics(interventions: int, implausible_poses: int) -> dict[str, float]:
    """Of any trial, also one that was cut short: how often the supervisor intervened, and how many
    measurements of its trackers were not believed.
    """
    return {
        "interventions": float(interventions),
        "implausible_poses": float(implausible_poses),
    }


def trial_metrics(
    result: EpisodeResult, lateness_ns: Sequence[int], skipped: int
) -> dict[str, float]:
    """Numbers of one trial that ended, for its record."""
    inference = np.array(result.inference_ns, dtype=np.float64) * 1e-6
    late = np.array(lateness_ns, dtype=np.float64) * 1e-6
    return {
        **{k: float(v) for k, v in result.outcome.metrics.items()},
        "inference_ms_p50": percentile(inference, 50),
        "inference_ms_p99": percentile(inference, 99),
        "overruns": float(sum(v > 0 for v in result.overrun_ns)),
        "skipped_ticks": float(skipped),
        "setpoint_late_ms_p50": percentile(late, 50),
        "setpoint_late_ms_p99": percentile(late, 99),
        "setpoint_late_ms_max": percentile(late, 100),
    }


def figures(
    trials: Sequence[TrialRecord], inference_ms: Sequence[float], lateness_ms: Sequence[float]
) -> Figures:
    """Totals over all trials that count: those that were voided do not, aborted ones failed."""
    trials = [t for t in trials if t.status in SCORED]
    inference, late = np.array(inference_ms), np.array(lateness_ms)
    return Figures(
        episodes=len(trials),
        mean_score=float(np.mean([t.score for t in trials])) if trials else 0.0,
        successes=sum(t.success for t in trials),
        inference_ms_p50=percentile(inference, 50),
        inference_ms_p99=percentile(inference, 99),
        setpoint_late_ms_p50=percentile(late, 50),
        setpoint_late_ms_p99=percentile(late, 99),
        overruns=int(sum(t.metrics.get("overruns", 0) for t in trials)),
        interventions=int(sum(t.metrics.get("interventions", 0) for t in trials)),
        implausible_poses=int(sum(t.metrics.get("implausible_poses", 0) for t in trials)),
        corrected=sum(t.metrics.get("person_steps", 0) > 0 for t in trials),
        corrected_successes=int(sum(t.metrics.get("corrected_success", 0) for t in trials)),
        person_steps=int(sum(t.metrics.get("person_steps", 0) for t in trials)),
        steps=sum(t.steps for t in trials),
    )


def lateness_ms(lateness_ns: Sequence[int]) -> list[float]:
    """At most 2000 values for a histogram: every k-th, and the worst."""
    step = max(1, -(-len(lateness_ns) // _KEPT))
    kept: list[int] = list(lateness_ns[::step])
    if lateness_ns:
        kept.append(max(lateness_ns))
    return [round(v * 1e-6, 4) for v in kept]


def percentile(values: Floats, q: int) -> float:
    """Percentile, 0 for no values (JSON has no NaN)."""
    return float(np.percentile(values, q)) if values.size else 0.0
