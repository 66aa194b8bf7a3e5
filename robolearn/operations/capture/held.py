"""Turns what the gripper holds before a camera beside the arm, so that it is seen from all sides.

The hand goes where the board on it was seen, turned about what it holds; of what the arm reaches,
the next pose is the one that shows the side which is farthest from all that were shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hardware.commissioning.reach import Reach
from robolearn.arms.shapes import Joints
from robolearn.capture.board_views import straight_numbers
from robolearn.capture.config import CaptureSet
from robolearn.capture.folder import read_capture
from robolearn.errors import DataError
from robolearn.geometry import Pose, Vector, inverse, pose, rot_z, rotation_from_rotvec
from robolearn.operations.capture.depth import LEAST_OF_ONE
from robolearn.operations.capture.plan import held_set
from robolearn.operations.capture.shooting import Shooting

# Poses that are tried for one picture that is wanted, and chosen from; of the best so many are
# asked whether the arm reaches them.
_TRIED, _DRAWN, _BEST = 10, 600, 40
# From a pose at which the board was seen the hand is tilted by at most [rad].
_TILT_RAD = 0.9
# What is held is so far inside the picture (share of it), not nearer than depth is measured, and
# farther away than this the noise is felt [m].
_INSIDE, _NEAREST_M, _NEAR_M = 0.15, 0.33, 0.5
# Through the palm nothing is seen: against the tool's axis (cosine).
_PALM = 0.75


@dataclass(slots=True)
class HeldTour:
    """Fills sets with pictures of what the gripper holds. ``T_base_camera``: of the camera."""

    shooting: Shooting
    reach: Reach
    T_base_camera: Pose
    tell: Callable[[str], None]
    _sides: list[Vector] = field(default_factory=list[Vector])

    def take(self, entry: CaptureSet, wanted: int) -> str:
        """Fill a set with ``wanted`` pictures; returns what should be repeated ("": nothing).

        DataError where the camera never saw the board on the flange. What is held is seen from
        where the empty hand was, as far as there are pictures of that.
        """
        camera, writer = entry.camera, self.shooting.writer
        what = entry.object or "the empty hand"
        poses = held_poses(writer.folder, camera, self.T_base_camera, self.reach.tool_m)
        empty = _taken(writer.folder, held_set("", camera)) if entry.object else []
        self._sides = [self._side(T) for T in _taken(writer.folder, entry.name)]
        follow = iter(empty[len(self._sides) :])
        for _ in range(_TRIED * wanted):
            if writer.count(entry.name) >= wanted:
                break
            T = next(follow, None)
            q = self._next(poses) if T is None else self.reach.joints(T, self.shooting.q)
            if q is None and T is None:
                break
            if q is None:
                continue
            self.shooting.goto(q)
            taken = self.shooting.take(camera, None, LEAST_OF_ONE)
            self.shooting.record()
            self._sides.append(self._side(taken.T_base_flange))
            if taken.problem:
                self.tell(f"{camera}: {taken.problem}")
                continue
            self.shooting.keep(entry.name, taken)
            self.tell(f"{camera}: {what}, {writer.count(entry.name)} of {wanted}")
        count = writer.count(entry.name)
        if count >= wanted:
            return ""
        return (
            f"camera '{camera}': {count} of {wanted} pictures of {what}: the arm"
            " reaches no more of the poses around those at which the board on the flange was seen"
        )

    def _next(self, poses: Sequence[Pose]) -> Joints | None:
        """To the pose that shows the side which is farthest from all that were shown."""
        told = [self._tells(T) for T in poses]
        for k in np.argsort(told)[::-1][:_BEST]:
            q = self.reach.joints(poses[int(k)], self.shooting.q)
            if q is not None:
                return q
        return None

    def _tells(self, T: Pose) -> float:
        """How far from all others its side is [rad], less for one that is seen from far away."""
        side = self._side(T)
        new = min(
            (float(np.arccos(np.clip(side @ s, -1.0, 1.0))) for s in self._sides), default=1.0
        )
        far = _away_m(T, self.T_base_camera, self.reach.tool_m)
        return new * min(1.0, _NEAR_M / far)

    def _side(self, T_base_flange: Pose) -> Vector:
        """From where the camera sees the tool, in the tool's frame."""
        return _side(T_base_flange, self.T_base_camera, self.reach.tool_m)


def held_poses(folder: Path, camera: str, T_base_camera: Pose, tool_m: float) -> list[Pose]:
    """Poses of the flange around those where a camera saw the board on it, turned and tilted about
    what is held ``tool_m`` before it; it is in the middle of the picture. The same every time.

    DataError where no such pose is known.
    """
    capture = read_capture(folder)
    seen = [
        f.T_base_tool
        for f in capture.of("handeye")
        if f.set.camera == camera and f.set.board_on == "flange" and f.T_base_tool is not None
    ]
    if not seen:
        raise DataError(
            f"camera '{camera}' never saw the board on the flange, so where it sees the gripper is"
            " not known: capture with board_on: flange or both first"
        )
    config, rng = capture.config.cameras[camera], np.random.default_rng(0)
    K = None if config.lens is None else straight_numbers(config.lens)
    out: list[Pose] = []
    tip = pose(None, (0.0, 0.0, tool_m))
    for k in range(_DRAWN):
        way = rng.normal(size=2)
        tilt = _TILT_RAD * float(np.sqrt(rng.random())) * way / np.linalg.norm(way)
        turn = rot_z(rng.uniform(-np.pi, np.pi)) @ rotation_from_rotvec(np.array([*tilt, 0.0]))
        T = seen[k % len(seen)] @ tip @ pose(turn) @ inverse(tip)
        if _side(T, T_base_camera, tool_m)[2] < -_PALM:
            continue
        if _away_m(T, T_base_camera, tool_m) < _NEAREST_M:
            continue
        x, y, z = (inverse(T_base_camera) @ T @ [0.0, 0.0, tool_m, 1.0])[:3].tolist()
        if K is not None:
            at = np.array([K[0] * x / z + K[2], K[1] * y / z + K[3]]) / np.array(config.size)
            if z <= 0 or (np.abs(at - 0.5) > 0.5 - _INSIDE).any():
                continue
        out.append(T)
    return out


def _taken(folder: Path, name: str) -> list[Pose]:
    """Where the flange was in the pictures of a set so far."""
    frames = [f for f in read_capture(folder).frames if f.set.name == name]
    return [f.T_base_tool for f in frames if f.T_base_tool is not None]


def _side(T_base_flange: Pose, T_base_camera: Pose, tool_m: float) -> Vector:
    away = (inverse(T_base_flange) @ T_base_camera)[:3, 3] - np.array([0.0, 0.0, tool_m])
    return away / np.linalg.norm(away)


def _away_m(T_base_flange: Pose, T_base_camera: Pose, tool_m: float) -> float:
    tip = (T_base_flange @ [0.0, 0.0, tool_m, 1.0])[:3]
    return float(np.linalg.norm(tip - T_base_camera[:3, 3]))
