"""Cells for tests that need processes: over the emulated UR, or over the fake robot."""

import dataclasses
import multiprocessing
import os
import subprocess
import time
import traceback

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from hardware.devices.tracker import UdpTrackerConfig
from hardware.streams.tracker_streams import StandardError, TrackedConfig
from hardware.supervisor.client import SupervisorClient
from hardware.supervisor.link import SupervisorConfig, Target
from robolearn.pusht import BLOCK, TOOL
from robolearn.types import Condition, Outcome
from tests.hardware.lab import CONFIG, kinematic_lab
from tests.hardware.workcell import FOLLOWER, joints_at
from tests.waiting import paced

# On a busy test machine processes sleep for longer than a robot's own machine would let them.
PATIENT = SupervisorConfig(
    late_s=0.4, heartbeat_s=0.4, frozen_s=2.0, state_late_s=0.1, state_stale_s=0.4
)
CONDITION = Condition("start", 3, {TOOL: (0.2, 0.38), BLOCK: (0.3, 0.2, 0.5)})


def prompt_lab(folder, last, tracker_port=30120):
    """A lab at real-time priority where that is permitted, as a real controller is."""
    lab = kinematic_lab(folder, last, tracker_port)
    try:
        param = os.sched_param(40)
        os.sched_setscheduler(lab.pid, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, param)
    except PermissionError:
        pass
    return lab


def cell_at(address: str, **driver) -> CellConfig:
    """The lab's cell at another address."""
    cell = load_cell(CONFIG)
    tracker = UdpTrackerConfig(address, max_age_s=1.0)
    return dataclasses.replace(
        cell,
        driver={**cell.driver, "address": address, "watchdog_hz": 2.0, **driver},
        trackers={BLOCK: TrackedConfig(tracker, standard_error=StandardError(0.0003, 0.0017))},
        supervisor=dataclasses.replace(PATIENT, goto_speed=2.5, goto_acceleration=12.0),
    )


def drive_forever(cell: CellConfig, pipe) -> None:
    """An agent's process: follows a moving target until it is killed."""
    os.setpgid(0, 0)
    client = SupervisorClient(cell.robot_builder(), FOLLOWER, cell.supervisor)
    client.request("goto", [joints_at((0.256, 0.3))])
    client.request("follow")
    # A program started by the agent that outlives it and keeps its end of the pipe open.
    sleeper = subprocess.Popen(["sleep", "60"], pass_fds=[client._pipe.fileno()])
    pipe.send((os.getpid(), client.pid, sleeper.pid))
    for k in paced(20):
        xy = np.array([0.256 + 0.15 * np.sin(0.3 * k), 0.3])
        client.command(Target(k, time.monotonic_ns(), xy, np.zeros((0, 2))))


def follow(client, steps=4, dx=0.02):
    """That many commands at 20 Hz, each ``dx`` [m] further; the arm follows them."""
    client.request("follow")
    for k in paced(20, steps):
        xy = np.array([0.256 + dx * k, 0.3])
        client.command(Target(k, time.monotonic_ns(), xy, np.zeros((0, 2))))


class StillScorer:
    """Nothing is ever achieved."""

    def reset(self):
        pass

    def judge(self, values):
        assert set(values) >= {TOOL, BLOCK}
        return Outcome(False, 0.25, 0.25)


def alive(pid: int) -> bool:
    """True while a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


STALL_S = 0.05
WINDOW_S = 0.1


def largest_speed(log):
    """Largest joint speed of the set-points that reached the controller [rad/s].

    The emulator may stall on a busy machine, and then set-points arrive closer together than they
    were sent: a single step has that much time more, and speeds are taken over a window as well.
    """
    t, q = log.setpoint_t_ns * 1e-9, log.setpoint_q
    single = np.abs(np.diff(q, axis=0)).max(axis=1) / (np.diff(t) + STALL_S)
    later = np.searchsorted(t, t + WINDOW_S)
    first = np.flatnonzero(later < len(t))
    span = np.abs(q[later[first]] - q[first]).max(axis=1) / (t[later[first]] - t[first])
    return float(max(single.max(initial=0.0), span.max(initial=0.0)))


def _child(function, arguments, pipe) -> None:
    try:
        function(*arguments)
    except BaseException:  # noqa: BLE001  (told to the parent)
        pipe.send(traceback.format_exc())
    else:
        pipe.send("")
    # Vendor objects whose device died may abort the interpreter's end; a supervisor leaves so too.
    os._exit(0)


def in_child(function, *arguments, timeout_s=60.0) -> None:
    """Run a trial with a dying device in a process of its own; raises what went wrong there.

    A vendor's call that never returns may hold the interpreter's lock: nothing but a kill from
    outside ends that.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(function, arguments, theirs))
    process.start()
    theirs.close()
    try:
        assert ours.poll(timeout_s), "the trial hangs"
        problem = ours.recv()
        process.join(10)
    finally:
        process.kill()
        process.join()
    assert not problem, problem
