"""The contract of every robot driver as tests (``tests/contracts.py`` has the others)."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from hardware.devices.robot import Robot, RobotMode, require_healthy
from robolearn.errors import DataError, RobotConnectionError, RobotError
from tests.waiting import paced, pass_time, wait_until


def wait_for_fault(robot: Robot, timeout_s: float = 2.0) -> None:
    """Until the driver says that the arm does not run; its owner is alive all the while."""

    def noticed() -> bool:
        if robot.state().mode is not RobotMode.RUNNING:
            return True
        with contextlib.suppress(RobotError):
            robot.keep_alive()
        return False

    wait_until(noticed, timeout_s, what="a fault that the driver notices")


class RobotContract:
    """Every robot driver. Subclasses provide :meth:`make`: a robot that is not connected yet, free
    to move every joint by 0.05 rad, and closed by the subclass after the test.
    """

    def make(self) -> Robot:
        raise AssertionError("a subclass makes the robot")

    def break_it(self, robot: Robot) -> str:
        """Make the connected device stop itself; what its own report of that says."""
        raise AssertionError("a subclass breaks its device")

    def mend(self, robot: Robot) -> None:
        """Take the cause away, as a person at the device does."""
        raise AssertionError("a subclass mends its device")

    def stream(self, robot: Robot, target: np.ndarray, seconds: float = 0.3) -> None:
        """A straight, slow line of set-points from the measured position."""
        start, ticks = robot.state().joint_position, round(seconds * robot.rate_hz)
        for k in paced(robot.rate_hz, ticks):
            robot.servo(start + (target - start) * min(1.0, 1.25 * (k + 1) / ticks))

    def test_nothing_works_before_connect(self) -> None:
        robot = self.make()
        with pytest.raises(RobotConnectionError):
            robot.state()
        robot.close()

    def test_a_connected_robot_is_alive(self) -> None:
        robot = self.make()
        robot.connect()
        state = robot.state()
        assert state.mode is RobotMode.RUNNING
        assert state.joint_position.shape == state.joint_velocity.shape == (robot.joints,)
        assert np.isfinite(state.joint_position).all()
        reference = state.reference_velocity
        assert reference is None or reference.shape == (robot.joints,)
        first = state.device_t_s
        wait_until(lambda: robot.state().device_t_s > first, what="the device clock goes on")
        assert robot.state().changed_ns > state.changed_ns
        require_healthy(robot.state(), robot.state().changed_ns, 0.02)

    def test_it_follows_set_points_and_stays_after_a_stop(self) -> None:
        robot = self.make()
        robot.connect()
        target = robot.state().joint_position + 0.03
        self.stream(robot, target)
        assert robot.stop()
        wait_until(lambda: np.abs(robot.state().joint_velocity).max() < 0.05, what="rest")
        pass_time(0.05, "it stays where it came to rest")
        assert np.abs(robot.state().joint_position - target).max() < 0.005
        assert np.abs(robot.state().joint_velocity).max() < 0.05

    def test_wrong_set_points_are_refused_and_nothing_moves(self) -> None:
        robot = self.make()
        robot.connect()
        before = robot.state().joint_position
        for bad in (np.zeros(robot.joints + 1), np.full(robot.joints, np.nan)):
            with pytest.raises(DataError):
                robot.servo(bad)
        pass_time(0.02, "nothing may move")
        assert np.abs(robot.state().joint_position - before).max() < 1e-3

    def test_a_fault_is_told_in_the_devices_own_words(self) -> None:
        robot = self.make()
        assert robot.fault_text() == ""
        robot.connect()
        robot.servo(robot.state().joint_position)
        assert robot.fault_text() == ""
        words = self.break_it(robot)
        wait_for_fault(robot, timeout_s=3.0)
        assert words in robot.fault_text()
        robot.stop()
        assert words in robot.fault_text(), "a stop does not hide the cause"
        self.mend(robot)
        robot.connect()
        assert robot.fault_text() == ""

    def test_close_twice_and_connect_again(self) -> None:
        robot = self.make()
        robot.connect()
        robot.close()
        robot.close()
        with pytest.raises(RobotConnectionError):
            robot.state()
        robot.connect()
        assert robot.state().mode is RobotMode.RUNNING
