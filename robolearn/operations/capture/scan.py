"""Scans a table with a camera on the flange, from all around; every picture is judged at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hardware.commissioning.reach import Reach, looking_at
from robolearn.capture.config import CaptureSet
from robolearn.errors import DataError
from robolearn.geometry import Pose, Vector, inverse
from robolearn.operations.capture.shooting import Shooting

# Poses that are tried for one picture that is wanted.
_TRIED = 10
# Pictures that are of no use, one after the other, end a scan.
_SPOILT = 5


def scan_table(
    shooting: Shooting,
    reach: Reach,
    entry: CaptureSet,
    wanted: int,
    T_flange_camera: Pose,
    target: Vector,
    rng: np.random.Generator,
    tell: Callable[[str], None],
) -> str:
    """Fill a set with ``wanted`` pictures that look at ``target`` [m] of the base's frame; returns
    what should be repeated ("": nothing). Pictures of no use are told and not kept.

    DataError when too many follow each other, or depth is in other units; what was taken stays.
    """
    camera, writer = entry.camera, shooting.writer
    tried = spoilt = 0
    for T_base_camera in looking_at(target, rng):
        if writer.count(entry.name) >= wanted or tried >= _TRIED * wanted:
            break
        tried += 1
        q = reach.joints(T_base_camera @ inverse(T_flange_camera), shooting.q)
        if q is None:
            continue
        taken = shooting.take_at(q, camera, None)
        shooting.record()
        if taken.problem:
            spoilt += 1
            tell(f"{camera}: {taken.problem}")
            _require_some(camera, spoilt, taken.problem)
            continue
        spoilt = 0
        shooting.keep(entry.name, taken)
        tell(f"{camera}: scan {writer.count(entry.name)} of {wanted}")
        if taken.depth_m is not None:
            T_base_camera_there = taken.T_base_flange @ T_flange_camera
            shooting.judge(camera).looked_at(taken.depth_m, T_base_camera_there, target)
    taken_so_far = writer.count(entry.name)
    if taken_so_far >= wanted:
        return ""
    return (
        f"camera '{camera}': {taken_so_far} of {wanted} pictures of the scan: the arm reaches no"
        " more poses around the table without coming near to something; go on by hand, or move the"
        " table nearer"
    )


def _require_some(camera: str, spoilt: int, problem: str) -> None:
    if spoilt >= _SPOILT:
        raise DataError(
            f"camera '{camera}': {spoilt} pictures of the scan, one after the other, are of no use:"
            f" {problem}"
        )
