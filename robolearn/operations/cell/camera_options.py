"""Says how a camera is calibrated; apart from what does it, so that ``--help`` answers at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class CameraOptions:
    """Which camera, what board it is shown, and where its pictures come from."""

    # The camera's name; may be left out when there is one.
    camera: str = ""
    # What is shown; tags: those on a tracked object of 'robot.trackers'.
    board: Literal["charuco", "chessboard", "tags"] = "charuco"
    # Which one, as 'block/pose'; may be left out when there is one.
    signal: str = ""
    # Squares of the board in x and y.
    squares: tuple[int, int] = (8, 6)
    # Side of a square as printed [m].
    square_m: float = 0.03
    # Side of a tag of a ChArUco board as printed [m].
    marker_m: float = 0.022
    # Of the board's tags.
    dictionary: str = "4x4_50"
    # A folder of pictures of the board for the lens, instead of the live camera.
    pictures: Path | None = None
    # Live: so many pictures, each taken when the board is somewhere new.
    count: int = 15
    # Live: for so long [s].
    wait_s: float = 120.0
    # Keep the config's lens and find only the place.
    keep_lens: bool = False
    # Height of the lying board's printed side over the table [m].
    height_m: float = 0.0
    # A picture of the board that lies on the table, instead of the live camera.
    table_picture: Path | None = None
