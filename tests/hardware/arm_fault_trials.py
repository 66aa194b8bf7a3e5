"""Randomised faults of serial arms and of the xArm, at every stage; judged by what is left."""

import contextlib
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hardware.devices.robot import RobotMode
from robolearn.errors import RobolearnError, RobotError
from tests.hardware.buses import BusArm
from tests.hardware.xarms import XArm
from tests.waiting import paced, pass_time, wait_until

HANG_S = 10.0


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault: how long until the typed error and until rest [s]; connecting trials have 0."""

    arm: str
    stage: str
    fault: str
    told_s: float
    rest_s: float


def bus_faults(arm, rng):
    """Faults of a bus by name, and what ends them all."""
    servo, noise = int(rng.integers(1, 7)), rng.bytes(3000)
    faults = {
        "hang": lambda: setattr(arm.line, "mute", True),
        "unplug": arm.line.unplug,
        "garbage": lambda: (arm.line.garbage(noise), setattr(arm.bus, "corrupt_replies", 10_000)),
        "absent": lambda: arm.bus.set_absent(servo),
        "overload": lambda: arm.bus.set_error(servo, 32),
    }

    def cure():
        arm.line.mute, arm.bus.corrupt_replies = False, 0
        arm.bus.set_absent(servo, False)
        arm.bus.set_error(servo, 0)
        if arm.line._fds is None:
            arm.line.plug()

    return faults, cure


def xarm_faults(arm, _rng):
    """Faults of a controller by name, and what ends them all."""
    c = arm.controller
    faults = {
        "hang": lambda: setattr(c, "mute", True),
        "drop": c.drop_links,
        "garbage": lambda: setattr(c, "garbage_replies", 10_000),
        "collision": lambda: c.fail(31),
    }

    def cure():
        c.mute, c.garbage_replies, c.error = False, 0, 0

    return faults, cure


def trials(kind, count, seed, slack_s=0.03):
    """Run faults on one arm; AssertionError for a hang or for anything but typed errors.

    ``slack_s``: patience with a bus that is served in a busy process.
    """
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        arm = stack.enter_context(XArm(64) if kind == "xarm" else BusArm(kind, Path(folder)))
        changes = (
            {"answer_s": 0.1, "connect_timeout_s": 2.0}
            if kind == "xarm"
            else {"reply_slack_s": slack_s}
        )
        robot = arm.make(max_lost=3, **changes)
        robot.connect()
        for _ in range(count):
            faults, cure = (xarm_faults if kind == "xarm" else bus_faults)(arm, rng)
            fault = str(rng.choice(list(faults)))
            stage = str(rng.choice(["connecting", "moving"]))
            run = _connecting if stage == "connecting" else _moving
            yield Trial(kind, stage, fault, *run(arm, robot, faults[fault], rng))
            arm.do(cure)
            pass_time(0.02, "a fault that went away is no recovery")
            # Only this brings it back.
            start = time.monotonic()
            robot.connect()
            assert time.monotonic() - start < HANG_S
            assert robot.state().mode is RobotMode.RUNNING


def _connecting(arm, robot, fault, rng):
    timer = threading.Timer(float(rng.uniform(0.0, 0.08)), lambda: arm.do(fault))
    start = time.monotonic()
    timer.start()
    with contextlib.suppress(RobolearnError):
        robot.connect()
    timer.join()
    assert time.monotonic() - start < HANG_S, "connecting hangs"
    return 0.0, 0.0


def _moving(arm, robot, fault, rng):
    start_q = robot.state().joint_position
    way = rng.uniform(-1.0, 1.0, len(start_q))
    injected = 0.0
    after = int(rng.integers(3, 15))
    for step in paced(100):
        goal = start_q + 0.004 * min(step, 30) * way
        now = time.monotonic()
        try:
            robot.servo(goal)
        except RobotError:
            break
        if step == after:
            arm.do(fault)
            injected = time.monotonic()
        assert not injected or now - injected < HANG_S, "nobody noticed"
    told = time.monotonic() - injected
    assert robot.state().mode is not RobotMode.RUNNING
    left_s = HANG_S - told
    wait_until(lambda: np.abs(arm.plant.joint_velocities()).max() <= 0.02, left_s, what="rest")
    rest = time.monotonic() - injected
    with contextlib.suppress(RobotError):
        robot.stop()
    return told, rest
