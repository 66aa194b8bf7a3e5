"""Plans the capture of a cell: which sets of pictures its cameras take."""

from __future__ import annotations

import dataclasses

from hardware.cell.config import CellConfig
from hardware.commissioning.excite import RATE_HZ, excitation_cell
from hardware.devices.camera_config import CameraConfig
from robolearn.arms.models import ARMS
from robolearn.capture.config import (
    CaptureArm,
    CaptureBoard,
    CaptureCamera,
    CaptureConfig,
    CaptureLens,
    CaptureObject,
    CaptureSet,
    Matrix,
)
from robolearn.errors import ConfigError, did_you_mean
from robolearn.geometry import Pose, inverse
from robolearn.operations.capture.depth import DEPTH
from robolearn.operations.capture.options import CaptureOptions

# Room of the joints around home [rad]: to look at a table from its far side, and to turn a hand all
# the way round. Where nothing tells what the arm may run into, it is the room of excitation.
_ROOM_RAD, _ROUND_RAD = 1.6, 3.0
# Width of the pictures that are only looked at for their times [px].
_SMALL_PX = 64
# Nothing moves while a picture is waited for: one that was exposed since then is as good, however
# late a busy machine has it [s].
OLDEST_S = 10.0


def planned(cell: CellConfig, options: CaptureOptions) -> CaptureConfig:
    """``capture.yaml`` of a capture of this cell. ConfigError for a cell without cameras, an arm
    without kinematics, or a board that no camera could see.
    """
    if not cell.cameras:
        raise ConfigError(
            f"cell '{cell.name}' has no cameras; give it some ('robot.cameras', docs/cameras.md)"
        )
    if cell.arm not in ARMS:
        raise ConfigError(
            f"cell '{cell.name}': the kinematics of '{cell.arm}' are not known ({sorted(ARMS)}), so"
            " nothing tells where its flange is"
        )
    cameras = {c.stream.name: _camera(c, options) for c in cell.cameras}
    unknown = [n for n in options.on_flange if n not in cameras]
    if unknown:
        raise ConfigError(
            f"on_flange: no camera '{unknown[0]}'.{did_you_mean(unknown[0], cameras)} There are:"
            f" {sorted(cameras)}"
        )
    sets = [s for name, camera in cameras.items() for s in _sets(name, camera, options)]
    riding = [n for n, c in cameras.items() if c.mount == "flange"]
    if options.board_on == "table" and not riding:
        raise ConfigError(
            "no camera rides on the flange, so a board on the table tells nothing of the arm: fix"
            " the board to the flange (board_on: flange), or name the cameras that ride on it"
            " (on_flange)"
        )
    if options.board_on == "flange" and len(riding) == len(cameras):
        raise ConfigError(
            "all cameras ride on the flange, as the board would: lay it onto the table (board_on:"
            " table)"
        )
    beside = [n for n, c in cameras.items() if c.mount == "table" and c.depth is not None]
    if options.in_hand and not beside:
        raise ConfigError(
            "in_hand: no camera beside the arm measures depth (stream: depth: true), so nothing"
            f" would be seen of {', '.join(options.in_hand)}"
        )
    for name in beside if options.in_hand else ():
        sets += [
            CaptureSet(held_set(what, name), name, "object", object=what, object_on="flange")
            for what in ("", *options.in_hand)
        ]
    table = cell.T_base_table
    return CaptureConfig(
        schema=1,
        name=cell.name,
        cameras=cameras,
        sets=tuple(sets),
        made_by="robolearn capture",
        arm=CaptureArm(cell.arm, None if table is None else _rows(inverse(table))),
        board=board_of(options),
        objects=tuple(
            CaptureObject(n) for n in dict.fromkeys((*options.objects, *options.in_hand))
        ),
    )


def board_of(options: CaptureOptions) -> CaptureBoard:
    """The board that is printed."""
    return CaptureBoard(
        options.board,
        options.squares,
        options.square_m,
        options.marker_m if options.board == "charuco" else 0.0,
        options.dictionary,
        "flange" if options.board_on == "flange" else "table",
    )


def held_set(what: str, camera: str) -> str:
    """The set of pictures of what the gripper holds ("": nothing)."""
    return f"held_{what or 'nothing'}_{camera}"


def _camera(camera: CameraConfig, options: CaptureOptions) -> CaptureCamera:
    name, lens = camera.stream.name, camera.lens
    rides = name in options.on_flange or (lens is not None and lens.frame == "flange")
    known = None
    if lens is not None:
        known = CaptureLens(lens.focal_px, lens.centre_px, lens.distortion)
    size = (camera.stream.width, camera.stream.height)
    depth = DEPTH if camera.stream.depth else None
    return CaptureCamera("flange" if rides else "table", size, known, depth=depth)


def _sets(name: str, camera: CaptureCamera, options: CaptureOptions) -> list[CaptureSet]:
    out: list[CaptureSet] = []
    if camera.mount == "flange":
        if options.board_on != "flange":
            out.append(CaptureSet(f"handeye_{name}", name, "handeye", board_on="table"))
        if options.scan:
            out.append(CaptureSet(f"scan_{name}", name, "scan"))
        return out
    if options.board_on != "flange":
        out.append(CaptureSet(f"board_{name}", name, "handeye", board_on="table"))
    if options.board_on != "table":
        out.append(CaptureSet(f"handeye_{name}", name, "handeye", board_on="flange"))
    out.append(CaptureSet(f"background_{name}", name, "background"))
    return out


def still_cell(cell: CellConfig) -> CellConfig:
    """The cell as it is captured: its arm commanded in joint space, with room to look from all
    sides, its cameras' pictures small.
    """
    close = excitation_cell(cell)
    known = close.follower().guard(RATE_HZ) is not None
    wide = excitation_cell(cell, _ROOM_RAD, _ROUND_RAD) if known else close
    return dataclasses.replace(wide, cameras=small_pictures(cell))


def small_pictures(cell: CellConfig) -> tuple[CameraConfig, ...]:
    """The cell's cameras with small pictures as signals: what is kept is taken by itself."""
    out: list[CameraConfig] = []
    for camera in cell.cameras:
        width, height = camera.stream.width, camera.stream.height
        small = (min(width, _SMALL_PX), max(1, height * min(width, _SMALL_PX) // width))
        out.append(dataclasses.replace(patient(camera), recorded=small, signal=True))
    return tuple(out)


def patient(camera: CameraConfig) -> CameraConfig:
    """The camera, whose pictures may come late: who asks knows since when nothing moves."""
    late_s = max(camera.stream.max_age_s, OLDEST_S)
    first_s = max(camera.stream.connect_s, OLDEST_S)
    stream = dataclasses.replace(camera.stream, max_age_s=late_s, connect_s=first_s)
    return dataclasses.replace(camera, stream=stream)


def _rows(T: Pose) -> Matrix:
    # Adding nothing makes 0.0 of -0.0.
    a, b, c, d = (tuple(float(v) + 0.0 for v in row) for row in T)
    return (
        (a[0], a[1], a[2], a[3]),
        (b[0], b[1], b[2], b[3]),
        (c[0], c[1], c[2], c[3]),
        (d[0], d[1], d[2], d[3]),
    )
