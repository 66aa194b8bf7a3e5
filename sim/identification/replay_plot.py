"""Draws replay errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robolearn.errors import ConfigError
from robolearn.shapes import OwnFloats
from sim.identification.replay import ReplayError
from sim.shapes import Ticks

# Smallest error drawn [mm, deg].
LEAST = 1e-4


def plot_replay(errors: Sequence[ReplayError], scene: str, path: Path) -> None:
    """Error over time (median, 90th percentile) and the cumulative share of final errors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 5.5), layout="constrained")
    axes = figure.subplots(2, 2)
    rows = (
        ([e.position_m * 1e3 for e in errors], "position error [mm]"),
        ([np.degrees(e.rotation_rad) for e in errors], "rotation error [deg]"),
    )
    for (over_time, final), (curves, label) in zip(axes, rows, strict=True):
        time_s, median, high = _bands(curves, errors[0].rate_hz)
        over_time.plot(time_s, median, label="median", color="C0")
        over_time.plot(time_s, high, label="90th percentile", color="C1")
        over_time.set(xlabel="time [s]", ylabel=label, ylim=(0, None))
        over_time.legend(loc="lower right")
        # A logarithmic axis has no zero: an exact replay is drawn at the axis' lower end.
        ends = np.maximum(np.sort([c[-1] for c in curves]), LEAST)
        final.step(ends, np.arange(1, len(ends) + 1) / len(ends), where="post", color="C0")
        final.set(xlabel=f"final {label}", ylabel="share of episodes", ylim=(0, 1.02))
        final.set_xscale("log")
    figure.suptitle(f"{len(errors)} episodes replayed open loop in {scene}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
    except ValueError as error:
        raise ConfigError(f"cannot write '{path}': {error}") from error


def _bands(curves: Sequence[OwnFloats], rate_hz: float) -> tuple[Ticks, Ticks, Ticks]:
    # Times that fewer than a quarter of the episodes reach say little about all of them.
    lengths = sorted(len(c) for c in curves)
    steps = lengths[-max(1, len(lengths) // 4)]
    columns = [np.array([c[k] for c in curves if len(c) > k]) for k in range(steps)]
    median = np.array([np.median(c) for c in columns])
    high = np.array([np.percentile(c, 90) for c in columns])
    return np.arange(steps) / rate_hz, median, high
