"""A controller whose clock is set, or whose host is slow: one typed error, a stop that latches."""

import time

import numpy as np
import pytest

from hardware.drivers.ur.robot import URConfig
from hardware.supervisor.client import SupervisorClient
from hardware.supervisor.link import Cause, Mode
from robolearn.errors import ClockError, LinkStopError
from tests.hardware.real_cell import cell_at, follow, prompt_lab
from tests.hardware.workcell import FOLLOWER, Cell, joints_at
from tests.waiting import pass_time, wait_for_error, wait_until


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with prompt_lab(tmp_path_factory.mktemp("lab"), 24) as made:
        yield made


def test_the_supervisor_latches_a_clock_that_was_set(monkeypatch):
    cell = Cell()
    cell.follow()
    cell.drive([(0.256, 0.3), (0.3, 0.3)])
    healthy = cell.robot.state

    def state():
        raise ClockError("its clock went backwards")

    monkeypatch.setattr(cell.robot, "state", state)
    cell.run(0.004)
    assert cell.mode is Mode.STOPPED
    assert cell.status.cause is Cause.CLOCK_JUMP
    assert cell.robot.stops == 1
    monkeypatch.setattr(cell.robot, "state", healthy)
    cell.run(0.5)
    assert cell.mode is Mode.STOPPED, "a fault that went away is no recovery"
    cell.ask("clear")
    cell.run(0.004)
    assert cell.mode is Mode.HOLD
    cell.close()


FAULTS = {
    "clock set back": ("clock_jump", {"seconds": -3.0}, Cause.CLOCK_JUMP),
    "clock set ahead": ("clock_jump", {"seconds": 3.0}, Cause.CLOCK_JUMP),
    "slow host": ("slow", {"amount": 0.6, "seconds": 1.0}, Cause.STATE_STALE),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_of_the_controllers_host_stops_the_arm_for_good(lab, fault):
    kind, arguments, cause = FAULTS[fault]
    start_ns = time.monotonic_ns()
    cell = cell_at(lab.where.address)
    client = SupervisorClient(
        *(cell.robot_builder(), FOLLOWER, cell.supervisor), watch=cell.connect_watch()
    )
    with lab.where.connect() as door:
        client.request("goto", [joints_at((0.256, 0.3))])
        follow(client, steps=3, dx=0.03)
        door.fault(kind, **arguments)
        wait_until(lambda: client.status().mode is Mode.STOPPED)
        assert client.status().cause is cause
        with pytest.raises(LinkStopError, match=cause.name.lower()):
            client.require_running()
        wait_until(lambda: not door.log(start_ns).moving)
        pass_time(0.1, "a fault that went away is no recovery")
        assert client.status().mode is Mode.STOPPED
        client.clear()
        assert client.require_running().mode is Mode.HOLD
        client.request("goto", [joints_at((0.256, 0.3))])
    client.close()


def test_the_driver_tells_until_it_connects_again(lab):
    robot = URConfig(lab.where.address, watchdog_hz=2.0).build()
    robot.connect()
    with lab.where.connect() as door:
        door.fault("clock_jump", seconds=-0.5)
        wait_for_error(robot.state, ClockError, "its clock went backwards")
    pass_time(0.6, "the clock passes its last time")
    for call in (robot.state, lambda: robot.servo(np.zeros(6))):
        with pytest.raises(ClockError, match="its clock went backwards"):
            call()
    robot.connect()
    assert robot.state().device_t_s > 0.0
    robot.close()
