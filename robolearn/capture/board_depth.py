"""Compares depth pictures with the board that they show: units, and offsets of the depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robolearn.capture.board_views import BoardView
from robolearn.capture.config import CaptureLens
from robolearn.shapes import Floats

# Depth and board farther apart than this are of different units; than that, depth is off [m].
_WORST_RATIO, _WORST_OFF_M, _WORST_SHARE = 1.5, 0.01, 0.02
_LEAST_PICTURES = 3


def depth_problem(seen: Sequence[BoardView], lenses: Mapping[str, CaptureLens]) -> tuple[str, str]:
    """``(level, sentence)`` of what is wrong with the depth of pictures that show the board, by the
    lens of each camera; empty sentences where nothing is, or nothing can be told.
    """
    measured: list[float] = []
    true: list[float] = []
    for b in seen:
        lens = lenses.get(b.frame.set.camera)
        if b.frame.depth_file is None or b.frame.camera.depth is None or lens is None:
            continue
        T = b.pose(lens)
        if T is None:
            continue
        depth = b.frame.depth_m()
        columns, rows = np.rint(b.view.pixels).astype(np.intp).T
        inside = (rows >= 0) & (rows < depth.shape[0]) & (columns >= 0)
        inside &= columns < depth.shape[1]
        there = depth[rows[inside], columns[inside]]
        far: Floats = (b.view.points @ T[2, :3] + T[2, 3])[inside]
        if (there > 0).sum() >= 4:
            measured.append(float(np.median(there[there > 0])))
            true.append(float(np.median(far[there > 0])))
    if len(measured) < _LEAST_PICTURES:
        return "", ""
    return _judged(np.array(measured), np.array(true))


def _judged(measured: Floats, true: Floats) -> tuple[str, str]:
    ratio = float(np.median(measured / true))
    if not 1 / _WORST_RATIO < ratio < _WORST_RATIO:
        return "error", (
            f"depth is in other units: the board is {np.median(true):.2f} m away, its depth says"
            f" {np.median(measured):.4g} m; divide depth.scale_m by about {ratio:.2g} (is the"
            " board's square_m right?)"
        )
    off = float(np.median(measured - true))
    if abs(off) > max(_WORST_OFF_M, _WORST_SHARE * float(np.median(true))):
        return "warning", (
            f"depth is {1e3 * abs(off):.0f} mm {'farther' if off > 0 else 'nearer'} than the board"
            " that it shows: the camera's depth is not calibrated, or square_m is wrong"
        )
    return "", ""
