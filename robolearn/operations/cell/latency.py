"""Measures how late a cell's commands act and its devices see: by moving it, or from recordings."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hardware.cell.load import load_cell
from hardware.commissioning.latencies import CellLatencies, measured, require_anchor
from hardware.commissioning.latency_motions import swing
from hardware.commissioning.no_task import NoScore, clear_table, middle
from hardware.env.real_env import RealEnv
from robolearn.calibration.latency import Latency, TimeSeries, latency
from robolearn.data.episode import Episode
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.operations.cell.lab import cell_lab
from robolearn.operations.cell.operator import CellOperator


@dataclass(frozen=True, slots=True)
class EpisodeLatency:
    """How far the response of one episode is behind its command."""

    episode: str
    found: Latency


@dataclass(frozen=True, slots=True)
class RecordedLatencies:
    """How far a signal is behind an action, in every episode that shows it."""

    command: str
    response: str
    episodes: tuple[EpisodeLatency, ...]

    def quartiles_s(self) -> tuple[float, float, float]:
        """The lower quartile, the median and the upper quartile over the episodes [s]."""
        values = [e.found.latency_s for e in self.episodes]
        low, median, high = (float(v) for v in np.percentile(values, [25, 50, 75]))
        return low, median, high


def measure_latencies(
    config: Path,
    operator: CellOperator,
    *,
    seconds: float = 15.0,
    amplitude: float = 0.012,
    anchor: str = "",
    start_lab: bool = False,
    on_moved: Callable[[int, int], None] | None = None,
) -> CellLatencies:
    """Move the arm of a file of ``configs/hardware/`` a little and find the cell's latencies.

    ``seconds`` [s], ``amplitude`` to either side [m, or rad in joint space]; ``anchor``: a camera
    with stamps of this machine's clock, which tells how late the arm's own signals are (without one
    they count as right); ``start_lab``: start the virtual lab of the config meanwhile;
    ``on_moved``: told (0, of) before the first control tick, then (done, of) after each.

    Errors: :class:`ConfigError`, also when the operator does not agree; :class:`DataError` for too
    little motion; those of the devices.
    """
    _require_positive("seconds", seconds)
    _require_positive("amplitude", amplitude)
    cell = load_cell(config)
    require_anchor(cell, anchor)
    with ExitStack() as stack:
        lab = stack.enter_context(cell_lab(config, cell, start=start_lab))
        operator.consent(f"the arm moves by {amplitude:g} for {seconds:g} s")
        place = clear_table(cell, lab, operator.place)
        env = RealEnv(cell, place=place, scorer=NoScore())
        stack.callback(env.close)
        ticks, done = round(seconds * cell.rate_hz), itertools.count()

        def moved() -> None:
            if on_moved is not None:
                on_moved(next(done), ticks)

        moved()
        recorded = swing(env, middle(cell), seconds=seconds, amplitude=amplitude, progress=moved)
        env.home()
    return measured(recorded, cell, anchor)


def recorded_latencies(
    store: Path,
    command: str,
    response: str,
    *,
    episode: str = "",
    force_positive: bool = False,
    on_skipped: Callable[[str, str], None] | None = None,
) -> RecordedLatencies:
    """How far the signal ``response`` is behind the action ``command`` in the episodes of a store.

    ``episode``: only this one; ``force_positive``: look for responses that are late alone;
    ``on_skipped``: told an episode that shows no latency, and why.

    Errors: :class:`DataError` for names that an episode does not have, or when none shows one.
    """
    opened = EpisodeStore.open(store)
    ids = (episode,) if episode else opened.ids()
    found: list[EpisodeLatency] = []
    skipped: dict[str, str] = {}
    for name in ids:
        recording = opened.read(name)
        _require_signals(name, recording, command, response)
        stream, asked = recording.streams[response], recording.action[command]
        try:
            result = latency(
                TimeSeries(recording.tick_t_ns * 1e-9, asked.reshape(len(asked), -1)),
                TimeSeries(stream.t_ns * 1e-9, stream.value.reshape(len(stream.value), -1)),
                force_positive=force_positive,
            )
        except DataError as error:
            skipped[name] = str(error)
            if on_skipped is not None:
                on_skipped(name, str(error))
            continue
        found.append(EpisodeLatency(name, result))
    if not found:
        why = "".join(f"; {name}: {reason}" for name, reason in list(skipped.items())[:1])
        raise DataError(f"none of {len(ids)} episode(s) shows a latency{why}")
    return RecordedLatencies(command, response, tuple(found))


def _require_signals(name: str, episode: Episode, command: str, response: str) -> None:
    if command not in episode.action or response not in episode.streams:
        raise DataError(
            f"episode {name} has the actions {sorted(episode.action)} and the signals"
            f" {sorted(episode.streams)}, not '{command}' and '{response}'"
        )


def _require_positive(name: str, value: float) -> None:
    if not value > 0:
        raise ConfigError(f"{name} must be positive, got {value:g}")
