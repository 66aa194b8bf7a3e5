"""Takes pictures by hand: a camera is carried around, or the thing before it is turned.

    lens       the board in all parts of the picture, for the camera's lens
    scan       the table with its objects, the board lying on it, from a camera in somebody's hand
    turntable  one object on the board, turned before a camera

No arm moves. The camera is watched all the time; a picture is kept when the board is in it, nothing
moves, and it was taken from elsewhere than all that were kept, so that nobody presses a button. One
capture may be filled by several such stages, and after a capture with an arm.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import cv2
import numpy as np

from hardware.cell.load import load_cell
from hardware.devices.camera import Frame
from hardware.devices.camera_config import CameraConfig
from hardware.streams.camera_streams import CameraStreams
from robolearn.calibration.boards import BoardFinder, View, seen_pose
from robolearn.capture.check import picture_problem
from robolearn.capture.config import (
    CaptureCamera,
    CaptureConfig,
    CaptureLens,
    CaptureObject,
    CaptureSet,
)
from robolearn.capture.folder import DepthPicture, read_capture
from robolearn.capture.write import CaptureWriter
from robolearn.errors import (
    CameraError,
    ConfigError,
    RobolearnError,
    RobotConnectionError,
    StaleSignalError,
    did_you_mean,
)
from robolearn.geometry import Pose, inverse, pose_error
from robolearn.operations.capture.cameras import calibrate_cameras, store_cameras
from robolearn.operations.capture.depth import (
    DEPTH,
    LEAST_OF_ONE,
    LEAST_SHARE,
    DepthJudge,
    depth_picture_problem,
)
from robolearn.operations.capture.options import CaptureOptions, HandOptions
from robolearn.operations.capture.plan import board_of, patient
from robolearn.operations.capture.shooting import connected, coverage_problem, moved_px
from robolearn.operations.cell.lab import cell_lab
from robolearn.operations.cell.operator import CellOperator
from robolearn.shapes import Picture

# Between two pictures of a thing at rest the board moves by less [px].
_STILL_PX = 1.0
# A picture is another one when it was taken from so far away, or when the board is so far off in
# the picture where no lens is known (a share of its width), or turned there.
_AWAY_M, _TURNED_RAD, _AWAY_SHARE = 0.06, float(np.deg2rad(10.0)), 0.08
# The same sentence is not told again before [s].
_QUIET_S = 3.0
# A camera sends its next picture within [s].
_NEXT_S = 2.0
# One that has sent none for so long is connected again [s].
_LOST_S = 5.0


@dataclass(frozen=True, slots=True)
class HandCaptured:
    """A stage: the capture's folder, the set and how many pictures it has, and what should be done
    about what is missing ("": nothing).
    """

    folder: Path
    set_name: str
    pictures: int
    advice: str


def capture_by_hand(
    robot: Path,
    out: Path,
    operator: CellOperator,
    options: CaptureOptions,
    hand: HandOptions,
    *,
    start_lab: bool = False,
    on_note: Callable[[str], None] | None = None,
) -> HandCaptured:
    """Fill one set of ``out`` with pictures of a camera of the cell, or go on with it.

    Errors: ConfigError for a camera or an object that is not there, those of the camera. What was
    taken stays, and the same command goes on.
    """
    tell: Callable[[str], None] = on_note or _silent
    cell = load_cell(robot)
    cameras = {c.stream.name: c for c in cell.cameras}
    if hand.camera not in cameras:
        raise ConfigError(
            f"camera: cell '{cell.name}' has no camera '{hand.camera}'."
            f"{did_you_mean(hand.camera, cameras)} There are: {sorted(cameras)}"
        )
    camera = cameras[hand.camera]
    config = planned_by_hand(cell.name, camera, options, hand)
    writer = CaptureWriter(out, config, resume=True, grow=True)
    entry = config.sets[0]
    with cell_lab(robot, cell, start=start_lab) as lab:
        streams = CameraStreams([patient(camera)])
        try:
            if lab is not None:
                with lab.where.connect() as door:
                    door.by_hand(hand.by_hand, hand.camera, hand.object)
            elif operator.place is not None:
                operator.place(_what_to_do(hand))
            stage = HandStage(streams.camera(hand.camera)[0], writer, entry, hand, tell)
            advice = stage.fill()
        finally:
            streams.close()
    if hand.by_hand == "lens":
        advice = advice or _lens_found(out, hand.camera, tell)
    return HandCaptured(out, entry.name, writer.count(entry.name), advice)


def planned_by_hand(
    cell: str, camera: CameraConfig, options: CaptureOptions, hand: HandOptions
) -> CaptureConfig:
    """``capture.yaml`` of this stage alone."""
    name, lens = camera.stream.name, camera.lens
    known = None if lens is None else CaptureLens(lens.focal_px, lens.centre_px, lens.distortion)
    described = CaptureCamera(
        "hand",
        (camera.stream.width, camera.stream.height),
        known,
        depth=DEPTH if camera.stream.depth else None,
    )
    if hand.by_hand == "lens":
        entry = CaptureSet(f"lens_{name}", name, "lens", board_on="hand")
    elif hand.by_hand == "scan":
        entry = CaptureSet(f"scan_{name}", name, "scan", board_on="table")
    else:
        entry = CaptureSet(f"object_{hand.object}_{name}", name, "object", object=hand.object)
    objects = (CaptureObject(hand.object),) if hand.object else ()
    return CaptureConfig(
        schema=1,
        name=cell,
        cameras={name: described},
        sets=(entry,),
        made_by="robolearn capture",
        board=board_of(options),
        objects=objects,
    )


@runtime_checkable
class Watched(Protocol):
    """What is needed of a camera that is watched."""

    def wait(self, index: int, timeout_s: float) -> Frame:
        """The newest picture with a larger index, waiting for it."""
        ...

    def connect(self) -> None:
        """Open it anew, and wait for a picture."""
        ...


class HandStage:
    """Watches a camera and keeps what is new, until there is enough or nothing new comes."""

    def __init__(
        self,
        camera: Watched,
        writer: CaptureWriter,
        entry: CaptureSet,
        hand: HandOptions,
        tell: Callable[[str], None],
    ) -> None:
        self._camera, self._writer, self._entry, self._hand = camera, writer, entry, hand
        self._tell, self._told_s = tell, dict[str, float]()
        described = writer.config.cameras[entry.camera]
        self._size, self._lens = described.size, described.lens
        board = writer.config.board
        if board is None:
            raise ConfigError("pictures by hand need a board: it tells where each was taken")
        self._finder = BoardFinder(board.board())
        self._views, self._poses = list[View](), list[Pose]()
        self._judge = DepthJudge(entry.camera)
        self._epoch_s = time.time() - time.monotonic()
        self._seen_s = time.monotonic()
        for frame in read_capture(writer.folder).frames:
            view = self._find(frame.picture()) if frame.set.name == entry.name else None
            if view is not None:
                self._keep_view(view)

    def fill(self) -> str:
        """Keep pictures; returns what should be done about what is missing ("": nothing)."""
        wanted, name = self._hand.pictures, self._entry.name
        last: tuple[View, DepthPicture | None] | None = None
        newest_s, index = time.monotonic(), -1
        while self._writer.count(name) < wanted or self._bare():
            if time.monotonic() - newest_s > self._hand.patience_s:
                break
            frame = self._next(index)
            if frame is None:
                # A camera that was connected again counts its pictures anew.
                index, last = -1, None
                continue
            index, self._seen_s = frame.index, time.monotonic()
            view = self._find(frame.image)
            problem, depth_m = self._problem(frame, view)
            still = view is not None and last is not None and moved_px(last[0], view) < _STILL_PX
            if not problem and view is not None and still and self._is_new(view):
                if depth_m is not None and last is not None and last[1] is not None:
                    self._judge.twice(last[1], depth_m)
                t_s = frame.t_ns * 1e-9 + self._epoch_s
                self._writer.add(name, frame.image, depth_m, t_s=t_s)
                self._keep_view(view)
                newest_s = time.monotonic()
                self._tell(f"{self._entry.camera}: {self._writer.count(name)} of {wanted}")
            elif problem:
                self._say(f"{self._entry.camera}: {problem}")
            last = None if view is None else (view, depth_m)
        self._judge.store_noise(self._writer.folder)
        return self._missing()

    def _next(self, index: int) -> Frame | None:
        """The next picture; None while the camera has none that is good, which is told."""
        try:
            return self._camera.wait(index, _NEXT_S)
        except CameraError as error:
            self._say(str(error))
            time.sleep(0.01)
            return None
        except (StaleSignalError, RobotConnectionError) as error:
            self._say(str(error))
            if time.monotonic() - self._seen_s > _LOST_S:
                connected(self._camera)
                self._seen_s = time.monotonic()
            else:
                time.sleep(0.01)
            return None

    def _find(self, image: Picture) -> View | None:
        if self._entry.purpose == "object":
            return self._finder.find_covered(image)
        return self._finder.find(image)

    def _problem(self, frame: Frame, view: View | None) -> tuple[str, DepthPicture | None]:
        """Why a picture is of no use, and its depth [m]."""
        grey = cv2.cvtColor(frame.image, cv2.COLOR_RGB2GRAY).astype(np.uint8)
        problem = picture_problem(grey)
        scale = self._writer.config.cameras[self._entry.camera].depth
        depth_m = None
        if frame.depth is not None and scale is not None and self._entry.purpose != "lens":
            depth_m = frame.depth * np.float32(scale.scale_m)
            problem = problem or depth_picture_problem(depth_m, self._least_share())
        if view is None and not problem:
            problem = "the board is not seen: it tells where the picture was taken"
        return problem, depth_m

    def _least_share(self) -> float:
        return LEAST_SHARE if self._entry.purpose == "scan" else LEAST_OF_ONE

    def _is_new(self, view: View) -> bool:
        """Whether a picture was taken from elsewhere than all others."""
        T = self._T_board_camera(view)
        if T is not None:
            apart = (pose_error(T, other) for other in self._poses)
            return all(away > _AWAY_M or turned > _TURNED_RAD for away, turned in apart)
        least = _AWAY_SHARE * self._size[0]
        return all(_differs_px(view, other) > least for other in self._views)

    def _keep_view(self, view: View) -> None:
        self._views.append(view)
        T = self._T_board_camera(view)
        if T is not None:
            self._poses.append(T)

    def _T_board_camera(self, view: View) -> Pose | None:  # noqa: N802  (a transform)
        if self._lens is None:
            return None
        lens = self._lens
        T = seen_pose(view, lens.focal_px, lens.centre_px, lens.distortion)
        return None if T is None else inverse(T)

    def _bare(self) -> str:
        """What part of the picture a lens is not known in yet."""
        return coverage_problem(self._views, self._size) if self._entry.purpose == "lens" else ""

    def _missing(self) -> str:
        count, wanted = self._writer.count(self._entry.name), self._hand.pictures
        if count >= wanted and not self._bare():
            return ""
        bare = self._bare()
        return (
            f"camera '{self._entry.camera}': {count} of {wanted} pictures"
            + (f"; {bare}" if bare else "")
            + f": nothing new for {self._hand.patience_s:g} s. Move on, hold still for a moment"
            " with the board in view; the same command goes on"
        )

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if now - self._told_s.get(text, -np.inf) > _QUIET_S:
            self._told_s[text] = now
            self._tell(text)


def _differs_px(one: View, two: View) -> float:
    """How far apart two pictures show the board [px]: corners that both show, else its middle."""
    far = moved_px(one, two)
    if np.isfinite(far):
        return far
    return float(np.linalg.norm(one.pixels.mean(axis=0) - two.pixels.mean(axis=0)))


def _lens_found(out: Path, camera: str, tell: Callable[[str], None]) -> str:
    """The lens from the pictures, written into capture.yaml; else why there is none."""
    try:
        found = calibrate_cameras(out)
    except RobolearnError as error:
        return f"no lens from these pictures: {error}"
    store_cameras(found)
    tell(f"the lens of '{camera}' is written into capture.yaml")
    return ""


def _what_to_do(hand: HandOptions) -> str:
    if hand.by_hand == "lens":
        return "show the board in all parts of the picture, tilted to all sides; stop for a moment"
    if hand.by_hand == "scan":
        return (
            "lay the board onto the table beside the objects, and carry the camera around them;"
            " stop for a moment where you want a picture"
        )
    return f"stand '{hand.object}' onto the middle of the board, and turn the board bit by bit"


def _silent(text: str) -> None:
    """Nobody is told."""
    del text
