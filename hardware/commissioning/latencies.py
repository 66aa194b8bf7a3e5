"""Finds how late a cell's commands act and its devices see from a small motion, and stores it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from hardware.cell.yaml_edit import set_number
from hardware.commissioning.latency_motions import Swing
from robolearn.calibration.latency import Latency, TimeSeries, latency, principal_motion
from robolearn.errors import ConfigError
from robolearn.files import write_atomic
from robolearn.shapes import Floats


@dataclass(frozen=True, slots=True)
class FoundLatency:
    """``latency_s`` [s] with its standard error ``error_s`` [s], the correlation of what was
    compared, and ``configured_s`` [s], what the cell's file says now.
    """

    latency_s: float
    error_s: float
    correlation: float
    configured_s: float


@dataclass(frozen=True, slots=True)
class CellLatencies:
    """How late commands act, the arm's state is told (None: its times count as right) and cameras
    see, these by name.
    """

    command: FoundLatency
    state: FoundLatency | None
    cameras: Mapping[str, FoundLatency]

    def rows(self) -> dict[str, FoundLatency]:
        """By what they are of: ``command``, ``state``, ``camera NAME``."""
        state = {} if self.state is None else {"state": self.state}
        cameras = {f"camera {name}": found for name, found in self.cameras.items()}
        return {"command": self.command, **state, **cameras}


def measured(recorded: Swing, cell: CellConfig, anchor: str = "") -> CellLatencies:
    """The latencies of commands and cameras; with ``anchor``, the name of a camera whose times are
    right, also that of the arm's state.

    Raises ConfigError for another anchor, DataError for too little motion.
    """
    require_anchor(cell, anchor)
    sent = _series(*_ascending(recorded.sent_t_s, recorded.sent))
    state = _series(*_ascending(recorded.measured_t_s, recorded.measured))
    found = latency(sent, state, force_positive=True)
    seen = {
        camera.stream.name: latency(
            state,
            TimeSeries(
                recorded.picture_t_s[camera.signal_name],
                principal_motion(recorded.pictures[camera.signal_name]),
            ),
            any_sign=True,
        )
        for camera in cell.cameras
        if camera.signal_name in recorded.pictures
    }
    # By how much the state is later than its times say: pictures that are right seem early then.
    state_s = -seen[anchor].latency_s if anchor else 0.0
    # What is taken off the sum is only as sure as the anchor.
    error_s = math.hypot(found.error_s, seen[anchor].error_s) if anchor else found.error_s
    command = FoundLatency(
        found.latency_s - state_s, error_s, found.correlation, cell.command_latency_s
    )
    late = None
    if anchor:
        late = _found(seen[anchor], cell.state_latency_s + state_s, cell.state_latency_s)
    cameras: dict[str, FoundLatency] = {}
    for camera in cell.cameras:
        result = seen.get(camera.stream.name)
        if result is None or camera.stream.name == anchor:
            continue
        # Pictures carry corrected times already: what is found is what is still missing. Stamps of
        # this machine's own clock are taken as they are.
        total = result.latency_s + state_s + camera.stream.delay_s
        cameras[camera.stream.name] = _found(result, total, camera.stream.latency_s)
    return CellLatencies(command, late, cameras)


def require_anchor(cell: CellConfig, anchor: str) -> None:
    """Raise ConfigError unless ``anchor`` is empty or a camera whose times are right."""
    right = [c.stream.name for c in cell.cameras if c.signal and c.stream.clock == "monotonic"]
    if anchor and anchor not in right:
        raise ConfigError(
            f"anchor: no camera '{anchor}' with clock: monotonic that is a signal;"
            f" {cell.name} has: {right}"
        )


def store_latencies(path: Path, found: CellLatencies) -> None:
    """Write ``found`` into the cell's file ``path``, where comments stay; a camera that is stamped
    by this machine's own clock is left as it is.
    """
    text = path.read_text(encoding="utf-8")
    for name, row in (("command", found.command), ("state", found.state)):
        if row is not None:
            text = set_number(text, ("robot", f"{name}_latency_s"), _stored(row))
    for i, camera in enumerate(load_cell(path).cameras):
        row = found.cameras.get(camera.stream.name)
        if row is not None and camera.stream.clock != "monotonic":
            where = ("robot", "cameras", i, "stream", "latency_s")
            text = set_number(text, where, _stored(row))
    write_atomic(path, text)


def _stored(row: FoundLatency) -> float:
    return round(max(0.0, row.latency_s), 5)


def _found(result: Latency, latency_s: float, configured_s: float) -> FoundLatency:
    return FoundLatency(latency_s, result.error_s, result.correlation, configured_s)


def _series(t_s: Floats, value: Floats) -> TimeSeries:
    return TimeSeries(t_s, value.reshape(len(t_s), -1))


def _ascending(t_s: Floats, value: Floats) -> tuple[Floats, Floats]:
    keep = np.append(True, np.diff(t_s) > 0)
    return t_s[keep], value[keep]
