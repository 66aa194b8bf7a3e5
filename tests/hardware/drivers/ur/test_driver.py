"""Robot drivers: the contract over the fake and the emulated UR, and every fault of the UR."""

import contextlib
import ctypes
import dataclasses
import gc
import os
import re
import signal
import sys
import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from hardware.devices.robot import RobotMode, require_healthy
from hardware.drivers.fakes.robot import FakeConfig, FakeFault
from hardware.drivers.polling.vendor_thread import VendorThread
from hardware.drivers.ur import robot as ur
from hardware.drivers.ur.robot import URConfig
from hardware.drivers.ur.threads import receiving, waiting
from hardware.drivers.ur.tool import ToolServo
from robolearn.arms.models import UR5E
from robolearn.errors import (
    ConfigError,
    MissingDependencyError,
    RobotConnectionError,
    RobotError,
    StaleSignalError,
)
from robolearn.geometry import rotation_from_rotvec, rotvec_from_rotation
from tests.hardware.lab import HOME, address
from tests.hardware.real_cell import in_child, prompt_lab
from tests.robot_contract import RobotContract
from tests.waiting import paced, pass_time, wait_for_error, wait_until


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with prompt_lab(tmp_path_factory.mktemp("lab"), 20) as made:
        yield made


def hold_the_interpreter():
    ctypes.PyDLL(None).sleep(60)


def test_a_trial_that_hangs_in_a_library_is_killed():
    with pytest.raises(AssertionError, match="the trial hangs"):
        in_child(hold_the_interpreter, timeout_s=0.5)


def recovered(lab):
    os.kill(lab.pid, signal.SIGCONT)
    with lab.where.connect() as door:
        door.fault("unlock")


class TestFake(RobotContract):
    def make(self):
        return FakeConfig().build()

    def break_it(self, robot):
        robot.fault = FakeFault.PROTECTIVE_STOP
        return "PROTECTIVE_STOP"

    def mend(self, robot):
        robot.fault = FakeFault.NONE


class TestUR(RobotContract):
    @pytest.fixture(autouse=True)
    def _lab(self, lab):
        self.lab, self.robots = lab, []
        yield
        for robot in self.robots:
            robot.close()

    def make(self):
        robot = URConfig(self.lab.where.address, watchdog_hz=2.0).build()
        self.robots.append(robot)
        return robot

    def break_it(self, robot):
        with self.lab.where.connect() as door:
            door.fault("protective_stop")
        return "safety mode PROTECTIVE_STOP, robot mode RUNNING"

    def mend(self, robot):
        recovered(self.lab)


@pytest.fixture
def robot(lab):
    made = URConfig(lab.where.address, watchdog_hz=2.0).build()
    made.connect()
    yield made
    recovered(lab)
    made.close()


def test_a_second_owner_is_refused_and_the_first_goes_on(robot, lab):
    q = robot.state().joint_position
    rival = URConfig(lab.where.address).build()
    with pytest.raises(RobotConnectionError, match=f"in use by process {os.getpid()} of"):
        rival.connect()
    rival.close()
    robot.servo(q)
    assert robot.state().mode is RobotMode.RUNNING


def test_a_program_without_our_lock_is_refused_by_the_controller(robot, lab, monkeypatch):
    from rtde_control import RTDEControlInterface

    start_ns = time.monotonic_ns()
    with pytest.raises(RuntimeError, match="already in use"):
        RTDEControlInterface(lab.where.address, 500.0)
    # Another computer has locks of its own: there the driver meets the controller's refusal.
    monkeypatch.setattr("hardware.devices.claim.DeviceClaim.take", lambda claim: None)
    rival = URConfig(lab.where.address).build()
    with pytest.raises(RobotConnectionError, match="has a control client already"):
        rival.connect()
    rival.close()
    assert robot.state().mode is RobotMode.RUNNING
    with lab.where.connect() as door:
        kinds = [e.kind for e in door.log(start_ns).events]
    assert "claim_refused" in kinds
    assert "program_stopped" not in kinds


def servo_until_stale(robot, q):
    """As the supervisor does, set-points and states in turn, until the device clock has stood for
    0.15 s; the state and the slowest round [s].
    """
    state, slowest = robot.state(), 0.0
    for _ in paced(500, 2500):
        start = time.monotonic()
        with contextlib.suppress(RobotError):
            robot.servo(q)
        state = robot.state()
        slowest = max(slowest, time.monotonic() - start)
        if time.monotonic_ns() - state.changed_ns >= 0.15e9:
            return state, slowest
    raise AssertionError("the device still lives")


def hang(address_, pid):
    robot = URConfig(address_, watchdog_hz=2.0).build()
    robot.connect()
    q = robot.state().joint_position
    robot.servo(q)
    os.kill(pid, signal.SIGSTOP)
    state, slowest = servo_until_stale(robot, q)
    with pytest.raises(StaleSignalError, match="device clock stands"):
        require_healthy(state, time.monotonic_ns(), 0.02)
    assert slowest < 0.5
    start = time.monotonic()
    assert not robot.stop(), "nobody confirms"
    assert time.monotonic() - start < 1.5
    with pytest.raises(RobotConnectionError, match="abandoned"):
        robot.servo(q)
    os.kill(pid, signal.SIGCONT)
    robot.connect()
    assert robot.state().mode is RobotMode.RUNNING


def test_a_hang_shows_in_the_age_of_the_state_and_never_blocks(lab):
    in_child(hang, lab.where.address, lab.pid)
    recovered(lab)


def test_a_protective_stop_is_a_mode_and_needs_the_operator(robot, lab):
    with lab.where.connect() as door:
        door.fault("protective_stop")
        wait_until(lambda: robot.state().mode is RobotMode.PROTECTIVE_STOP)
        with pytest.raises(RobotError, match="PROTECTIVE_STOP"):
            require_healthy(robot.state(), robot.state().changed_ns, 0.02)
        with pytest.raises(RobotConnectionError, match="PROTECTIVE_STOP"):
            robot.connect()
        door.fault("unlock")
    robot.connect()
    assert robot.state().mode is RobotMode.RUNNING


def test_silence_trips_the_controllers_own_watchdog(robot, lab):
    start_ns = time.monotonic_ns()
    robot.servo(robot.state().joint_position)
    wait_until(lambda: robot.state().mode is RobotMode.SILENCED)
    with lab.where.connect() as door:
        stops = [e for e in door.log(start_ns).events if e.kind == "program_stopped"]
    assert "watchdog" in stops[0].detail
    text = robot.fault_text()
    told = re.search(r"silent for (\d+) ms at most, and .* 500 ms: it was too busy", text)
    assert told is not None, text
    assert int(told[1]) >= 500
    robot.connect()
    assert robot.state().mode is RobotMode.RUNNING


def test_keep_alive_feeds_the_watchdog(robot):
    for _ in paced(200, 40):
        robot.keep_alive()
    assert robot.state().mode is RobotMode.RUNNING


def death(address_, pid):
    robot = URConfig(address_, watchdog_hz=2.0).build()
    robot.connect()
    q = robot.state().joint_position
    os.kill(pid, signal.SIGKILL)
    state, _ = servo_until_stale(robot, q)
    with pytest.raises(StaleSignalError):
        require_healthy(state, time.monotonic_ns(), 0.02)
    start = time.monotonic()
    assert not robot.stop()
    with pytest.raises(RobotConnectionError, match="no UR controller answers"):
        robot.connect()
    assert time.monotonic() - start < 8.0


def test_death_is_a_typed_error_within_a_bound(tmp_path):
    with prompt_lab(tmp_path, 21) as lab:
        in_child(death, lab.where.address, lab.pid)


def test_nobody_there_names_address_and_remedy():
    with pytest.raises(RobotConnectionError, match=r"30004.*robolearn lab"):
        URConfig(address(29)).build().connect()


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rtde_control", None)
    with pytest.raises(MissingDependencyError, match="pip install ur_rtde"):
        URConfig("127.0.0.1").build().connect()


class Vendor:
    """Both interfaces of a controller whose watchdog cannot be armed."""

    left: ClassVar[list[str]] = []

    def __init__(self, *_):
        self.stamp = 0.0

    def __del__(self):
        self.left.append("destroyed")

    def __getattr__(self, name):
        self.left.append(name)
        return lambda *_: {"getTimestamp": time.monotonic(), "getRobotMode": 7}.get(
            name, {"getSafetyMode": 1, "getRuntimeState": 2, "getActualQ": [0.0] * 6}.get(name)
        )

    def isProgramRunning(self):  # noqa: N802
        return True

    def getActualQd(self):  # noqa: N802
        return [0.0] * 6

    getTargetQd = getActualQd  # noqa: N815

    def getActualTCPForce(self):  # noqa: N802
        return [0.0] * 6

    def isConnected(self) -> bool:  # noqa: N802
        return True

    def setWatchdog(self, _hz) -> bool:  # noqa: N802
        return False


def vendor_is(monkeypatch, client):
    """ur_rtde with ``client`` as its two classes."""
    for way in ("Control", "Receive"):
        module = SimpleNamespace(**{f"RTDE{way}Interface": client})
        monkeypatch.setitem(sys.modules, f"rtde_{way.lower()}", module)


class Answering:
    """A controller that sends states as soon as it is asked."""

    def wait(self):
        pass

    def close(self):
        pass


def test_without_an_armed_watchdog_nothing_moves(monkeypatch):
    vendor_is(monkeypatch, Vendor)
    monkeypatch.setattr(URConfig, "watch", lambda _: Answering())
    robot = URConfig("127.0.0.1").build()
    robot.connect()
    refused(robot, np.zeros(6), "watchdog could not be armed|an operator connects again")
    refused(robot, np.zeros(6), "an operator connects again")
    with pytest.raises(RobotError, match="operator connects again"):
        robot.freedrive.begin()
    assert not {"servoJ", "teachMode"} & set(Vendor.left), "nothing that moves the arm"
    robot.close()
    assert robot._have_left()
    assert Vendor.left.count("disconnect") == 2
    assert "stopScript" in Vendor.left
    gc.collect()
    assert "destroyed" not in Vendor.left, "a destructor would stop the supervisor's loop"


def test_threads_that_receive_are_real_time_ones_but_below_everything_that_commands(monkeypatch):
    given = []
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_FIFO)
    monkeypatch.setattr(os, "sched_getparam", lambda _: os.sched_param(50))
    monkeypatch.setattr(
        os, "sched_setscheduler", lambda _, policy, param: given.append((policy, *param))
    )
    assert receiving(given.copy) == [(os.SCHED_FIFO, 4)]
    with pytest.raises(RuntimeError, match="refused"):
        waiting(refusing)
    # A call that waits is below what it waits for.
    assert given == [(os.SCHED_FIFO, p) for p in (4, 50, 3, 50)]
    given.clear()
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_OTHER)
    assert waiting(lambda: 7) == 7
    assert not given, "without real-time priority there is none to give away"


def refusing():
    raise RuntimeError("refused")


def test_values_that_the_client_would_refuse_are_refused_in_the_config():
    for bad in ({"gain": 50.0}, {"lookahead_s": 0.5}, {"watchdog_hz": 0.1}):
        with pytest.raises(ConfigError, match="must be in"):
            URConfig("127.0.0.1", **bad)


def test_vendor_thread_keeps_the_newest_set_point_and_abandons_a_hung_call():
    thread, seen = VendorThread("test", post_limit_s=0.02), []
    gate, entered = threading.Event(), threading.Event()

    def block():
        entered.set()
        gate.wait(60)

    def accepted():
        with contextlib.suppress(RobotConnectionError):
            thread.post(lambda: seen.append(1))
            return True

    thread.post(block)
    assert entered.wait(5.0)
    pass_time(0.03, "the call takes longer than post_limit_s")
    with pytest.raises(RobotConnectionError, match="hanging"):
        thread.post(lambda: seen.append(0))
    gate.set()
    wait_until(accepted)
    wait_until(lambda: seen)
    assert seen == [1], "what was refused is not sent later"
    assert thread.call(lambda: 7, 1.0, "answering") == 7
    gate.clear()
    with pytest.raises(RobotConnectionError, match="did not return within"):
        thread.call(block, 0.02, "blocking")
    with pytest.raises(RobotConnectionError, match="abandoned"):
        thread.call(lambda: 7, 1.0, "answering")
    gate.set()
    thread.close()


def test_an_error_of_a_posted_call_is_raised_by_the_next():
    thread, begun = VendorThread("test"), threading.Event()
    # A newer call would replace one that has not begun.
    thread.post(lambda: begun.set() or 1 / 0)
    assert begun.wait(5.0)
    wait_for_error(lambda: thread.post(lambda: None), RobotError, "division by zero")
    thread.close()


class Link(Vendor):
    """A controller whose client may lose its link, and then connects again by itself."""

    connected, pause_s, stopped_ns = True, 0.0, 0
    sent: ClassVar[list[list[float]]] = []
    asked: ClassVar[list[str]] = []

    def __getattr__(self, name):
        if name in ("teachMode", "endTeachMode", "servoStop"):
            self.asked.append(name)
            return lambda *_: True
        return super().__getattr__(name)

    def setWatchdog(self, _hz):  # noqa: N802
        self.asked.append("setWatchdog")
        return True

    def isConnected(self):  # noqa: N802
        return Link.connected

    def servoJ(self, q, *_):  # noqa: N802
        pass_time(Link.pause_s, "a call that blocks")
        self.asked.append("servoJ")
        self.sent.append(list(q))
        return not Link.stopped_ns

    def getSafetyMode(self):  # noqa: N802
        # A stop refuses at once what is sent, and shows in a packet 10 ms later.
        shows = Link.stopped_ns and time.monotonic_ns() > Link.stopped_ns + 10_000_000
        return 3 if shows else 1

    def getJointMode(self):  # noqa: N802
        return [253] * 6


@pytest.fixture
def linked(monkeypatch):
    vendor_is(monkeypatch, Link)
    monkeypatch.setattr(URConfig, "watch", lambda _: Answering())
    Link.connected, Link.pause_s, Link.stopped_ns = True, 0.0, 0
    Link.sent.clear()
    Link.asked.clear()
    robot = URConfig("127.0.0.1").build()
    robot.connect()
    yield robot
    robot.close()


def insist(robot, q):
    for _ in paced(200, 200):
        robot.servo(q)


def refused(robot, q, match):
    with pytest.raises(RobotError, match=match):
        insist(robot, q)


def test_a_broken_link_is_never_asked_to_connect_again(linked):
    linked.servo(np.zeros(6))
    wait_until(lambda: Link.sent)
    count = len(Link.sent)
    Link.connected = False
    refused(linked, np.full(6, 0.01), "an operator connects again")
    Link.connected = True
    refused(linked, np.full(6, 0.01), "an operator connects again")
    assert len(Link.sent) == count


def test_a_call_in_which_the_client_connected_again_is_the_last(linked):
    Link.pause_s = 0.12
    refused(linked, np.zeros(6), "connected again by itself|an operator connects again")
    assert len(Link.sent) == 1


def test_a_refusal_waits_for_the_packet_that_explains_it(linked):
    linked.servo(np.zeros(6))
    wait_until(lambda: Link.sent)
    Link.stopped_ns = time.monotonic_ns()
    refused(linked, np.zeros(6), "safety mode PROTECTIVE_STOP")


def test_a_set_point_far_from_the_last_one_is_not_sent(linked):
    linked.servo(np.zeros(6))
    wait_until(lambda: Link.sent)
    refused(linked, np.full(6, 0.2), "not sent")
    assert np.array(Link.sent).max() == 0.0


def test_the_watchdog_is_armed_with_the_first_set_point_and_not_while_the_owner_is_busy(linked):
    assert not Link.asked, "between connecting and the first set-point the owner may take his time"
    linked.servo(np.zeros(6))
    wait_until(lambda: Link.sent)
    linked.servo(np.zeros(6))
    wait_until(lambda: len(Link.sent) == 2)
    assert Link.asked == ["setWatchdog", "servoJ", "servoJ"]


def test_freedrive_ends_the_servo_thread_first_and_refuses_set_points(linked):
    linked.freedrive.begin()
    assert Link.asked == ["setWatchdog", "servoStop", "teachMode"]
    with pytest.raises(RobotError, match="a hand guides the arm"):
        linked.servo(np.zeros(6))
    assert linked.stop()
    assert Link.asked[3:] == ["endTeachMode", "servoStop"], "a stop makes the arm stiff again"
    linked.freedrive.begin()
    linked.freedrive.end()
    linked.servo(np.zeros(6))
    wait_until(lambda: Link.sent)


def test_an_earlier_connection_that_still_closes_is_waited_for(linked, monkeypatch):
    linked._leaving.append(Future())
    monkeypatch.setattr(ur, "_LEAVE_S", 0.02)
    with pytest.raises(RobotConnectionError, match="still closing"):
        linked.connect()
    linked._leaving.clear()


def test_motors_that_draw_too_much_are_a_load_above_one(lab):
    robot = URConfig(
        lab.where.address, watchdog_hz=2.0, rated_current_a=(15.0, 15.0, 15.0, 2.8, 2.8, 2.8)
    ).build()
    robot.connect()
    assert robot.state().load == 0.0
    with lab.where.connect() as door:
        door.fault("overload", amount=3.5)
        wait_until(lambda: robot.state().load == pytest.approx(3.5 / 2.8))
        door.fault("overload", amount=0.0)
    robot.close()
    for wrong in ((1.0,) * 5, (0.0,) * 6):
        with pytest.raises(ConfigError, match="rated_current_a"):
            URConfig("127.0.0.1", rated_current_a=wrong)


def path_of(lab, **config):
    """What the emulated controller got for the same joints."""
    robot = URConfig(lab.where.address, watchdog_hz=2.0, **config).build()
    robot.connect()
    with lab.where.connect() as door:
        start_ns, q = time.monotonic_ns(), robot.state().joint_position
        for k in paced(250, 40):
            robot.servo(q + 0.001 * (k + 1))
        wait_until(lambda: np.allclose(robot.state().joint_position, q + 0.04, atol=1e-3))
        assert robot.stop()
        sent = door.log(start_ns).setpoint_q
    robot.close()
    return q, sent


def test_servo_in_tool_space_goes_where_the_joints_were_checked(lab):
    q, sent = path_of(lab, servo="tool", arm="ur5e")
    assert len(sent) > 5
    steps = (sent - q) / 0.001
    np.testing.assert_allclose(steps, np.tile(np.round(steps[:, :1]), (1, 6)), atol=1e-3)
    np.testing.assert_allclose(sent[-1], q + 0.04, atol=1e-6)


class Kinematics:
    """A controller that knows its arm and has a tool of 0.1 m."""

    def __init__(self, arm, q):
        self.T = arm.fk(q)

    def getForwardKinematics(self):  # noqa: N802
        tip = self.T[:3, 3] + 0.1 * self.T[:3, 2]
        return [*tip, *rotvec_from_rotation(self.T[:3, :3])]

    def getTCPOffset(self):  # noqa: N802
        return [0.0, 0.0, 0.1, 0.0, 0.0, 0.0]


def test_tool_servo_knows_its_arm_its_tool_singularities_and_what_the_controller_aims_at():
    q = np.array(HOME)
    tool = ToolServo.of(Kinematics(UR5E, q), UR5E, q, 500.0)
    T = UR5E.fk(q)
    pose = tool.pose(q)
    np.testing.assert_allclose(pose[:3], T[:3, 3] + 0.1 * T[:3, 2], atol=1e-12)
    np.testing.assert_allclose(rotation_from_rotvec(np.array(pose[3:])), T[:3, :3], atol=1e-9)
    longer = dataclasses.replace(UR5E.links[2], a=UR5E.links[2].a - 0.05)
    other = dataclasses.replace(UR5E, links=(*UR5E.links[:2], longer, *UR5E.links[3:]))
    with pytest.raises(RobotConnectionError, match="another arm"):
        ToolServo.of(Kinematics(other, q), UR5E, q, 500.0)
    straight = q * [1, 1, 1, 1, 0, 1]
    with pytest.raises(RobotError, match="near a singularity"):
        tool.pose(straight)
    assert not tool.astray(q + 0.02)
    flipped = q + np.array([0, 0, 0, np.pi, -2 * q[4], np.pi])
    assert "from those that were checked" in tool.astray(flipped)
    with pytest.raises(ConfigError, match="needs 'arm'"):
        URConfig("127.0.0.1", servo="tool")
