"""Asks the robot contract of a device: what ``robolearn hardware check`` runs.

Three parts: what can be asked while the arm stands (:func:`check_standing`), what needs the arm
powered and holding its place (:func:`check_holding`), and cameras (:func:`check_camera`). Motions
go through the supervisor (``hardware/commissioning/latency_motions.py``), never through here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hardware.devices.camera_config import CameraConfig
from hardware.devices.robot import Robot, RobotMode, RobotState, require_healthy
from robolearn.errors import DataError, RobolearnError, RobotConnectionError
from robolearn.machine.doctor import Check

_CALL_S = 0.02
_STILL_RAD = 0.005


@dataclass(frozen=True, slots=True)
class Expected:
    """What the config says about the arm; ``low`` and ``high`` [rad] may be empty."""

    joints: int
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    max_age_s: float = 0.1
    hold_s: float = 0.5
    # How long to wait for the device's watchdog [s].
    silence_s: float = 1.0


def check_standing(robot: Robot, expected: Expected) -> Iterator[Check]:
    """What is asked without a set-point: connection, clock, joints. Motors are on afterwards."""
    try:
        robot.state()
    except RobotConnectionError as error:
        yield Check("before connect", "OK", str(error))
    else:
        yield _fail(
            "before connect",
            "state() answers without a connection",
            "raise RobotConnectionError until connect() has succeeded",
        )
    connected = _asked("connect", lambda: _connected(robot, expected))
    yield connected
    if connected.status == "FAIL":
        return
    yield _asked("device clock", lambda: _clock(robot, expected))
    yield _asked("joint angles", lambda: _angles(robot.state(), expected))
    yield _asked("calls return at once", lambda: _quick(robot))
    if robot.has_watchdog:
        yield Check("watchdog", "OK", "the device stops by itself when this program is silent")
    else:
        yield Check(
            "watchdog",
            "WARN",
            "the device has none: it keeps moving or holding when this program dies",
            "keep an emergency stop that cuts its power within reach (docs/safety.md)",
        )


def check_holding(robot: Robot, expected: Expected) -> Iterator[Check]:
    """The device refuses bad set-points, follows those at its own place, stops, and reconnects.

    Ends at the first failure: a driver that fails one of these must not be given more set-points.
    """
    for check in _driven(robot, expected):
        yield check
        if check.status == "FAIL":
            robot.stop()
            break
    robot.close()
    robot.close()
    yield Check("close twice", "OK", "no error")


def _driven(robot: Robot, expected: Expected) -> Iterator[Check]:
    yield _asked("bad commands are refused", lambda: _refuses(robot, expected))
    yield _asked("holds its place", lambda: _holds(robot, expected))
    if robot.has_watchdog:
        yield _asked("watchdog fires", lambda: _watchdog(robot, expected))
        yield _asked("reconnect", lambda: _connected(robot, expected))
    yield _asked("stop is confirmed", lambda: _stops(robot))
    yield _asked("reconnect after stop", lambda: _connected(robot, expected))


def check_camera(config: CameraConfig, seconds: float = 1.0) -> Check:
    """Connect, and watch the stream for a while: size, rate, age, black, frozen."""
    name = f"camera {config.stream.name}"
    camera = config.build()
    try:
        camera.connect()
        first = camera.latest()
        time.sleep(seconds)
        last = camera.latest()
    except RobolearnError as error:
        return _fail(name, str(error), "'robolearn doctor' lists cameras and permissions")
    finally:
        camera.close()
    spent_s = (last.received_ns - first.received_ns) * 1e-9
    rate_hz = (last.index - first.index) / spent_s if spent_s > 0 else 0.0
    age_ms = (last.received_ns - last.t_ns) * 1e-6
    found = (
        f"{last.image.shape[1]} x {last.image.shape[0]} px at {rate_hz:.1f} Hz,"
        f" {age_ms:.1f} ms from exposure to arrival, mean level {float(last.image.mean()):.0f}"
    )
    if rate_hz < 0.7 * config.stream.rate_hz:
        return Check(
            name,
            "WARN",
            found,
            f"expected {config.stream.rate_hz:g} Hz: more light (exposure time), a faster pixel"
            " format (fourcc: MJPG), another USB port, or a lower rate in the config",
        )
    return Check(name, "OK", found)


def _asked(name: str, question: Callable[[], str]) -> Check:
    try:
        return Check(name, "OK", question())
    except _BrokenError as error:
        return _fail(name, str(error), error.advice)
    except RobolearnError as error:
        return _fail(name, str(error), "see docs/new_robot.md")
    except Exception as error:  # noqa: BLE001  (an error of a driver under test is a finding)
        return _fail(
            name,
            f"{type(error).__name__}: {error}",
            "a driver raises the errors of robolearn/errors.py only",
        )


class _BrokenError(Exception):
    """A device or driver breaks the contract."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(found)
        self.advice = advice


def _fail(name: str, found: str, advice: str) -> Check:
    return Check(name, "FAIL", found, advice)


def _connected(robot: Robot, expected: Expected) -> str:
    start = time.monotonic()
    robot.connect()
    state = robot.state()
    require_healthy(state, time.monotonic_ns(), max(expected.max_age_s, 1.0))
    return f"{state.mode.name} after {1e3 * (time.monotonic() - start):.0f} ms"


def _clock(robot: Robot, expected: Expected, seconds: float = 0.5) -> str:
    """Changes of the device's clock: how many, how regular, never backwards."""
    last, changes, longest_s, away_s = robot.state(), 0, 0.0, 0.0
    asked = time.monotonic()
    deadline = asked + seconds
    while asked < deadline:
        robot.keep_alive()
        state = robot.state()
        if state.device_t_s < last.device_t_s:
            raise _BrokenError(
                f"the device clock went backwards: {last.device_t_s} to {state.device_t_s} s",
                "use a clock of the device that only counts up",
            )
        if state.changed_ns != last.changed_ns:
            changes += 1
            longest_s = max(longest_s, (state.changed_ns - last.changed_ns) * 1e-9)
        last = state
        time.sleep(0.0005)
        away_s, asked = max(away_s, time.monotonic() - asked), time.monotonic()
    found = f"{changes / seconds:.0f} changes per second, longest gap {1e3 * longest_s:.1f} ms"
    if changes and longest_s > expected.max_age_s and away_s > 0.5 * longest_s:
        raise _BrokenError(
            found,
            f"it was this machine: it did not let this program run for {1e3 * away_s:.0f} ms; stop"
            " other programs, then check again ('robolearn doctor' tells the load)",
        )
    if not changes or longest_s > expected.max_age_s:
        raise _BrokenError(
            found,
            "changed_ns is the time at which the device's own clock was seen to change; a gap of"
            f" more than {1e3 * expected.max_age_s:g} ms would stop the supervisor",
        )
    return found


def _angles(state: RobotState, expected: Expected) -> str:
    q, qd = state.joint_position, state.joint_velocity
    if q.shape != (expected.joints,) or qd.shape != (expected.joints,):
        raise _BrokenError(
            f"{q.shape} angles and {qd.shape} speeds, the config says {expected.joints} joints",
            "is it the right arm, and the right 'arm' or 'joints' in the config?",
        )
    if not (np.isfinite(q).all() and np.isfinite(qd).all()):
        raise _BrokenError(f"angles {q}, speeds {qd}", "states are finite, in rad and rad/s")
    if expected.low and not ((q >= expected.low) & (q <= expected.high)).all():
        raise _BrokenError(
            f"angles {np.round(q, 3)} outside {expected.low} to {expected.high}",
            "move the arm inside by hand, or check the homing and the limits of the config",
        )
    if np.abs(q).max() > 30.0:
        raise _BrokenError(f"angles {np.round(q, 1)}", "angles are in rad, not degrees")
    return f"{expected.joints} joints at {np.round(q, 3)} rad"


def _quick(robot: Robot) -> str:
    spent: list[float] = []
    for _ in range(50):
        start = time.perf_counter()
        robot.state()
        spent.append(time.perf_counter() - start)
    # One of fifty may have met a busy machine.
    middle, worst = float(np.median(spent)), max(spent)
    found = f"state() takes {1e6 * middle:.0f} us, at most {1e3 * worst:.2f} ms"
    if middle > _CALL_S:
        raise _BrokenError(found, "read the device on a thread of its own (hardware/vendor_thread)")
    return found


def _refuses(robot: Robot, expected: Expected) -> str:
    q = robot.state().joint_position
    nan = q.copy()
    nan[0] = np.nan
    for what, bad in (("NaN", nan), ("too few angles", q[:-1])):
        try:
            robot.servo(bad)
        except DataError:
            continue
        raise _BrokenError(
            f"servo() accepts {what}", "raise DataError before anything is sent to the device"
        )
    return f"NaN and other than {expected.joints} angles raise DataError"


def _holds(robot: Robot, expected: Expected) -> str:
    robot.connect()
    start = robot.state().joint_position.copy()
    period_s = 1.0 / robot.rate_hz
    deadline = next_s = time.monotonic()
    worst = 0.0
    while next_s < deadline + expected.hold_s:
        robot.servo(start)
        worst = max(worst, float(np.abs(robot.state().joint_position - start).max()))
        if worst > _STILL_RAD:
            # Wrong signs or units: not one more set-point.
            break
        next_s += period_s
        time.sleep(max(0.0, next_s - time.monotonic()))
    state = robot.state()
    if worst > _STILL_RAD:
        raise _BrokenError(
            f"moved by {worst:.4f} rad while its own position was commanded; stopped at once",
            "check signs, offsets and units of servo() against those of state()",
        )
    if state.mode is not RobotMode.RUNNING:
        raise _BrokenError(
            f"the device is {state.mode.name} after {expected.hold_s:g} s of set-points",
            "look at its own panel: it refuses to be driven",
        )
    return f"moved by {worst:.5f} rad in {expected.hold_s:g} s at {robot.rate_hz:g} Hz"


def _watchdog(robot: Robot, expected: Expected) -> str:
    robot.servo(robot.state().joint_position)
    start = time.monotonic()
    while time.monotonic() - start < expected.silence_s:
        if robot.state().mode is not RobotMode.RUNNING:
            return f"stopped {1e3 * (time.monotonic() - start):.0f} ms after the last set-point"
        time.sleep(0.002)
    raise _BrokenError(
        f"still RUNNING {expected.silence_s:g} s after the last set-point",
        "arm the device's watchdog in connect(), or say has_watchdog = False",
    )


def _stops(robot: Robot) -> str:
    start = time.monotonic()
    confirmed = robot.stop()
    spent_s = time.monotonic() - start
    if not confirmed or spent_s > 1.0:
        raise _BrokenError(
            f"stop() returned {confirmed} after {1e3 * spent_s:.0f} ms",
            "stop() waits at most 0.5 s for the device's own confirmation and returns True for it",
        )
    return f"confirmed after {1e3 * spent_s:.0f} ms"
