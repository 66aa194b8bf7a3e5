"""Says what is captured of a cell; apart from what does it, so that ``--help`` answers at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The board, which cameras ride on the arm, and how much is taken."""

    # What is printed.
    board: Literal["charuco", "chessboard"] = "charuco"
    # Squares of the board in x and y.
    squares: tuple[int, int] = (8, 6)
    # Side of a square as printed [m].
    square_m: float = 0.03
    # Side of a tag of a ChArUco board as printed [m].
    marker_m: float = 0.022
    # Of the board's tags.
    dictionary: str = "4x4_50"
    # What the board is fixed to: the table (cameras on the flange look at it), the flange (cameras
    # beside the arm do), or first the one, then the other (a person moves it).
    board_on: Literal["table", "flange", "both"] = "table"
    # Cameras that ride on the flange (default: those whose lens says so).
    on_flange: tuple[str, ...] = ()
    # How far before the flange the board is, for a camera on the flange [m].
    ahead_m: float = 0.4
    # Pictures of the board per camera (40: its orientation is known to .3 degrees).
    poses: int = 40
    # Pictures of the table by a camera on the flange, all around (0: none).
    scan: int = 40
    # What stands on the table, by name: objects of capture.yaml, and bodies of the scene.
    objects: tuple[str, ...] = ()
    # Objects that the gripper then holds, one after the other, before cameras beside the arm that
    # measure depth (their places are known from a board on the flange).
    in_hand: tuple[str, ...] = ()
    # Pictures of each, and of the empty hand.
    views: int = 24
    # How long the arm is excited and recorded [s] (0: not at all).
    excite_s: float = 0.0
    # Chooses poses and motions.
    seed: int = 0

    def __post_init__(self) -> None:
        if self.poses < 8 or self.poses > 200:
            raise ConfigError(f"poses must be in [8, 200], got {self.poses}")
        if not 0 <= self.scan <= 1000:
            raise ConfigError(f"scan must be in [0, 1000] pictures, got {self.scan}")
        if self.in_hand and self.board_on == "table":
            raise ConfigError(
                "in_hand: where cameras see the gripper is known from a board on the flange: give"
                " board_on: flange or both"
            )
        if not 6 <= self.views <= 200:
            raise ConfigError(f"views must be in [6, 200], got {self.views}")
        if self.excite_s != 0.0 and not 10.0 <= self.excite_s <= 600.0:
            raise ConfigError(f"excite_s must be 0 or in [10, 600], got {self.excite_s:g}")
        if not 0.1 <= self.ahead_m <= 2.0:
            raise ConfigError(f"ahead_m must be in [0.1, 2] m, got {self.ahead_m:g}")


@dataclass(frozen=True, slots=True)
class HandOptions:
    """A stage in which no arm moves: a person carries the camera, or turns what is before it."""

    # lens: the board all over the picture; scan: the table by a camera that is carried around it,
    # the board lying there; turntable: an object on the board, which is turned before the camera.
    by_hand: Literal["", "lens", "scan", "turntable"] = ""
    # Which camera of the cell takes the pictures.
    camera: str = ""
    # What stands on the turntable: a name, as capture.yaml has it.
    object: str = ""
    # Pictures to take.
    pictures: int = 30
    # A stage ends when nothing new was seen for so long [s].
    patience_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.by_hand:
            if self.camera or self.object:
                raise ConfigError("camera and object go with by_hand (lens, scan, turntable)")
            return
        if not self.camera:
            raise ConfigError("by_hand: which camera? Give 'camera'")
        if (self.by_hand == "turntable") != bool(self.object):
            raise ConfigError(
                "by_hand: turntable takes pictures of one object: give 'object'"
                if not self.object
                else f"object goes with by_hand: turntable, not {self.by_hand}"
            )
        if not 8 <= self.pictures <= 1000:
            raise ConfigError(f"pictures must be in [8, 1000], got {self.pictures}")
        if not 1.0 <= self.patience_s <= 3600.0:
            raise ConfigError(f"patience_s must be in [1, 3600] s, got {self.patience_s:g}")
