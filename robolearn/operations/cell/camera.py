"""Finds a camera's lens from a board that is shown to it, and where the camera is from the board
that lies on the table.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from hardware.cell.yaml_edit import set_value
from hardware.devices.camera_config import CameraConfig
from robolearn.calibration.boards import (
    Board,
    BoardFinder,
    Intrinsics,
    Placed,
    View,
    different,
    held_out_px,
    intrinsics,
    on_table,
    place,
    place_held_out_px,
)
from robolearn.calibration.place_error import PlaceError, lens_covariance, place_error
from robolearn.errors import ConfigError, DataError, did_you_mean
from robolearn.files import write_atomic
from robolearn.geometry import Pose
from robolearn.operations.cell.camera_options import CameraOptions
from robolearn.shapes import Picture

USUAL = CameraOptions()


@dataclass(frozen=True, slots=True)
class CameraListener:
    """Who holds the board, and is told how far it is."""

    # Lays the board onto the table and steps back before it returns; ConfigError where nobody can.
    # None: it lies there.
    lay: Callable[[], None] | None = None
    # From now on the board is to be shown everywhere in the picture, tilted to all sides.
    on_live: Callable[[], None] | None = None
    # So many of so many pictures were taken.
    on_view: Callable[[int, int], None] | None = None
    # In how many pictures the board was found.
    on_found: Callable[[int], None] | None = None


@dataclass(frozen=True, slots=True)
class CameraCalibrated:
    """A camera's lens with what is left over of it, its place in the table's frame, and in the
    base's where the cell has a table.

    ``place_error``: standard errors of the place. ``held_out_px``: how far corners lie from where
    they are seen by a lens that their pictures did not tell (NaN: the lens was kept), and
    ``place_held_out_px`` those on the table by a place that the others tell, RMS.
    """

    camera: str
    lens: Intrinsics
    placed: Placed
    T_base_camera: Pose | None
    place_error: PlaceError
    held_out_px: float
    place_held_out_px: float


def calibrate_camera(
    config: Path,
    at: tuple[float, float, float],
    options: CameraOptions = USUAL,
    listener: CameraListener = CameraListener(),
) -> CameraCalibrated:
    """Find the lens and the place of a camera of a file of ``configs/hardware/``; no arm moves.

    ``at``: where the board lies on the table, x y yaw of its lower left corner (tags: of their
    object) [m, m, rad].

    Errors: :class:`ConfigError`; :class:`DataError` for pictures that tell too little.
    """
    cell = load_cell(config)
    camera = _camera(cell, options.camera)
    finder = BoardFinder(_board(options, cell))
    lens, views = _lens(options, camera, finder, listener)
    points, pixels = on_table(_lying(options, camera, finder, listener), at, options.height_m)
    placed = place(points, pixels, lens.focal_px, lens.centre_px, lens.distortion)
    T_base_camera = None
    if cell.T_base_table is not None:
        T_base_camera = cell.T_base_table @ placed.lens.T_table_camera
    return CameraCalibrated(
        camera.stream.name,
        lens,
        placed,
        T_base_camera,
        place_error(points, pixels, lens, placed, lens_covariance(lens, views)),
        held_out_px(views, (camera.stream.width, camera.stream.height)) if views else math.nan,
        place_held_out_px(points, pixels, placed.lens),
    )


def store_lens(config: Path, found: CameraCalibrated) -> None:
    """Write the lens and the place into the cell's file, where comments stay."""
    cell = load_cell(config)
    index = cell.cameras.index(_camera(cell, found.camera))
    lens = found.placed.lens
    value = {
        "focal_px": [round(v, 3) for v in lens.focal_px],
        "centre_px": [round(v, 3) for v in lens.centre_px],
        "distortion": [round(v, 6) for v in lens.distortion],
        "position_m": [round(v, 5) for v in lens.position_m],
        "quaternion": [round(v, 7) for v in lens.quaternion],
    }
    text = config.read_text(encoding="utf-8")
    write_atomic(config, set_value(text, ("robot", "cameras", index, "lens"), value))


def _camera(cell: CellConfig, name: str) -> CameraConfig:
    cameras = {c.stream.name: c for c in cell.cameras}
    wanted = next(iter(cameras)) if not name and len(cameras) == 1 else name
    if wanted not in cameras:
        names = list(cameras)
        raise ConfigError(f"camera: no camera '{name}'.{did_you_mean(name, names)} Has: {names}")
    return cameras[wanted]


def _board(options: CameraOptions, cell: CellConfig) -> Board:
    if options.board != "tags":
        return Board(
            options.board, options.squares, options.square_m, options.marker_m, options.dictionary
        )
    tagged = {n: t.tags for n, t in cell.trackers.items() if t.tags is not None}
    wanted = options.signal or next(iter(tagged), "")
    if wanted not in tagged or (len(tagged) > 1 and not options.signal):
        raise ConfigError(
            f"board tags: expected a signal, one of those that are found by tags: {list(tagged)}"
            " ('robot.trackers' says what is where)"
        )
    return Board("tags", tags=tagged[wanted].tags, dictionary=tagged[wanted].dictionary)


def _lens(
    options: CameraOptions, camera: CameraConfig, finder: BoardFinder, listener: CameraListener
) -> tuple[Intrinsics, list[View]]:
    """The lens, and the pictures of the board that told it (none: it is kept)."""
    size = (camera.stream.width, camera.stream.height)
    if options.keep_lens:
        known = camera.lens
        if known is None:
            raise ConfigError(f"keep_lens: camera '{camera.stream.name}' has no lens to keep")
        kept = (known.focal_px, known.centre_px, known.distortion)
        return Intrinsics(*kept, 0.0, (), (0.0, 0.0)), []
    if options.pictures is not None:
        views = [v for image in _pictures(options.pictures, size) if (v := finder.find(image))]
    else:
        views = _live_views(options, camera, finder, listener)
    if listener.on_found is not None:
        listener.on_found(len(views))
    return intrinsics(views, size), views


def _lying(
    options: CameraOptions, camera: CameraConfig, finder: BoardFinder, listener: CameraListener
) -> View:
    size = (camera.stream.width, camera.stream.height)
    if options.table_picture is not None:
        found = finder.find(_picture(options.table_picture, size))
    else:
        if listener.lay is not None:
            listener.lay()
        with _live(camera) as image:
            found = finder.find(image())
    if found is None:
        raise DataError("the board on the table was not found: show all of it, evenly lit")
    return found


def _pictures(folder: Path, size: tuple[int, int]) -> Iterator[Picture]:
    paths = sorted(p for p in folder.glob("*") if p.suffix.lower() in (".png", ".jpg", ".jpeg"))
    if not paths:
        raise ConfigError(f"pictures: no .png or .jpg in {folder}")
    return (_picture(path, size) for path in paths)


def _picture(path: Path, size: tuple[int, int]) -> Picture:
    image = cv2.imread(str(path), cv2.IMREAD_COLOR) if cv2.haveImageReader(str(path)) else None
    if image is None:
        raise DataError(f"{path} is not a picture")
    if image.shape[1::-1] != size:
        raise DataError(
            f"{path} is {image.shape[1]} x {image.shape[0]} px, the config says {size[0]} x"
            f" {size[1]}: a lens belongs to one size"
        )
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), dtype=np.uint8)


@contextmanager
def _live(camera: CameraConfig) -> Generator[Callable[[], Picture]]:
    """The connected camera as a function that gives its newest picture."""
    with closing(camera.build()) as device:
        device.connect()
        yield lambda: device.latest().image


def _live_views(
    options: CameraOptions, camera: CameraConfig, finder: BoardFinder, listener: CameraListener
) -> list[View]:
    views: list[View] = []
    if listener.on_live is not None:
        listener.on_live()
    deadline = time.monotonic() + options.wait_s
    with _live(camera) as image:
        while len(views) < options.count and time.monotonic() < deadline:
            view = finder.find(image())
            if view is not None and different(view, views, camera.stream.width):
                views.append(view)
                if listener.on_view is not None:
                    listener.on_view(len(views), options.count)
            time.sleep(0.1)
    return views
