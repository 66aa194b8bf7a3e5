"""Takes pictures and depth of a cell's cameras while its arm stands, and judges each at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import cv2
import numpy as np

from hardware.cell.motion import JOINT_POSITION
from hardware.devices.camera import Frame
from hardware.env.real_env import RealEnv
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import Joints
from robolearn.calibration.boards import BoardFinder, View
from robolearn.capture.check import picture_problem
from robolearn.capture.folder import DepthPicture
from robolearn.capture.write import CaptureWriter
from robolearn.errors import (
    CameraError,
    DataError,
    RobotConnectionError,
    RobotError,
    StaleSignalError,
)
from robolearn.geometry import Pose
from robolearn.operations.capture.depth import (
    LEAST_SHARE,
    DepthJudge,
    changed,
    depth_picture_problem,
)
from robolearn.shapes import Floats, Picture

# Two pictures so far apart in time [s] must show the board at one place [px].
_APART_S, _STILL_PX = 0.15, 0.7
# An arm may swing after it has come to rest [s].
_SETTLE_S = 0.25
_TRIES = 4
# A camera that sends nothing is waited for so long [s].
_PATIENCE_S = 15.0
# One that is at a pose where it may see nothing, and does not, is looked through from elsewhere
# after [s].
_BLIND_S = 3.0
# A camera that cannot be connected is tried again after [s].
_AGAIN_S = 0.5
_ARM_HZ = 50.0


@dataclass(frozen=True, slots=True)
class Taken:
    """A picture that was taken at rest, the depth of its pixels (None: the camera has none),
    the board in it (None: not found), and the arm's pose. ``problem``: why it is of no use ("" for
    a good one).
    """

    picture: Picture
    depth_m: DepthPicture | None
    t_s: float
    view: View | None
    T_base_flange: Pose
    problem: str


class Shooting:
    """A cell whose arm is moved from pose to pose, and whose joints are recorded on the way."""

    def __init__(self, env: RealEnv, arm: SerialArm, writer: CaptureWriter) -> None:
        self.env, self.arm, self.writer = env, arm, writer
        # From the monotonic clock to that of the wall, so that parts of a capture share one.
        self._epoch_s = time.time() - time.monotonic()
        self._recorded_s = 0.0
        self._judges: dict[str, DepthJudge] = {}

    @property
    def q(self) -> Joints:
        """Where the arm is [rad]."""
        return np.asarray(self.env.supervisor.state().joint_position, dtype=np.float64)

    def goto(self, q: Joints) -> None:
        """Guided by the supervisor; at rest when it returns."""
        self.env.goto([q])
        time.sleep(_SETTLE_S)

    def take(
        self,
        camera: str,
        finder: BoardFinder | None,
        least_share: float = LEAST_SHARE,
        blind_s: float = _PATIENCE_S,
    ) -> Taken:
        """A picture of a camera while the arm stands; with ``finder`` it must show the board, twice
        at the same place, and depth must be the same twice: else pictures come late, or the arm
        swings. ``least_share`` of the picture has depth, where the camera measures it; one that
        sees no light or measures no depth at all is waited for for ``blind_s``.
        """
        taken = self._once(camera, finder, least_share, blind_s)
        for _ in range(_TRIES):
            if taken.problem or (taken.view is None and taken.depth_m is None):
                return taken
            before, taken = taken, self._once(camera, finder, least_share, blind_s)
            if not taken.problem and not _moved(before, taken):
                if before.depth_m is not None and taken.depth_m is not None:
                    self.judge(camera).twice(before.depth_m, taken.depth_m)
                return taken
        problem = (
            f"{'depth' if taken.view is None else 'the board'} still moves in the picture while the"
            " arm stands: pictures come late ('robolearn calibrate latency'), or something shakes"
        )
        return replace(taken, problem=problem)

    def take_at(self, q: Joints, camera: str, finder: BoardFinder | None) -> Taken:
        """Go to ``q`` [rad] and take a picture there. Where the camera has nothing to send (all is
        nearer than depth is measured, or dark), but has from where the arm came, the pose is of no
        use, which is the ``problem``; else the camera's error is raised.
        """
        before = self.q
        self.goto(q)
        try:
            return self.take(camera, finder, blind_s=_BLIND_S)
        except CameraError as error:
            T_base_flange = self.arm.fk(self.q)
            self.goto(before)
            frame = self._frame(camera, _APART_S)
            problem = f"{error.__cause__ or error} (from elsewhere it sees: the pose is left out)"
            t_s = frame.t_ns * 1e-9 + self._epoch_s
            return Taken(frame.image, None, t_s, None, T_base_flange, problem)

    def judge(self, camera: str) -> DepthJudge:
        """What a camera's depth told so far."""
        return self._judges.setdefault(camera, DepthJudge(camera))

    def store_noise(self) -> None:
        """Write what pixels scatter by into capture.yaml."""
        for judge in self._judges.values():
            judge.store_noise(self.writer.folder)

    def keep(self, set_name: str, taken: Taken) -> None:
        """Write a picture, with its depth, into a set."""
        self.writer.add(
            set_name, taken.picture, taken.depth_m, t_s=taken.t_s, T_base_tool=taken.T_base_flange
        )

    def _once(
        self, camera: str, finder: BoardFinder | None, least_share: float, blind_s: float
    ) -> Taken:
        frame = self._frame(camera, _APART_S, blind_s)
        image, t_s = frame.image, frame.t_ns * 1e-9 + self._epoch_s
        view = None if finder is None else finder.find(image)
        problem = picture_problem(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.uint8))
        if finder is not None and view is None and not problem:
            problem = "the board is not seen"
        depth_m, scale = None, self.writer.config.cameras[camera].depth
        if frame.depth is not None and scale is not None:
            depth_m = frame.depth * np.float32(scale.scale_m)
            why = depth_picture_problem(depth_m, least_share)
            if why and view is not None:
                # A board nearer than depth is measured is as good: its corners tell everything.
                depth_m = None
            else:
                problem = problem or why
        return Taken(image, depth_m, t_s, view, self.arm.fk(self.q), problem)

    def record(self) -> None:
        """Add what the arm did since the last time to robot.csv."""
        block = self.env.drain().signals[JOINT_POSITION]
        t_s = block.t_ns * 1e-9 + self._epoch_s
        keep: list[int] = []
        for i, t in enumerate(t_s):
            if t >= self._recorded_s + 1.0 / _ARM_HZ:
                keep.append(i)
                self._recorded_s = float(t)
        if keep:
            self.writer.add_record(t_s[keep], np.asarray(block.value[keep], dtype=np.float64))

    def _frame(self, name: str, later_s: float, blind_s: float = _PATIENCE_S) -> Frame:
        """A picture that was exposed ``later_s`` from now, or later. A camera that pauses, sees no
        light or measures no depth is waited for, and one that was lost is connected again: nothing
        moves meanwhile.
        """
        camera, _ = self.env.cameras.camera(name)
        after = time.monotonic_ns() + round(later_s * 1e9)
        since = time.monotonic()
        deadline = since + later_s + _PATIENCE_S
        why: RobotError = StaleSignalError(
            "check its cable and power, and the load of this machine"
        )
        while time.monotonic() < deadline:
            try:
                frame = camera.latest()
                if frame.t_ns > after:
                    return frame
            except CameraError as error:
                why, deadline = error, min(deadline, since + later_s + blind_s)
            except (StaleSignalError, RobotConnectionError) as error:
                why = connected(camera) or error
            time.sleep(0.01)
        raise type(why)(
            f"camera '{name}' sent no good picture for {time.monotonic() - since:.0f} s: {why}"
        ) from why


@runtime_checkable
class Lost(Protocol):
    """A camera whose pictures end; only connecting it again brings them back."""

    def connect(self) -> None:
        """Open it anew, and wait for a picture."""
        ...


def connected(camera: Lost) -> RobotError | None:
    """Connect a camera again; returns what hinders it (None: it sends pictures)."""
    try:
        camera.connect()
    except (StaleSignalError, CameraError, RobotConnectionError) as error:
        time.sleep(_AGAIN_S)
        return error
    return None


def _moved(before: Taken, after: Taken) -> bool:
    """Whether two pictures that were taken at rest show the board, else depth, at other places."""
    if before.view is not None and after.view is not None:
        return moved_px(before.view, after.view) >= _STILL_PX
    if before.depth_m is not None and after.depth_m is not None:
        return changed(before.depth_m, after.depth_m)
    return False


def moved_px(one: View, two: View) -> float:
    """How far the board's corners moved, the one in the middle [px]."""
    same = np.linalg.norm(one.points[:, None] - two.points[None], axis=2) < 1e-6
    rows, columns = np.nonzero(same)
    far: Floats = np.linalg.norm(one.pixels[rows] - two.pixels[columns], axis=1)
    return float(np.median(far)) if len(far) else np.inf


def coverage_problem(views: Sequence[View], size: tuple[int, int]) -> str:
    """What part of the picture the board has not been in; "" when it was all over."""
    bare = _bare(views, size)
    if len(bare) == len(_SIDES):
        return "the board was in no picture" if not views else "the board was in the middle only"
    return f"the board was never far to the {' and '.join(bare)}" if bare else ""


def farthest_to(views: Sequence[View], size: tuple[int, int], turn: int) -> int:
    """Which of the views to go on from: the board is farthest towards where it has not been yet,
    or, where it was all over, each in its ``turn``.
    """
    bare = _bare(views, size)
    if not bare:
        return turn % len(views)
    axis, sign, _ = _SIDES[bare[turn % len(bare)]]
    return int(np.argmax([sign * float(v.pixels[:, axis].mean()) for v in views]))


# Coordinate, direction, and what share of the picture the board must have come to.
_SIDES = {
    "left": (0, -1, 0.2),
    "right": (0, 1, 0.8),
    "top": (1, -1, 0.2),
    "bottom": (1, 1, 0.8),
}


def _bare(views: Sequence[View], size: tuple[int, int]) -> list[str]:
    if not views:
        return list(_SIDES)
    at = np.concatenate([v.pixels for v in views]) / np.array(size)
    low, high = at.min(axis=0), at.max(axis=0)
    return [
        name
        for name, (axis, sign, share) in _SIDES.items()
        if (low[axis] > share if sign < 0 else high[axis] < share)
    ]


def require_enough(camera: str, taken: int, of: int, tried: int) -> None:
    """DataError when a camera saw the board too rarely."""
    if 2 * taken < of:
        raise DataError(
            f"camera '{camera}' saw the board in {taken} of {tried} poses of the arm, {of} are"
            " wanted and half of them needed: put the board into the middle of its picture where"
            " the arm stands at first, flat, evenly lit, all of it in view; measure 'ahead_m' (how"
            " far before the flange it lies)"
        )
