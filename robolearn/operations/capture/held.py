"""Turns what the gripper holds before a camera beside the arm, at poses where it saw the flange."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from hardware.commissioning.reach import Reach
from robolearn.capture.config import CaptureSet
from robolearn.capture.folder import read_capture
from robolearn.errors import DataError
from robolearn.geometry import Pose, pose, rot_z
from robolearn.operations.capture.depth import LEAST_OF_ONE
from robolearn.operations.capture.shooting import Shooting

# Poses that are tried for one picture that is wanted.
_TRIED = 10
# From one picture to the next the hand is turned about its axis, back and forth, so that no wrist
# comes to its end [rad].
_TURN_RAD, _MOST_RAD = 0.73, 2.8


def turn_held(
    shooting: Shooting, reach: Reach, entry: CaptureSet, wanted: int, tell: Callable[[str], None]
) -> str:
    """Fill a set with ``wanted`` pictures of what the gripper holds, from the poses at which the
    board on the flange was seen; returns what should be repeated ("": nothing).

    DataError where no such pose is known. The same poses in the same order every time, so that the
    empty hand is seen as the full one is.
    """
    camera, writer = entry.camera, shooting.writer
    tried = 0
    for T in held_poses(writer.folder, camera):
        if writer.count(entry.name) >= wanted or tried >= _TRIED * wanted:
            break
        tried += 1
        q = reach.joints(T, shooting.q)
        if q is None:
            continue
        shooting.goto(q)
        taken = shooting.take(camera, None, LEAST_OF_ONE)
        shooting.record()
        if taken.problem:
            tell(f"{camera}: {taken.problem}")
            continue
        shooting.keep(entry.name, taken)
        what = entry.object or "the empty hand"
        tell(f"{camera}: {what}, {writer.count(entry.name)} of {wanted}")
    count = writer.count(entry.name)
    if count >= wanted:
        return ""
    what = entry.object or "the empty hand"
    return (
        f"camera '{camera}': {count} of {wanted} pictures of {what}: the arm"
        " reaches no more of the poses at which the board on the flange was seen"
    )


def held_poses(folder: Path, camera: str) -> Iterator[Pose]:
    """Poses of the flange, for ever: where a camera saw the board on it, each time turned on."""
    seen = [
        f.T_base_tool
        for f in read_capture(folder).of("handeye")
        if f.set.camera == camera and f.set.board_on == "flange" and f.T_base_tool is not None
    ]
    if not seen:
        raise DataError(
            f"camera '{camera}' never saw the board on the flange, so where it sees the gripper is"
            " not known: capture with board_on: flange or both first"
        )
    for k in range(1_000_000):
        yield seen[k % len(seen)] @ pose(rot_z(_back_and_forth(_TURN_RAD * k)), np.zeros(3))


def _back_and_forth(way: float) -> float:
    """An angle that goes to one end, to the other, and so on."""
    at = way % (4.0 * _MOST_RAD)
    if at < _MOST_RAD:
        return at
    return 2.0 * _MOST_RAD - at if at < 3.0 * _MOST_RAD else at - 4.0 * _MOST_RAD
