"""Measures how far a start is from the one that was asked for, and refuses one that is too far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hardware.cell.motion import JOINT_POSITION
from hardware.shapes import Components
from robolearn.errors import StartError
from robolearn.geometry import Pose, pose, pose_error, rotation_from_quat
from robolearn.pusht import wrap_angle
from robolearn.shapes import AnyFloats
from robolearn.types import Condition

_IN_SPACE = 7


@dataclass(frozen=True, slots=True)
class StartTolerance:
    """A trial whose start is further off is not begun. The defaults are what a hand can do."""

    # Of objects and the tool [m].
    position_m: float = 0.02
    # Of an object's heading and of the arm's joints [rad].
    angle_rad: float = 0.17


@dataclass(frozen=True, slots=True)
class StartOffset:
    """How far one signal of a start is off: its place [m], its angle [rad]; None: it has none."""

    signal: str
    position_m: float | None
    angle_rad: float | None

    @classmethod
    def of(cls, signal: str, wanted: Sequence[float], achieved: Components) -> StartOffset:
        """Of joint positions [rad], of a width [m], of a place on a table with or without a
        heading (x, y [m], yaw [rad]), or of a pose in space (x, y, z [m], quaternion).
        """
        if len(achieved) == _IN_SPACE and signal != JOINT_POSITION:
            place_m, angle = pose_error(*(_pose_of(v) for v in (achieved, wanted)))
            return cls(signal, place_m, angle)
        error = np.asarray(achieved, dtype=np.float64) - np.array(wanted)
        if signal == JOINT_POSITION:
            return cls(signal, None, float(np.abs(error).max()))
        place = float(np.hypot(error[0], error[1])) if len(error) > 1 else abs(float(error[0]))
        return cls(signal, place, abs(float(wrap_angle(error[2]))) if len(error) == 3 else None)

    def text(self) -> str:
        """One phrase for a person."""
        if self.position_m is None:
            return f"{self.signal} off by {self.angle_rad or 0.0:.4f} rad"
        turned = "" if self.angle_rad is None else f" and {np.degrees(self.angle_rad):.1f} deg"
        return f"{self.signal} off by {1e3 * self.position_m:.1f} mm{turned}"

    def beyond(self, tolerance: StartTolerance) -> bool:
        """Whether that is too far (what is not finite is)."""
        near = (self.position_m or 0.0) <= tolerance.position_m
        return not (near and (self.angle_rad or 0.0) <= tolerance.angle_rad)


def _pose_of(values: Sequence[float] | Components) -> Pose:
    at = np.asarray(values, dtype=np.float64)
    return pose(rotation_from_quat(at[3:] / np.linalg.norm(at[3:])), at[:3])


def start_offsets(
    wanted: Mapping[str, Sequence[float]], achieved: Mapping[str, AnyFloats]
) -> tuple[StartOffset, ...]:
    """One per signal of ``wanted``."""
    return tuple(StartOffset.of(name, value, achieved[name]) for name, value in wanted.items())


def require_start(
    condition: str, offsets: Sequence[StartOffset], tolerance: StartTolerance
) -> None:
    """Raise StartError that names what is too far from where ``condition`` wants it."""
    far = [offset.text() for offset in offsets if offset.beyond(tolerance)]
    if far:
        raise StartError(
            f"start '{condition}' is not what was asked for: {', '.join(far)}; expected within"
            f" {1e3 * tolerance.position_m:g} mm and {np.degrees(tolerance.angle_rad):.0f} deg"
            " (robot.start_tolerance of the cell). Place it again, or choose a suite whose starts"
            " are what lies there"
        )


def objects_of(condition: Condition) -> dict[str, tuple[float, ...]]:
    """The objects that a condition places, by signal: x, y [m], yaw [rad] on the table, or x, y, z
    and a quaternion.
    """
    placed: dict[str, tuple[float, ...]] = {}
    for signal, at in condition.poses.items():
        name, _, what = signal.partition("/")
        if what == "pose" and len(at) in (3, 7) and not name.endswith("tool"):
            placed[signal] = at
    return placed
