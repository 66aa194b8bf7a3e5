"""Compares depth pictures with the board that they show: units, offsets, and whether depth is that
of the same pixels (a mirrored depth picture has the right distance, and tilts the other way).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.capture.board_views import BoardView
from robolearn.capture.config import CaptureLens
from robolearn.capture.folder import DepthPicture
from robolearn.capture.registered import TURNS
from robolearn.shapes import Floats

# Depth and board farther apart than this are of different units; than that, depth is off [m].
_WORST_RATIO, _WORST_OFF_M, _WORST_SHARE = 1.5, 0.01, 0.02
_LEAST_PICTURES = 3
# Boards are tilted when their corners' distances scatter by so much [m]; depth that follows them
# leaves less than this share of that, one that is turned or mirrored the right way much less.
_TILTED_M, _FOLLOWS, _EXPLAINS = 0.006, 0.7, 0.35


@dataclass(frozen=True, slots=True)
class _Shown:
    """A depth picture [m] and corners of a board: where they are and how far by the lens [m]."""

    depth: DepthPicture
    rows: Floats
    columns: Floats
    far: Floats

    def measured(self, depth: DepthPicture) -> tuple[Floats, Floats]:
        """Depth at the corners where there is some, and how far these are [m]."""
        there = depth[self.rows.astype(np.intp), self.columns.astype(np.intp)].astype(np.float64)
        return there[there > 0], self.far[there > 0]


def depth_problem(seen: Sequence[BoardView], lenses: Mapping[str, CaptureLens]) -> tuple[str, str]:
    """``(level, sentence)`` of what is wrong with the depth of pictures that show the board, by the
    lens of each camera; empty sentences where nothing is, or nothing can be told.
    """
    shown = [s for b in seen if (s := _shown(b, lenses.get(b.frame.set.camera))) is not None]
    if len(shown) < _LEAST_PICTURES:
        return "", ""
    pairs = [s.measured(s.depth) for s in shown]
    measured = np.array([float(np.median(there)) for there, _ in pairs])
    true = np.array([float(np.median(far)) for _, far in pairs])
    level, text = _judged(measured, true)
    return (level, text) if level == "error" else _following(shown) or (level, text)


def _shown(b: BoardView, lens: CaptureLens | None) -> _Shown | None:
    if b.frame.depth_file is None or b.frame.camera.depth is None or lens is None:
        return None
    T = b.pose(lens)
    if T is None:
        return None
    depth = b.frame.depth_m()
    columns, rows = np.rint(b.view.pixels).T
    inside = (rows >= 0) & (rows < depth.shape[0]) & (columns >= 0)
    inside &= columns < depth.shape[1]
    far: Floats = (b.view.points @ T[2, :3] + T[2, 3])[inside]
    shown = _Shown(depth, rows[inside], columns[inside], far)
    return shown if len(shown.measured(depth)[0]) >= 4 else None


def _following(shown: Sequence[_Shown]) -> tuple[str, str] | None:
    """Whether depth tilts as the board does; None where it does, or boards are hardly tilted."""
    tilted = np.sqrt(np.mean([np.var(s.far) for s in shown]))
    if tilted < _TILTED_M or _left_over(shown, ()) < _FOLLOWS * tilted:
        return None
    for how, axes in TURNS.items():
        if _left_over(shown, axes) < _EXPLAINS * tilted:
            return "error", (
                f"depth pictures lie {how} in their pictures: the depth of the board's corners is"
                " that of others; write both as the camera sees them"
            )
    return "error", (
        "depth does not follow the board's tilt: it is not that of the same pixels at the same time"
        " (not registered to the picture, a frozen depth stream, or no distances at all)"
    )


def _left_over(shown: Sequence[_Shown], axes: tuple[int, ...]) -> float:
    """What is left of the corners' depth, turned round these axes, beside their distances, but for
    an offset [m].
    """
    rest: list[float] = []
    for s in shown:
        there, far = s.measured(np.flip(s.depth, axes))
        if len(there) >= 4:
            rest.append(float(np.var(there - far)))
    return float(np.sqrt(np.mean(rest))) if rest else np.inf


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
