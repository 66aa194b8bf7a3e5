"""Latencies of a cell as functions: what they return, tell and refuse; nothing is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hardware.cell.load import load_cell
from hardware.commissioning.latencies import store_latencies
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.operations.cell.latency import measure_latencies, recorded_latencies
from robolearn.operations.cell.operator import CellOperator
from tests.episodes import TOOL, small_episode
from tests.hardware.commissioning.test_check import CELL
from tests.hardware.lab import CONFIG
from tests.robolearn.operations.cell.late_store import LATE_S, late_store


def refuse(what: str) -> None:
    raise ConfigError(f"{what}: nobody agreed")


def test_a_recording_tells_how_late_its_robot_follows(tmp_path, capsys):
    store = late_store(tmp_path / "store")
    with EpisodeStore.open(store).writer() as writer:
        still = writer.append(small_episode())
    skipped = []
    found = recorded_latencies(store, TOOL, TOOL, on_skipped=lambda *told: skipped.append(told))
    low, median, high = found.quartiles_s()
    assert low == median == high == pytest.approx(LATE_S, abs=5e-3)
    assert (found.command, found.response, len(found.episodes)) == (TOOL, TOOL, 1)
    assert [name for name, why in skipped] == [still]
    assert recorded_latencies(store, TOOL, TOOL, episode=found.episodes[0].episode) == found
    with pytest.raises(DataError, match=f"none of 1 episode.*{still}: "):
        recorded_latencies(store, TOOL, TOOL, episode=still)
    with pytest.raises(DataError, match="not 'tool/xz'"):
        recorded_latencies(store, "tool/xz", TOOL)
    assert capsys.readouterr() == ("", "")


def test_an_arm_that_moves_tells_its_latency(tmp_path: Path, capsys):
    path = tmp_path / "toy.yaml"
    path.write_text(CELL)
    agreed, placed, told = [], [], []
    operator = CellOperator(agreed.append, placed.append)
    found = measure_latencies(
        path,
        operator,
        seconds=4.0,
        amplitude=0.1,
        on_moved=lambda done, of: told.append((done, of)),
    )
    assert agreed == ["the arm moves by 0.1 for 4 s"]
    assert placed == ["clear the table"]
    ticks = round(4.0 * load_cell(path).rate_hz)
    assert told == [(k, ticks) for k in range(ticks + 1)]
    assert (found.state, found.cameras) == (None, {})
    assert 0.0 <= found.command.latency_s < 0.4
    store_latencies(path, found)
    assert load_cell(path).command_latency_s == pytest.approx(found.command.latency_s, abs=1e-5)
    assert capsys.readouterr() == ("", "")


def test_what_cannot_be_measured_is_refused_before_anything_moves(tmp_path):
    with pytest.raises(ConfigError, match="seconds must be positive, got 0"):
        measure_latencies(CONFIG, CellOperator(refuse), seconds=0.0)
    with pytest.raises(ConfigError, match="amplitude must be positive"):
        measure_latencies(CONFIG, CellOperator(refuse), amplitude=-0.01)
    with pytest.raises(ConfigError, match="no camera 'top' with clock: monotonic"):
        measure_latencies(CONFIG, CellOperator(refuse), anchor="top")
    with pytest.raises(ConfigError, match="nobody agreed"):
        measure_latencies(CONFIG, CellOperator(refuse))
