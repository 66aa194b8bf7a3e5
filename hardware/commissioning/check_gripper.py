"""Asks the gripper contract of a device: part of ``robolearn hardware check``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

from hardware.devices.gripper import Gripper, GripperState, require_fresh
from hardware.devices.gripper_config import GripperCellConfig
from robolearn.errors import DataError, RobolearnError
from robolearn.machine.doctor import Check

_REACHED_M = 0.003
_MOVE_S = 5.0


def check_gripper(
    gripper: Gripper,
    config: GripperCellConfig,
    *,
    motion: bool,
    alive: Callable[[], object] = lambda: None,
) -> Iterator[Check]:
    """Connect, state, bad requests; with ``motion`` open, half closed, stop on the way.

    ``alive()`` is called while waiting: what keeps the arm of a mounted gripper content. The
    gripper is closed (disconnected) at the end; what it holds stays held.
    """
    try:
        gripper.connect()
        state = gripper.state()
        require_fresh(state, time.monotonic_ns(), config.max_age_s)
    except RobolearnError as error:
        advice = "free the fingers, check supply and cable; docs/robots.md"
        yield Check("gripper connects", "FAIL", str(error), advice)
        return
    try:
        yield Check("gripper connects", "OK", _told(state))
        yield _refuses(gripper)
        if motion:
            yield from _moves(gripper, config, alive)
    except RobolearnError as error:
        yield Check("gripper", "FAIL", str(error), "see docs/robots.md")
    finally:
        gripper.close()
        gripper.close()


def _told(state: GripperState) -> str:
    held = ", something is held" if state.holding else ""
    return f"{1e3 * state.width_m:.1f} mm open{held}"


def _refuses(gripper: Gripper) -> Check:
    name = "gripper refuses bad requests"
    for width in (math.nan, -0.01, 2.0 * gripper.stroke_m):
        try:
            gripper.move(width)
        except DataError:
            continue
        advice = "move() raises DataError outside [0, stroke], before anything is sent"
        return Check(name, "FAIL", f"a width of {width:g} m is accepted", advice)
    return Check(name, "OK", "NaN, negative and too wide requests raise DataError")


def _moves(
    gripper: Gripper, config: GripperCellConfig, alive: Callable[[], object]
) -> Iterator[Check]:
    half = 0.5 * (config.low_m + config.high_m)
    for width in (config.high_m, half):
        gripper.move(width, config.speed, config.force)
        state = _wait(gripper, alive, lambda s, w=width: abs(s.width_m - w) < _REACHED_M)
        note = f"asked for {1e3 * width:.1f} mm, {_told(state)}"
        fine = abs(state.width_m - width) < _REACHED_M
        advice = "" if fine else "check stroke_m, open and closed ends, and what is in the way"
        yield Check(f"gripper goes to {1e3 * width:.0f} mm", "OK" if fine else "FAIL", note, advice)
    gripper.move(config.high_m, config.speed, config.force)
    stopped = gripper.stop()
    state = _wait(gripper, alive, lambda s: not s.moving, 1.0)
    note = f"confirmed: {stopped}, then {_told(state)}"
    status = "OK" if stopped and not state.moving else "FAIL"
    advice = "" if status == "OK" else "stop() keeps the fingers where they are and says True"
    yield Check("gripper stops", status, note, advice)


def _wait(
    gripper: Gripper,
    alive: Callable[[], object],
    reached: Callable[[GripperState], bool],
    timeout_s: float = _MOVE_S,
) -> GripperState:
    """The first state that is ``there`` and rests, or the last one."""
    deadline = time.monotonic() + timeout_s
    while True:
        alive()
        state = gripper.state()
        if (reached(state) and not state.moving) or time.monotonic() > deadline:
            return state
        time.sleep(0.01)
