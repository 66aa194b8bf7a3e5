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
    # How long the arm is excited and recorded [s] (0: not at all).
    excite_s: float = 0.0
    # Chooses poses and motions.
    seed: int = 0

    def __post_init__(self) -> None:
        if self.poses < 8 or self.poses > 200:
            raise ConfigError(f"poses must be in [8, 200], got {self.poses}")
        if not 0 <= self.scan <= 1000:
            raise ConfigError(f"scan must be in [0, 1000] pictures, got {self.scan}")
        if self.excite_s != 0.0 and not 10.0 <= self.excite_s <= 600.0:
            raise ConfigError(f"excite_s must be 0 or in [10, 600], got {self.excite_s:g}")
        if not 0.1 <= self.ahead_m <= 2.0:
            raise ConfigError(f"ahead_m must be in [0.1, 2] m, got {self.ahead_m:g}")
