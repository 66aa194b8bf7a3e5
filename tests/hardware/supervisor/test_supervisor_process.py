"""Processes that die: the arm stops on the emulator's side, whoever was killed."""

import concurrent.futures
import contextlib
import logging.handlers
import multiprocessing
import os
import queue
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest

from hardware.drivers.fakes.robot import FakeConfig, FakeFault, FakeLink
from hardware.drivers.ur.robot import URConfig
from hardware.emulators.ur.controller import DASHBOARD_PORT
from hardware.supervisor import process as supervisor_process
from hardware.supervisor.client import SupervisorClient
from hardware.supervisor.link import Cause, Mode
from hardware.supervisor.shared_memory import Ring
from robolearn.errors import (
    ConfigError,
    LinkStopError,
    RobotConnectionError,
    RobotError,
    SafetyStopError,
)
from tests.hardware.lab import address
from tests.hardware.real_cell import (
    PATIENT,
    alive,
    cell_at,
    drive_forever,
    follow,
    largest_speed,
    prompt_lab,
)
from tests.hardware.workcell import FOLLOWER, joints_at
from tests.waiting import pass_time, wait_until


@pytest.fixture
def fake():
    """A supervisor process over a fake robot, and the fake's own side."""
    link = FakeLink(*(Ring.create(8192, width).handle for width in (7, 1)))
    trace, faults = link.trace.attach(), link.faults.attach()
    robot = FakeConfig(tuple(joints_at((0.256, 0.3))), link=link, watchdog_s=1.0)
    client = SupervisorClient(robot.build, FOLLOWER, PATIENT)
    yield client, trace, faults
    client.close()
    for ring in (trace, faults):
        ring.unlink()
        ring.close()


def test_the_supervisor_is_a_process_and_session_of_its_own(fake):
    client, _, _ = fake
    assert client.pid != os.getpid()
    assert os.getsid(client.pid) == client.pid
    assert os.getpgid(client.pid) != os.getpgid(0)
    if client.real_time:
        assert os.sched_getscheduler(client.pid) == os.SCHED_FIFO


def test_a_real_time_supervisor_keeps_its_memory(fake):
    client, _, _ = fake
    if not client.real_time:
        pytest.skip("no real-time priority here")
    status = Path(f"/proc/{client.pid}/status").read_text()
    locked_kb = next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmLck"))
    assert locked_kb > 1000


def test_estop_latches_until_cleared(fake):
    client, trace, _ = fake
    follow(client)
    client.estop()
    with pytest.raises(SafetyStopError, match="estop") as stopped:
        client.require_running()
    # Somebody pressed it because of what the policy did; no link failed.
    assert not isinstance(stopped.value, LinkStopError)
    with pytest.raises(SafetyStopError, match="estop"):
        client.request("follow")
    count = trace.count
    pass_time(0.03, "a stopped arm gets no set-points")
    assert trace.count == count
    client.clear()
    assert client.status().mode is Mode.HOLD
    assert [e.cause for e in client.events()] == [Cause.ESTOP, Cause.OPERATOR_CLEAR]
    client.request("goto", [joints_at((0.256, 0.3))])


def test_a_robot_fault_is_latched_and_named(fake):
    client, _, faults = fake
    follow(client)
    faults.put(time.monotonic_ns(), [FakeFault.PROTECTIVE_STOP])
    wait_until(lambda: client.status().mode is Mode.STOPPED)
    assert client.status().cause is Cause.ROBOT_FAULT
    with pytest.raises(RobotError, match="refused 'clear'"):
        client.clear()
    faults.put(time.monotonic_ns(), [FakeFault.NONE])
    client.clear()
    assert client.status().mode is Mode.HOLD


def test_an_emergency_stop_from_another_thread_fails_the_move_that_waits(fake):
    client, _, _ = fake
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        move = pool.submit(client.request, "goto", [joints_at((0.1, 0.4))])
        wait_until(lambda: client.status().mode is Mode.GOTO)
        client.estop()
        with pytest.raises(SafetyStopError, match="estop"):
            move.result(5.0)


def test_a_move_that_nobody_waits_for_any_more_pauses(fake):
    client, trace, _ = fake
    far = joints_at((0.1, 0.4))
    with pytest.raises(RobotError, match="did not finish 'goto'"):
        client.request("goto", [far], timeout_s=0.15)
    wait_until(lambda: client.status().mode is Mode.HOLD)
    assert np.abs(trace.latest().value[1:] - far).max() > 0.05
    client.request("goto", [far])
    np.testing.assert_allclose(trace.latest().value[1:], far, atol=1e-9)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_supervisor_brakes_first(fake, number):
    client, trace, _ = fake
    follow(client)
    os.kill(client.pid, number)
    wait_until(lambda: not alive(client.pid))
    rows = trace.since(0).value[:, 1:]
    assert np.abs(np.diff(rows[-20:], axis=0)).max() * 500 < 1.0
    with pytest.raises(RobotConnectionError, match="exit code 0"):
        client.status()


def test_a_log_that_nobody_reads_does_not_keep_the_process():
    class Stuck(logging.handlers.QueueListener):
        def stop(self):
            pass_time(1.0, "nobody reads the log")

    start = time.monotonic()
    supervisor_process._end_log(Stuck(queue.SimpleQueue()), timeout_s=0.02)
    assert time.monotonic() - start < 0.9


def test_closing_brakes_first(fake):
    client, trace, _ = fake
    follow(client)
    client.close()
    assert not alive(client.pid)
    rows = trace.since(0).value[:, 1:]
    assert np.abs(np.diff(rows[-20:], axis=0)).max() * 500 < 1.0


def test_a_robot_that_cannot_be_reached_is_the_callers_typed_error():
    config = URConfig(address(29))
    with pytest.raises(RobotConnectionError, match="no UR controller answers"):
        SupervisorClient(config.build, FOLLOWER, PATIENT)


def test_limits_that_cannot_be_met_are_refused_before_anything_moves():
    import dataclasses

    limits = dataclasses.replace(FOLLOWER.limits, workspace_high=(3.0, 3.0))
    far = dataclasses.replace(FOLLOWER, limits=limits)
    with pytest.raises(ConfigError, match="move the table or shrink"):
        SupervisorClient(FakeConfig().build, far, PATIENT)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with prompt_lab(tmp_path_factory.mktemp("lab"), 22, 30122) as made:
        yield made


@pytest.mark.parametrize("whole_group", [False, True])
def test_a_killed_agent_leaves_an_arm_at_rest(lab, whole_group):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    start_ns = time.monotonic_ns()
    agent = context.Process(target=drive_forever, args=(cell_at(lab.where.address), theirs))
    agent.start()
    try:
        assert ours.poll(60)
        pid, supervisor, sleeper = ours.recv()
    except BaseException:
        agent.kill()
        raise
    with lab.where.connect() as door:
        start = door.truth().q
        wait_until(lambda: np.abs(door.truth().q - start).max() > 0.1, what="a drive")
        assert door.log(start_ns).moving
        killed_ns = time.monotonic_ns()
        if whole_group:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(supervisor), 10.0)
        wait_until(lambda: not door.log(start_ns).moving)
        log = door.log(start_ns)
    agent.join(10)
    with contextlib.suppress(ProcessLookupError):
        os.kill(sleeper, signal.SIGKILL)
    assert log.times("rest")[-1] > killed_ns
    # Half a metre per second is braked within 0.12 s; the rest is the machine's load.
    assert log.times("rest")[-1] - killed_ns < 1.0e9
    assert np.isfinite(log.setpoint_q).all()
    assert largest_speed(log) < 1.02 * FOLLOWER.limits.max_joint_speed
    assert log.times("program_stopped"), "the driver ended its program"


def test_a_killed_supervisor_leaves_the_arm_to_the_devices_watchdog(lab):
    start_ns = time.monotonic_ns()
    cell = cell_at(lab.where.address)
    client = SupervisorClient(cell.robot_builder(), FOLLOWER, cell.supervisor)
    client.request("goto", [joints_at((0.256, 0.3))])
    wait_until(lambda: client.status().mode is Mode.HOLD)
    follow(client, steps=6, dx=0.03)
    killed_ns = time.monotonic_ns()
    os.kill(client.pid, signal.SIGKILL)
    with pytest.raises(RobotConnectionError, match="exit code -9"):
        wait_until(lambda: client.status() is None)
    with lab.where.connect() as door:
        wait_until(lambda: door.log(killed_ns).times("program_stopped"))
        wait_until(lambda: not door.log(start_ns).moving)
        stops = [e for e in door.log(killed_ns).events if e.kind == "program_stopped"]
    assert "watchdog" in stops[0].detail
    client.close()


def test_an_overloaded_joint_stops_the_arm_for_good(lab):
    start_ns = time.monotonic_ns()
    cell = cell_at(lab.where.address)
    client = SupervisorClient(
        *(cell.robot_builder(), FOLLOWER, cell.supervisor), watch=cell.connect_watch()
    )
    with lab.where.connect() as door:
        client.request("goto", [joints_at((0.256, 0.3))])
        follow(client, steps=3, dx=0.03)
        door.fault("overload", amount=3.0)
        wait_until(lambda: client.status().mode is Mode.STOPPED)
        assert client.status().cause is Cause.OVERLOAD
        with pytest.raises(SafetyStopError, match="overload"):
            client.require_running()
        wait_until(lambda: not door.log(start_ns).moving)
        door.fault("overload", amount=0.0)
        client.clear()
        assert client.require_running().mode is Mode.HOLD
    client.close()


def press(lab, door, button):
    """What a person at the robot does."""
    if button == "dashboard":
        with socket.create_connection((lab.where.address, DASHBOARD_PORT), 5.0) as dashboard:
            dashboard.sendall(b"stop\n")
            while b"Stopped" not in dashboard.recv(4096):
                pass
    else:
        door.fault("emergency_stop")


@pytest.mark.parametrize("button", ["dashboard", "emergency stop"])
def test_stops_at_the_robot_itself_latch(lab, button):
    start_ns = time.monotonic_ns()
    cell = cell_at(lab.where.address)
    client = SupervisorClient(
        *(cell.robot_builder(), FOLLOWER, cell.supervisor), watch=cell.connect_watch()
    )
    with lab.where.connect() as door:
        client.request("goto", [joints_at((0.256, 0.3))])
        follow(client, steps=3, dx=0.03)
        press(lab, door, button)
        wait_until(lambda: client.status().mode is Mode.STOPPED)
        assert client.status().cause is Cause.ROBOT_FAULT
        words = (
            "program STOPPED.*somebody ended the program"
            if button == "dashboard"
            else "safety mode ROBOT_EMERGENCY_STOP"
        )
        with pytest.raises(SafetyStopError, match=rf"robot_fault \(.*{words}.*\)\. Find"):
            client.require_running()
        wait_until(lambda: not door.log(start_ns).moving)
        if button != "dashboard":
            with pytest.raises(RobotError, match="refused 'clear'"):
                client.clear()
            door.fault("unlock")
        client.clear()
        assert client.require_running().mode is Mode.HOLD
    client.close()
