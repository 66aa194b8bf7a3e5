"""Checks every number of a cell against the range in which it can be meant.

A limit of 1e9 N or a heartbeat of 900 s is a typing error that switches a check off. The table
says for every number of a cell's section, and of the drivers here, from where to where it makes
sense; a cell with another one is refused when it is loaded. Drivers of other packages check their
own. What depends on two values (``heartbeat_s <= frozen_s``) is the dataclasses' own check.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Range:
    """Values from ``low`` to ``high``, both allowed, in ``unit``; a virtual lab, which shares its
    machine with other programs, may go up to ``lab``.
    """

    low: float
    high: float
    unit: str = ""
    lab: float | None = None

    def holds(self, value: float) -> bool:
        """Whether a value is allowed; NaN, which compares with nothing, is not."""
        return self.low <= value <= self.high

    def of(self, *, lab: bool) -> Range:
        """For a virtual lab, or a real cell."""
        high = self.lab if lab and self.lab is not None else self.high
        return dataclasses.replace(self, high=high)

    def text(self) -> str:
        """In words."""
        return f"{self.low:g} to {self.high:g} {self.unit}".rstrip()


# Two turns: the widest joints of the arms here (UR) have one to either side.
_ANGLE = Range(-4.0 * math.pi, 4.0 * math.pi, "rad")
_PLACE = Range(-5.0, 5.0, "m")
_LENGTH = Range(0.0, 1.0, "m")
_OFFSET = Range(-1.0, 1.0, "m")
_LATENCY = Range(0.0, 0.999, "s")
_TIMEOUT = Range(0.01, 60.0, "s")
_SILENCE = Range(0.005, 1.0, "s")
_STREAM_RATE = Range(1.0, 1000.0, "Hz")
_PORT = Range(1.0, 65535.0)
_LOST = Range(1.0, 100.0)
_STROKE = Range(0.001, 0.5, "m")
# The fastest of these tools: a Franka's flange, 1.7 m/s (FCI documentation, Cartesian limits).
_TOOL_SPEED = Range(0.001, 1.7, "m/s")
_JOINT_SPEED = Range(0.01, 10.0, "rad/s")
_JERK = Range(1.0, 1e5)

_BUS = {
    "baud": Range(9600.0, 4_500_000.0, "baud"),
    "rate_hz": _STREAM_RATE,
    "torque_share": Range(0.05, 1.0),
    "rest_load": Range(0.0, 1.0),
    "reply_slack_s": Range(0.0005, 0.05, "s", lab=0.5),
    "max_lost": _LOST,
    "silence_s": Range(0.005, 1.0, "s", lab=10.0),
    "watchdog_s": Range(0.005, 1.0, "s", lab=10.0),
}

RANGES: Mapping[str, Mapping[str, Range]] = {
    "CellConfig": {
        "rate_hz": Range(0.5, 500.0, "Hz"),
        "command_latency_s": _LATENCY,
        "state_latency_s": _LATENCY,
        "lift_m": Range(0.0, 0.5, "m"),
    },
    "TableConfig": {
        "origin_m": _PLACE,
        "heading_rad": _ANGLE,
        "tool_length_m": _LENGTH,
        "tip_height_m": Range(0.0, 0.5, "m"),
        "tool_yaw": _ANGLE,
        "home": _ANGLE,
    },
    "JointSpace": {
        "home": _ANGLE,
        "natural_frequency": Range(0.5, 60.0, "rad/s"),
        "table_height_m": _PLACE,
        "tool_length_m": _LENGTH,
        "max_tool_speed": _TOOL_SPEED,
    },
    "ToolFrame": {"origin_m": _PLACE, "heading_rad": _ANGLE},
    "ToolSpace": {
        "tool_offset_m": _OFFSET,
        "home": _ANGLE,
        "tool_yaw": _ANGLE,
        "fingers_m": _LENGTH,
        "max_tip_height_m": Range(0.1, 3.0, "m"),
    },
    "ToolPathLimits": {
        "workspace_low": _PLACE,
        "workspace_high": _PLACE,
        "max_speed": _TOOL_SPEED,
        "max_acceleration": Range(0.01, 20.0, "m/s^2"),
        "max_jerk": _JERK,
        "max_rotation_speed": Range(0.01, 6.0, "rad/s"),
        "max_rotation_acceleration": Range(0.05, 60.0, "rad/s^2"),
        "max_rotation_jerk": _JERK,
        "natural_frequency": Range(0.5, 60.0, "rad/s"),
        "max_joint_speed": _JOINT_SPEED,
        "max_joint_acceleration": Range(0.05, 200.0, "rad/s^2"),
        "joint_margin": Range(0.0, 1.0, "rad"),
        "workspace_margin": Range(0.0, 0.05, "m"),
    },
    "JointLimits": {
        "low": _ANGLE,
        "high": _ANGLE,
        "speed": _JOINT_SPEED,
        "acceleration": Range(0.05, 200.0, "rad/s^2"),
        "jerk": _JERK,
    },
    "PathLimits": {
        "natural_frequency": Range(0.5, 60.0, "rad/s"),
        "max_tool_speed": _TOOL_SPEED,
        "max_tool_acceleration": Range(0.01, 20.0, "m/s^2"),
        "max_joint_speed": _JOINT_SPEED,
        "max_joint_acceleration": Range(0.05, 200.0, "rad/s^2"),
        "max_tool_jerk": _JERK,
        "joint_margin": Range(0.0, 1.0, "rad"),
        "workspace_low": _PLACE,
        "workspace_high": _PLACE,
        "workspace_margin": Range(0.0, 0.05, "m"),
    },
    "StartTolerance": {
        "position_m": Range(0.0005, 0.1, "m"),
        "angle_rad": Range(0.005, 0.6, "rad"),
    },
    "SupervisorConfig": {
        "late_s": Range(0.002, 0.5, "s", lab=2.0),
        "heartbeat_s": Range(0.005, 0.5, "s", lab=2.0),
        "frozen_s": Range(0.02, 2.0, "s", lab=5.0),
        "state_late_s": Range(0.001, 0.2, "s", lab=1.0),
        "state_stale_s": Range(0.005, 0.5, "s", lab=3.0),
        "ahead_s": Range(0.02, 5.0, "s"),
        "far_m": Range(0.001, 0.2, "m"),
        "far_rad": Range(0.005, 0.6, "rad"),
        "far_s": Range(0.02, 1.0, "s"),
        "following_rad": Range(0.005, 0.6, "rad"),
        "following_s": Range(0.005, 0.5, "s"),
        "max_tool_force_n": Range(1.0, 250.0, "N", lab=500.0),
        "max_load": Range(0.05, 2.0),
        "overload_s": Range(0.002, 0.5, "s"),
        "goto_speed": Range(0.01, 1.5, "rad/s", lab=3.0),
        "goto_acceleration": Range(0.05, 6.0, "rad/s^2", lab=20.0),
        "goto_jerk": _JERK,
        "guide_joint_speed": Range(0.05, 2.0, "rad/s"),
        "guide_tool_speed": Range(0.01, 1.0, "m/s"),
        "guide_ahead_s": Range(0.01, 1.0, "s"),
    },
    "CollisionConfig": {
        "margin_m": Range(0.0005, 0.3, "m"),
        "gate_m": Range(0.0001, 0.3, "m"),
        "period_s": Range(0.0005, 0.02, "s"),
        "tool_radius_m": Range(0.001, 0.3, "m"),
    },
    "Obstacle": {"start": _PLACE, "end": _PLACE, "radius": Range(0.001, 5.0, "m")},
    "GoalConfig": {"size": Range(1.0, 1000.0)},
    "UdpTrackerConfig": {
        "values": Range(3.0, 7.0),
        "port": _PORT,
        "max_age_s": Range(0.005, 2.0, "s"),
        "clock_offset_s": Range(-1e10, 1e10, "s"),
        "latency_s": _LATENCY,
    },
    # What is less exact is no measurement of a start.
    "StandardError": {
        "position_m": Range(0.0, 0.02, "m"),
        "rotation_rad": Range(0.0, 0.3, "rad"),
    },
    "PlausibleMotion": {
        "max_speed": Range(0.01, 10.0, "m/s"),
        "max_acceleration": Range(0.1, 500.0, "m/s^2"),
        "max_turn_rate": Range(0.1, 100.0, "rad/s"),
        "noise_m": Range(0.0, 0.1, "m"),
        "noise_rad": Range(0.0, 1.0, "rad"),
        "settle_s": Range(0.1, 10.0, "s"),
    },
    "TagTrackerConfig": {
        "height_m": Range(-1.0, 2.0, "m"),
        "max_age_s": Range(0.005, 2.0, "s"),
        "max_residual_m": Range(0.0001, 0.05, "m"),
    },
    "Tag": {
        "id": Range(0.0, 100_000.0),
        "at_m": _PLACE,
        "size_m": Range(0.001, 1.0, "m"),
        "yaw_rad": _ANGLE,
    },
    "GripperCellConfig": {
        "high_m": _STROKE,
        "low_m": Range(0.0, 0.5, "m"),
        "speed": Range(0.01, 1.0),
        "force": Range(0.01, 1.0),
        "rate_hz": Range(1.0, 200.0, "Hz"),
        "max_age_s": Range(0.01, 2.0, "s", lab=5.0),
        "latency_s": _LATENCY,
        "start_m": Range(0.0, 0.5, "m"),
    },
    "StreamConfig": {
        "width": Range(1.0, 20_000.0, "px"),
        "height": Range(1.0, 20_000.0, "px"),
        "rate_hz": Range(0.5, 1000.0, "Hz"),
        "max_age_s": Range(0.005, 2.0, "s", lab=10.0),
        "frozen_s": Range(0.02, 30.0, "s"),
        "black_s": Range(0.02, 30.0, "s"),
        "black_level": Range(0.0, 255.0),
        "latency_s": _LATENCY,
        "connect_s": _TIMEOUT,
    },
    "CameraConfig": {"recorded": Range(1.0, 20_000.0, "px")},
    "LensConfig": {
        "focal_px": Range(1.0, 1e6, "px"),
        "centre_px": Range(-1e5, 1e5, "px"),
        "position_m": Range(-20.0, 20.0, "m"),
        "quaternion": Range(-1.001, 1.001),
        "distortion": Range(-1e4, 1e4),
    },
    "URConfig": {
        "rate_hz": Range(10.0, 500.0, "Hz"),
        "watchdog_hz": Range(2.0, 500.0, "Hz"),
        "lookahead_s": Range(0.03, 0.2, "s"),
        "gain": Range(100.0, 2000.0),
        "stop_deceleration": Range(0.5, 40.0, "rad/s^2"),
        "connect_timeout_s": _TIMEOUT,
        "rated_current_a": Range(0.01, 200.0, "A"),
        "connect_silence_s": Range(0.05, 60.0, "s"),
    },
    "FakeConfig": {
        "joint_position": _ANGLE,
        "rate_hz": _STREAM_RATE,
        "watchdog_s": Range(0.005, 60.0, "s"),
    },
    "FeetechConfig": _BUS,
    "DynamixelConfig": _BUS,
    "XArmConfig": {
        "joints": Range(5.0, 7.0),
        "rate_hz": Range(1.0, 250.0, "Hz"),
        "answer_s": Range(0.02, 2.0, "s"),
        "max_lost": _LOST,
        "silence_s": Range(0.005, 1.0, "s", lab=10.0),
        "connect_timeout_s": _TIMEOUT,
    },
    "FrankaConfig": {
        "rate_hz": _STREAM_RATE,
        "dynamics": Range(0.01, 1.0),
        "torque_threshold_nm": Range(1.0, 87.0, "N m"),
        "force_threshold_n": Range(1.0, 250.0, "N"),
        "silence_s": _SILENCE,
        "max_lost": _LOST,
        "connect_timeout_s": _TIMEOUT,
    },
    "MjpegConfig": {"timeout_s": _TIMEOUT},
    "OpenCVConfig": {
        "device": Range(0.0, 1000.0),
        "open_timeout_s": _TIMEOUT,
        "read_timeout_s": _TIMEOUT,
    },
    "RealSenseConfig": {"timeout_s": _TIMEOUT},
    "FakeCameraConfig": {"latency_s": _LATENCY},
    "RobotiqConfig": {
        "port": _PORT,
        "stroke_m": _STROKE,
        "open_counts": Range(0.0, 255.0),
        "closed_counts": Range(0.0, 255.0),
        "rate_hz": Range(1.0, 200.0, "Hz"),
        "answer_s": Range(0.01, 5.0, "s"),
        "max_lost": _LOST,
    },
    "XArmGripperConfig": {
        "stroke_m": _STROKE,
        "open_pulses": Range(-100.0, 2000.0),
        "closed_pulses": Range(-100.0, 2000.0),
        "rate_hz": Range(1.0, 200.0, "Hz"),
        "answer_s": Range(0.01, 5.0, "s"),
        "max_lost": _LOST,
        "connect_timeout_s": _TIMEOUT,
    },
    "ServoGripperConfig": {"stroke_m": _STROKE},
    "FakeGripperConfig": {
        "stroke_m": _STROKE,
        "speed_m_s": Range(0.001, 5.0, "m/s"),
        "object_m": Range(0.0, 0.5, "m"),
    },
}


def check_ranges(config: Any, where: str, *, lab: bool) -> None:
    """Raise ConfigError for the first number of a dataclass, however deep, outside its range."""
    for place, kind, value in _numbers(config, where):
        known = RANGES.get(kind[0], {}).get(kind[1])
        if known is None:
            continue
        allowed = known.of(lab=lab)
        if not allowed.holds(value):
            wider = " (of a virtual lab)" if allowed.high != known.high else ""
            raise ConfigError(
                f"{place} is {value:g}; expected {allowed.text()}{wider}."
                " A value beyond that would switch a check off, or is in another unit"
            )


def _numbers(config: Any, where: str) -> Iterator[tuple[str, tuple[str, str], float]]:
    """Every number below: its place, its class and field, its value."""
    owner = type(config).__name__
    for field in dataclasses.fields(config):
        place = f"{where}.{field.name}"
        yield from _inside(getattr(config, field.name), place, (owner, field.name))


def _inside(
    value: Any, place: str, kind: tuple[str, str]
) -> Iterator[tuple[str, tuple[str, str], float]]:
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        try:
            yield place, kind, float(value)
        except OverflowError:
            yield place, kind, math.inf if value > 0 else -math.inf
    elif dataclasses.is_dataclass(value):
        yield from _numbers(value, place)
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from _inside(item, f"{place}[{i}]", kind)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if dataclasses.is_dataclass(item):
                yield from _numbers(item, f"{place}.{name}")
