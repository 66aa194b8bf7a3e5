"""Latencies of a cell from a made-up swing with known delays, and into its file."""

import dataclasses

import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.commissioning.latencies import (
    CellLatencies,
    FoundLatency,
    measured,
    store_latencies,
)
from hardware.commissioning.latency_motions import Swing
from hardware.devices.camera import StreamConfig
from hardware.devices.camera_config import CameraConfig
from robolearn.config import load_yaml
from robolearn.errors import ConfigError
from tests.hardware.lab import CONFIG
from tests.robolearn.calibration.test_calibration import motion

COMMAND_S, CAMERA_S, CONFIGURED_S = 0.031, 0.085, 0.02


def small_swing(rng):
    fast, slow = np.arange(0.0, 12.0, 0.002), np.arange(0.01, 12.0, 0.05)

    def at(t):
        return 0.012 * motion(t, 11) / 3.0

    # Pictures carry times that are corrected by what was configured.
    x = 32 + 300 * at(slow - COMMAND_S - (CAMERA_S - CONFIGURED_S))
    disc = np.clip(9 - np.abs(np.arange(64)[None] - x[:, None]), 0, 1)
    grey = 60 + 120 * disc[:, None, :] + rng.normal(0, 2, (len(slow), 48, 64))
    pictures = np.repeat(np.clip(grey, 0, 255).astype(np.uint8)[..., None], 3, axis=3)
    state = at(fast - COMMAND_S) + rng.normal(0, 2e-5, len(fast))
    return Swing(
        100 + fast, at(fast), 100 + fast, state, {"top/image": 100 + slow}, {"top/image": pictures}
    )


def cell_with(clock):
    stream = StreamConfig("top", 640, 480, clock=clock, latency_s=CONFIGURED_S)
    camera = CameraConfig({"kind": "fake"}, stream)
    return dataclasses.replace(load_cell(CONFIG), cameras=(camera,))


@pytest.mark.parametrize(("clock", "wanted"), [("none", 0.085), ("monotonic", 0.065)])
def test_delays_of_commands_and_cameras_are_found(clock, wanted):
    found = measured(small_swing(np.random.default_rng(0)), cell_with(clock))
    assert found.command.latency_s == pytest.approx(COMMAND_S, abs=1e-3)
    assert found.cameras["top"].latency_s == pytest.approx(wanted, abs=4e-3)
    assert found.cameras["top"].configured_s == CONFIGURED_S
    assert found.cameras["top"].correlation > 0.8
    assert list(found.rows()) == ["command", "camera top"]


def test_a_camera_with_right_times_tells_how_late_the_arm_itself_is():
    late_s = 0.012
    swing = small_swing(np.random.default_rng(0))
    # The same motion, told 12 ms later by the arm; the camera's times are right.
    told = dataclasses.replace(
        swing,
        measured_t_s=swing.measured_t_s + late_s,
        picture_t_s={"top/image": swing.picture_t_s["top/image"] - (CAMERA_S - CONFIGURED_S)},
    )
    cell = dataclasses.replace(cell_with("monotonic"), state_latency_s=0.003)
    found = measured(told, cell, "top")
    assert found.state.latency_s == pytest.approx(late_s + 0.003, abs=4e-3)
    assert found.command.latency_s == pytest.approx(COMMAND_S, abs=4e-3)
    assert list(found.rows()) == ["command", "state"]
    alone = measured(told, cell)
    # Its share of the sum is no surer than the camera that split it.
    assert found.command.error_s > found.state.error_s > alone.command.error_s
    assert alone.command.latency_s == pytest.approx(COMMAND_S + late_s, abs=1e-3)
    assert alone.state is None
    with pytest.raises(ConfigError, match="clock: monotonic"):
        measured(told, cell_with("none"), "top")


def test_results_go_into_the_config_and_comments_stay(tmp_path):
    text = CONFIG.read_text() + (
        "  cameras:\n    - driver: {kind: fake} # mine\n"
        "      stream: {name: top, width: 640, height: 480}\n"
    )
    path = tmp_path / "cell.yaml"
    path.write_text(text)
    command, state, camera = (FoundLatency(s, 0.0, 1.0, 0.0) for s in (0.031, -0.001, 0.0854321))
    store_latencies(path, CellLatencies(command, state, {"top": camera}))
    cell = load_cell(path)
    assert cell.command_latency_s == 0.031
    assert cell.state_latency_s == 0.0
    assert cell.cameras[0].stream.latency_s == 0.08543
    assert "# mine" in path.read_text()
    assert load_yaml(path)["lab"] == load_yaml(CONFIG)["lab"]
