"""Times of the arm's signals and what a cell says about its latencies."""

import dataclasses

import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.devices.camera import StreamConfig
from hardware.devices.camera_config import CameraConfig
from hardware.devices.tracker import UdpTrackerConfig
from hardware.streams.state_timestamps import StateTimes
from hardware.streams.tracker_streams import TrackedConfig
from robolearn.errors import ClockError, ConfigError
from robolearn.pusht import BLOCK, TOOL
from tests.hardware.lab import CONFIG


def arriving(rng, count=500):
    """Capture times, the controller's stamps [s], and arrivals that are late by 3 to 23 ms."""
    true_ns = 10**12 + np.arange(count) * 2_000_000
    late_ns = 3_000_000 + (20e6 * rng.random(count) ** 2).astype(np.int64)
    received_ns = np.maximum.accumulate(true_ns + late_ns)
    return true_ns, true_ns * 1e-9 - 900.0, received_ns


def test_stamps_take_the_jitter_out_and_the_latency_is_subtracted():
    true_ns, device_t_s, received_ns = arriving(np.random.default_rng(4))
    by_device = StateTimes("cell", "device", 0.003).measured_ns(device_t_s, received_ns)
    assert np.abs(by_device - true_ns)[50:].max() < 2_000_000
    assert np.all(np.diff(by_device) >= 0)
    by_arrival = StateTimes("cell", "arrival", 0.003).measured_ns(device_t_s, received_ns)
    np.testing.assert_array_equal(by_arrival, received_ns - 3_000_000)
    assert np.abs(by_arrival - true_ns).max() > 10_000_000


@pytest.mark.parametrize("clock", ["arrival", "device"])
def test_a_controller_whose_clock_runs_backwards_is_an_error(clock):
    times = StateTimes("cell", clock, 0.0)
    times.measured_ns(np.array([5.0]), np.array([10**10]))
    with pytest.raises(ClockError, match="controller of 'cell': its clock went backwards"):
        times.measured_ns(np.array([4.9]), np.array([10**10 + 10**8]))
    times.restart()
    times.measured_ns(np.array([1.0]), np.array([10**10 + 10**9]))


def test_a_cell_tells_what_its_times_are_corrected_by():
    streams = (
        StreamConfig("top", 64, 48, latency_s=0.04),
        StreamConfig("side", 64, 48, clock="monotonic", latency_s=0.04),
    )
    cell = dataclasses.replace(
        load_cell(CONFIG),
        command_latency_s=0.024,
        state_latency_s=0.002,
        trackers={BLOCK: TrackedConfig(UdpTrackerConfig(latency_s=0.015))},
        cameras=tuple(CameraConfig({"kind": "fake"}, s) for s in streams),
    )
    found = cell.latencies
    assert found.command_s == 0.024
    assert {k: found.observations_s[k] for k in (TOOL, BLOCK, "top/image", "side/image")} == {
        TOOL: 0.002,
        BLOCK: 0.015,
        "top/image": 0.04,
        "side/image": 0.0,
    }
    with pytest.raises(ConfigError, match=r"in \[0, 1\) s"):
        dataclasses.replace(cell, command_latency_s=-0.1)
    with pytest.raises(ConfigError, match="latency_s"):
        UdpTrackerConfig(latency_s=2.0)
