"""Describes ``capture.yaml``: what a capture folder holds and what is known of the rig.

    capture.yaml        everything below
    robot.csv           t_s, q1 ... [rad] and, optionally, T_base_tool: the arm while pictures were
                        taken
    <set>/frames.csv    file, depth, mask, t_s, T_base_tool, T_world_camera: one row per picture
    <set>/000000.png    the picture
    <set>/000000.depth.png   uint16 times ``depth.scale_m`` = metres along the optical axis

``docs/capture_format.md`` describes every key. Vision's conventions: whole numbers are pixel
centres, a camera looks along +z with x to the right and y down; ``T_a_b`` maps coordinates in frame
b to frame a.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from robolearn.calibration.boards import Board
from robolearn.calibration.fiducials import Tag
from robolearn.errors import ConfigError

# Four rows of four numbers.
Matrix = tuple[
    tuple[float, float, float, float],
    tuple[float, float, float, float],
    tuple[float, float, float, float],
    tuple[float, float, float, float],
]
Mount = Literal["flange", "table", "hand"]
# Focal length over the longer side: beyond, a view of 3 degrees.
_LONGEST = 20.0
# A table is smaller [m].
_LARGEST_M = 20.0
Purpose = Literal["lens", "handeye", "scan", "background", "object", "motion"]


@dataclass(frozen=True, slots=True)
class CaptureArm:
    """The arm of the cell."""

    # Which one: a name of robolearn/arms/models.py.
    model: str = ""
    # Where its base stands in the table's frame.
    T_table_base: Matrix | None = None


@dataclass(frozen=True, slots=True)
class CaptureBoard:
    """The calibration board that is in the pictures."""

    # What is printed: a board, or single tags at known places of one plane.
    kind: Literal["charuco", "chessboard", "tags"]
    # Squares in x and y, both colours counted.
    squares: tuple[int, int] = (0, 0)
    # Side of a square [m]; measure it on the print.
    square_m: float = 0.0
    # Side of a tag's black square on a ChArUco board [m].
    marker_m: float = 0.0
    # Of its tags.
    dictionary: str = "4x4_50"
    # What it lies on, or is fixed to.
    where: Literal["table", "flange"] = "table"
    # Where it lies in the table's frame; without, the board's frame is the table's.
    T_table_board: Matrix | None = None
    # Of ``kind: tags``: ``id``, ``at_m`` of the board's frame, ``size_m``, ``yaw_rad`` of each.
    tags: tuple[Tag, ...] = ()

    def __post_init__(self) -> None:
        self.board()
        if any(t.size_m > 1.0 or max(map(abs, t.at_m)) > _LARGEST_M for t in self.tags):
            raise ConfigError(
                f"board.tags: at_m and size_m are in metres, got {self.tags}; these look like"
                " millimetres"
            )
        if self.square_m > 1.0:
            raise ConfigError(
                f"board.square_m and marker_m are in metres, got {self.square_m}, {self.marker_m};"
                " these look like millimetres"
            )

    def board(self) -> Board:
        """As the calibration knows it."""
        return Board(
            self.kind, self.squares, self.square_m, self.marker_m, self.dictionary, self.tags
        )


@dataclass(frozen=True, slots=True)
class CaptureLens:
    """Intrinsics of a camera at its size."""

    # Focal lengths in x and y [px].
    focal_px: tuple[float, float]
    # Principal point [px].
    centre_px: tuple[float, float]
    # OpenCV's coefficients k1 k2 p1 p2 [k3 ...]; none for a straight picture.
    distortion: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not all(math.isfinite(v) for v in (*self.focal_px, *self.centre_px, *self.distortion)):
            raise ConfigError(
                f"a lens is finite numbers, got {self.focal_px}, {self.centre_px},"
                f" {self.distortion}"
            )
        if min(self.focal_px) <= 0:
            raise ConfigError(f"focal lengths are above 0 px, got {self.focal_px}")
        if len(self.distortion) not in (0, 4, 5, 8, 12, 14):
            raise ConfigError(
                f"distortion has 4, 5, 8, 12 or 14 coefficients, got {len(self.distortion)}"
            )


@dataclass(frozen=True, slots=True)
class CaptureDepth:
    """How a depth picture's numbers become metres."""

    # Metres per number.
    scale_m: float = 0.001
    # Standard deviation of one pixel [m], where it is known.
    noise_m: float = 0.002

    def __post_init__(self) -> None:
        if not (0 < self.scale_m < 1 and 0 <= self.noise_m < math.inf):
            raise ConfigError(
                f"depth.scale_m is metres per number, such as 0.001, and depth.noise_m is not"
                f" negative, got {self.scale_m}, {self.noise_m}"
            )


@dataclass(frozen=True, slots=True)
class CaptureCamera:
    """One camera of the rig."""

    # What carries it: the arm's flange, the table (it stands still), or somebody's hand.
    mount: Mount
    # Width and height of its pictures [px].
    size: tuple[int, int]
    lens: CaptureLens | None = None
    # Where it sits: on the flange, or in the table's frame.
    T_mount_camera: Matrix | None = None
    # Absent: a camera without depth.
    depth: CaptureDepth | None = None

    def __post_init__(self) -> None:
        if min(self.size) <= 0:
            raise ConfigError(f"size is width and height above 0 px, got {self.size}")
        if self.lens is None:
            return
        inside = all(0 < c < s for c, s in zip(self.lens.centre_px, self.size, strict=True))
        usual = all(0.1 < f / max(self.size) < _LONGEST for f in self.lens.focal_px)
        if not (inside and usual):
            raise ConfigError(
                f"the lens (focal_px {self.lens.focal_px}, centre_px {self.lens.centre_px}) is not"
                f" that of pictures of {self.size[0]} x {self.size[1]} px: its centre lies in the"
                " picture, and its focal length is of the order of the width. Intrinsics of another"
                " size are scaled; millimetres are divided by the size of a pixel"
            )


@dataclass(frozen=True, slots=True)
class CaptureSet:
    """A folder of pictures taken for one purpose."""

    # The folder.
    name: str
    # Which camera took them.
    camera: str
    # What they are good for.
    purpose: Purpose
    # The object that they show, for ``purpose: object``; none there: the empty gripper, which is
    # cut out of pictures of what it holds.
    object: str = ""
    # What turns that object: the board, or tags, that it stands on, or the arm's gripper.
    object_on: Literal["turntable", "flange"] = "turntable"
    # Under which light, for ``purpose: background``.
    lighting: str = ""
    # What carries the board in these pictures; default: as ``board.where``, but in pictures for the
    # lens somebody's hand.
    board_on: Literal["", "table", "flange", "hand"] = ""

    def __post_init__(self) -> None:
        if self.lighting and not self.lighting.replace("-", "_").isidentifier():
            raise ConfigError(
                f"set {self.name}: a lighting becomes a part of a camera's name: letters, digits,"
                f" '_' and '-', got '{self.lighting}'"
            )


@dataclass(frozen=True, slots=True)
class CaptureObject:
    """An object that lies on the table."""

    name: str
    # Its mass [kg], where it was weighed.
    mass_kg: float | None = None
    # How the mass is known.
    mass_source: str = ""
    # About where it lies, x and y in the table's frame [m]: which of several it is.
    at_m: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ConfigError(
                f"an object's name becomes that of a body and a signal: letters, digits and '_',"
                f" got '{self.name}'"
            )
        if self.at_m is not None and not all(abs(v) < _LARGEST_M for v in self.at_m):
            raise ConfigError(f"object {self.name}: at_m is x and y in metres, got {self.at_m}")
        if self.mass_kg is not None and not 0 < self.mass_kg < 1000:
            raise ConfigError(
                f"object {self.name}: mass_kg is in kilograms, above 0 and below 1000, got"
                f" {self.mass_kg}"
            )


@dataclass(frozen=True, slots=True)
class CaptureWorkspace:
    """The box of the table's frame that is reconstructed [m]."""

    low: tuple[float, float, float]
    high: tuple[float, float, float]

    def __post_init__(self) -> None:
        if not all(a < b for a, b in zip(self.low, self.high, strict=True)):
            raise ConfigError(f"workspace: low must be below high, got {self.low}, {self.high}")
        if max(abs(v) for v in (*self.low, *self.high)) > _LARGEST_M:
            raise ConfigError(
                f"workspace: corners are in metres, got {self.low}, {self.high}; these look like"
                " millimetres"
            )


@dataclass(frozen=True, slots=True)
class CaptureConfig:
    """``capture.yaml``."""

    # Version of the format: 1.
    schema: int
    name: str
    cameras: dict[str, CaptureCamera]
    sets: tuple[CaptureSet, ...]
    # The program, or the person, that took it.
    made_by: str = ""
    arm: CaptureArm | None = None
    board: CaptureBoard | None = None
    objects: tuple[CaptureObject, ...] = ()
    workspace: CaptureWorkspace | None = None
    # Anything else worth keeping.
    notes: dict[str, str] = field(default_factory=dict[str, str])
