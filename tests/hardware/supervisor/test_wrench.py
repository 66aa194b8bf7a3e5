"""Force and torque at the tool, from the driver through the supervisor to a signal."""

import dataclasses

import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.cell.spec import cell_spec
from hardware.devices.robot import RobotMode, RobotState
from hardware.supervisor.link import Link, robot_state_of
from hardware.supervisor.reports import Reports
from robolearn.errors import ConfigError
from tests.hardware.lab import CONFIG


@pytest.mark.parametrize("wrench", [None, np.array([1.0, -2.0, 30.0, 0.1, 0.2, -0.3])])
def test_a_state_carries_what_the_driver_tells(wrench):
    q, qd = np.arange(6.0), np.arange(6.0) / 10
    state = RobotState(2.5, 7, q, qd, RobotMode.RUNNING, 30.1, 0.4, wrench=wrench)
    link = Link.create(6, 2, slots=8)
    try:
        Reports(link).state(state)
        row = link.states.latest()
        back = robot_state_of(row.t_ns, row.value.copy())
    finally:
        link.close()
        link.unlink()
    assert (back.device_t_s, back.changed_ns, back.mode) == (2.5, 7, RobotMode.RUNNING)
    assert (back.tool_force_n, back.load) == (30.1, 0.4)
    np.testing.assert_array_equal(back.joint_position, q)
    np.testing.assert_array_equal(back.joint_velocity, qd)
    if wrench is None:
        assert back.wrench is None
    else:
        np.testing.assert_array_equal(back.wrench, wrench)


def test_only_a_cell_that_asks_for_it_has_the_signal_and_its_driver_must_tell():
    cell = load_cell(CONFIG)
    assert "tool/wrench" not in [s.name for s in cell_spec(cell).signals]
    asking = dataclasses.replace(cell, wrench=True)
    signal = cell_spec(asking).signal("tool/wrench")
    assert (signal.shape, signal.unit, signal.frame) == ((6,), "N, N m", "base")
    assert asking.latencies.observations_s["tool/wrench"] == cell.state_latency_s
    asking.robot_builder()
    with pytest.raises(ConfigError, match="'fake' tells no force and torque"):
        dataclasses.replace(asking, driver={"kind": "fake"}).robot_builder()
