"""Makes commands of what a hand does.

    released --(the hold is taken)--> engaged --(let go, silent, absent, nonsense)--> released

While released the arm holds still: where its motion at that moment ends, never beyond where it was
sent last. An arm that stands stays where it is, whatever it was sent to (it may be blocked); one
that moves is not sent back to where it was let go of, which it has passed when it has braked. A
hold that was lost is taken anew, so nothing that the hand did meanwhile makes the arm jump.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from hardware.teleop.axes import Eye, axes_of
from hardware.teleop.config import MappingConfig
from hardware.teleop.device import DeviceReading, Guided
from hardware.teleop.holds import Hold, hold_of
from hardware.teleop.shapes import State
from hardware.teleop.targets import WIDTH, JointTarget, ToolTarget, find_target
from robolearn.arms.shapes import Values
from robolearn.errors import SpecMismatchError
from robolearn.geometry import Pose, pose, rotation_from_rotvec, rotvec_from_rotation
from robolearn.spec import ActionSpec, EmbodimentSpec
from robolearn.types import Observation, Signals

# A hand that moved its gripper's control by this share wants the gripper to follow.
_GRIP_MOVED = 0.05
# Nothing that a hand does is as large, in metres, radians or deflections, all day long.
_SANE = 1e6
# Periods that a late loop counts at most: a pause is not made up for by a leap.
_MOST_PERIODS = 3.0
# An arm that is let go of is sent on by what it moves in this time [s]. With the default limits a
# tool at .25 m/s is .04 m on before it can stand, counted from what was measured: .16 s.
_COAST_S = 0.2


@dataclass(frozen=True, slots=True)
class Mapped:
    """``action``: what to command; ``engaged``: a hand has hold; ``note``: why not, in words;
    ``limited``: what kept the command back (``range``, ``lead``).
    """

    action: Signals
    engaged: bool
    note: str = ""
    limited: tuple[str, ...] = ()


class Mapping:
    """Commands of one embodiment from the readings of one device; ``lease_s`` is the device's;
    ``eye``: of the camera that ``config`` names.
    """

    def __init__(
        self,
        config: MappingConfig,
        embodiment: EmbodimentSpec,
        lease_s: float,
        eye: Eye | None = None,
    ) -> None:
        self._config, self._lease_ns = config, round(lease_s * 1e9)
        self._target, self._grip = find_target(embodiment)
        self._axes = axes_of(config, self._target, eye)
        self._period_s = 1.0 / embodiment.rate_hz
        if self._grip is not None:
            embodiment.signal(WIDTH)
        self._hold: Hold | None = None
        self._kind: type | None = None
        self._engaged = False

    def reset(self, observation: Observation) -> None:
        """An episode starts, or a person takes over: nobody has hold, all stands as measured."""
        self._engaged, self._hold, self._kind = False, None, None
        self._see(observation)
        measured = self._measured = self._target.measured(observation)
        # As the action can name it: a tool that should point down is never quite upright.
        _, self._command = self._target.action(measured, measured)
        self._width = 0.0
        if self._grip is not None:
            width = float(np.asarray(observation.value(WIDTH)).reshape(-1)[0])
            self._width = min(max(width, self._grip.low[0]), self._grip.high[0])
        self._baseline: float | None = None
        self._following = False

    @property
    def opening(self) -> float | None:
        """Commanded opening of the gripper, 0 to 1."""
        return None if self._grip is None else _share(self._grip, self._width)

    def command(self, reading: DeviceReading, observation: Observation, dt_s: float) -> Mapped:
        """What to command now, ``dt_s`` after the command before."""
        passed_s = max(float(dt_s), 0.0)
        dt_s = min(passed_s, _MOST_PERIODS * self._period_s)
        self._see(observation)
        seen, measured = self._measured, self._target.measured(observation)
        self._measured = measured
        if isinstance(reading.motion, Guided):
            self._command = measured
        before, wanted = self._command, self._command
        note = self._absent(reading)
        if not note and not self._engaged:
            note = self._take(reading, measured)
        elif not note and type(reading.motion) is not self._kind:
            # The device changed how it is moved: no reason to stop, but to take hold anew.
            self._engaged = False
            note = self._take(reading, measured)
        limited: list[str] = []
        if not note and self._hold is not None:
            moved = self._hold.move(reading.motion, before, dt_s)
            if moved is None:
                note = "that was a jump: take hold again"
            else:
                wanted = self._bounded(moved, measured, limited)
        if note and self._engaged:
            self._let_go(measured, seen, passed_s)
            wanted = self._command
        self._engaged = not note
        value, self._command = self._target.action(wanted, before)
        if not note and not _same(wanted, self._command):
            limited.append("range")
        action: dict[str, Any] = {self._target.spec.name: value}
        if self._grip is not None:
            if not note:
                self._follow(reading.gripper)
            action[WIDTH] = np.array([self._width])
        return Mapped(action, self._engaged, note, tuple(limited))

    def _see(self, observation: Observation) -> None:
        if self._axes is not None:
            self._axes.see(observation)

    def _absent(self, reading: DeviceReading) -> str:
        """Why nobody holds the device, or ""."""
        if not reading.present:
            return "the device is away"
        if time.monotonic_ns() - reading.t_ns > self._lease_ns:
            return "the device is silent"
        if reading.motion is None or not reading.clutch:
            return "nobody holds the device"
        if not all(_sane(getattr(reading.motion, f.name)) for f in fields(reading.motion)):
            return "what the device tells makes no sense"
        return ""

    def _take(self, reading: DeviceReading, measured: State) -> str:
        if self._hold is None or type(reading.motion) is not self._kind:
            self._hold = hold_of(reading.motion, self._config, self._target, self._axes)
            self._kind = type(reading.motion)
        self._baseline, self._following = None, False
        return self._hold.take(reading.motion, measured if self._hold.seen else self._command)

    def _let_go(self, measured: State, before: State, passed_s: float) -> None:
        """The arm stops where it can, measured ``passed_s`` after ``before``. A tool's orientation
        stays as commanded: what gravity and friction leave there is no wish.
        """
        # Two looks that lie closer together than a period say little about the speed.
        share = _COAST_S / max(passed_s, self._period_s)
        if isinstance(self._target, ToolTarget):
            place, sent = measured[:3, 3], self._command[:3, 3]
            place = _coasted(place, (place - before[:3, 3]) * share, sent)
            self._command = pose(self._command[:3, :3], place)
        else:
            self._command = _coasted(measured, (measured - before) * share, self._command)

    def _bounded(self, wanted: State, measured: State, limited: list[str]) -> State:
        if isinstance(self._target, JointTarget):
            return wanted
        low, high = self._config.workspace_low, self._config.workspace_high
        position = wanted[:3, 3].copy()
        n = len(low)
        position[:n] = np.clip(position[:n], low, high)
        if not np.array_equal(position, wanted[:3, 3]):
            limited.append("range")
        boxed = pose(wanted[:3, :3], position)
        if self._hold is None or not self._hold.led:
            return boxed
        led = _led(boxed, measured, self._config.max_lead_m, self._config.max_lead_rad)
        if not _same(led, boxed):
            limited.append("lead")
        return led

    def _follow(self, wanted: float | None) -> None:
        """The gripper follows its control from the moment that the control is moved, or stands
        where the gripper is: taking hold neither drops nor crushes anything.
        """
        if self._grip is None or wanted is None or not np.isfinite(wanted):
            return
        if self._baseline is None:
            self._baseline = wanted
        near = abs(wanted - _share(self._grip, self._width)) <= _GRIP_MOVED
        if near or abs(wanted - self._baseline) > _GRIP_MOVED:
            self._following = True
        if self._following:
            low, high = self._grip.low[0], self._grip.high[0]
            self._width = low + float(np.clip(wanted, 0.0, 1.0)) * (high - low)


def require_drivable(embodiment: EmbodimentSpec) -> None:
    """:class:`SpecMismatchError` unless a person can drive it, with one device or another."""
    _, grip = find_target(embodiment)
    if grip is not None and not (grip.low and grip.high and grip.mode == "absolute"):
        raise SpecMismatchError(f"'{embodiment.name}' does not say how far '{grip.name}' goes")


def require_frame(config: MappingConfig, embodiment: EmbodimentSpec, eye: Eye | None) -> None:
    """:class:`ConfigError` unless the person's axes can be told in the frame that is commanded."""
    axes_of(config, find_target(embodiment)[0], eye)


def _share(grip: ActionSpec, width: float) -> float:
    low, high = grip.low[0], grip.high[0]
    return min(1.0, max(0.0, (width - low) / (high - low)))


def _coasted(at: Values, way: Values, sent: Values) -> Values:
    """Where the motion ``way`` leads from ``at``, as far as that is on the line to ``sent``."""
    line = sent - at
    square = float(line.dot(line))
    share = float(way.dot(line)) / square if square > 0.0 else 0.0
    return at + min(max(share, 0.0), 1.0) * line


def _led(T: Pose, measured: Pose, most_m: float, most_rad: float) -> Pose:
    """``T``, or what is on the way to it no further than allowed from what is measured."""
    step = T[:3, 3] - measured[:3, 3]
    turn = rotvec_from_rotation(T[:3, :3] @ measured[:3, :3].T)
    far, wide = float(np.linalg.norm(step)), float(np.linalg.norm(turn))
    if far <= most_m and wide <= most_rad:
        return T
    position = T[:3, 3] if far <= most_m else measured[:3, 3] + step * (most_m / far)
    R = T[:3, :3]
    if wide > most_rad:
        R = rotation_from_rotvec(turn * (most_rad / wide)) @ measured[:3, :3]
    return pose(R, position)


def _sane(values: Any) -> bool:
    # A comparison with NaN is false, too.
    return bool((np.abs(values) < _SANE).all())


def _same(a: State, b: State) -> bool:
    return bool(np.allclose(a, b, atol=1e-9))
