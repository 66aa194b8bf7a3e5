"""Finds that camera, board or the arm's base was moved while poses were taken.

Poses of the smaller part are few enough to pass for outliers, or a move is small enough to hide in
what is left over; either way the answer is of a place that is no more. A move after pose k is six
numbers more, the change of X (the camera) or of Y (board or base) from there on: how much less they
leave over is compared with the same poses in other orders (a permutation test: whatever the noise
is, the order of poses does not matter unless something moved).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.calibration.hand_eye import HandEye, Places, moved, refine, residuals
from robolearn.calibration.pose_pairs import PosePairs, Rows, places_of_arm, thinned_rows
from robolearn.shapes import FloatRows

# J and J^T J of every pose, for the twelve numbers of X and Y.
Slopes = Float64[NDArray[np.float64], "n 6 12"]
Grams = Float64[NDArray[np.float64], "n 12 12"]
# Per place where something may have been moved.
Gains = Float64[NDArray[np.float64], "m"]
Moves = Float64[NDArray[np.float64], "m 6"]
Side = Literal["camera", "board"]

# Fewer poses than that before or after a move tell nothing of it.
_LEAST = 3
# Orders that are compared, and poses at most.
_ORDERS, _TRIED = 999, 100
# With the move undone so much less is left over (sum of squares): what a wrong lens or an arm that
# is a little off leaves, in poses that were taken row by row, is not taken for a move.
# Where the poses of the smaller part are no part of the fit, poses that are wrong each in its own
# way share some of their errors.
_CLEARLY, _CLEARLY_FAR = 1.5, 10.0
# A smaller move is none [m], [rad].
_LEAST_M, _LEAST_RAD = 0.001, 0.002


@dataclass(frozen=True, slots=True)
class Moved:
    """From which pose on something is elsewhere: of pairs ``before`` and ``after`` the move, and by
    how much [m], [rad].
    """

    before: int
    after: int
    what: Side
    by_m: float
    by_rad: float


def moved_after(pairs: PosePairs, found: HandEye) -> Moved | None:
    """The move that explains what is left over clearly better than any other order of the poses
    would; None: nothing was moved, as far as the poses tell.
    """
    rows, last = _runs(pairs, found)
    chosen = thinned_rows(len(rows), _TRIED)
    rows, last = rows[chosen], last[chosen]
    if len(rows) < 2 * _LEAST:
        return None
    good = np.setdiff1d(np.arange(len(pairs)), found.outliers)
    fit = refine(pairs.of(good), found.T_parent_camera)
    some, step = pairs.of(rows), 1e-6

    def left(change: Places) -> FloatRows:
        X, Y = moved(fit.X, change[:6]), moved(fit.Y, change[6:])
        return residuals(X, Y, some) * fit.weights

    J: Slopes = np.stack([(left(d) - left(-d)) / (2 * step) for d in step * np.eye(12)], axis=2)
    r = left(np.zeros(12))
    # Linear: to the places that leave least of all these poses, outliers at an end among them.
    change = np.linalg.lstsq(J.reshape(-1, 12), -r.ravel(), rcond=None)[0]
    r = r + J @ change
    G, g, total = (
        J.transpose(0, 2, 1) @ J,
        (J.transpose(0, 2, 1) @ r[..., None])[..., 0],
        float((r * r).sum()),
    )
    here = {side: _gains(G, g, part)[0] for side, part in _SIDES}
    side: Side = "camera" if here["camera"].max() >= here["board"].max() else "board"
    at, gain = int(np.argmax(here[side])), float(here[side].max())
    clearly = _CLEARLY if np.isin(rows, good).all() else _CLEARLY_FAR
    if gain < (1.0 - 1.0 / clearly) * total:
        return None
    rng = np.random.default_rng(len(pairs))
    for _ in range(_ORDERS):
        order = rng.permutation(len(rows))
        if max(_gains(G[order], g[order], part)[0].max() for _, part in _SIDES) >= gain:
            return None
    by = _gains(G, g, dict(_SIDES)[side])[1][at]
    by_m, by_rad = float(np.linalg.norm(by[:3])), float(np.linalg.norm(by[3:]))
    if by_m < _LEAST_M and by_rad < _LEAST_RAD:
        return None
    before = at + _LEAST
    return Moved(int(last[before - 1]), int(rows[before]), side, by_m, by_rad)


_SIDES: tuple[tuple[Side, slice], ...] = (("camera", slice(0, 6)), ("board", slice(6, 12)))


def _runs(pairs: PosePairs, found: HandEye) -> tuple[Rows, Rows]:
    """The believed pairs, and all before the first and after the last of them: the smaller part of
    a capture in which something moved. Of pairs in a row at one place of the arm the first one and
    the last one: what they share would pass for a move.
    """
    good = np.setdiff1d(np.arange(len(pairs)), found.outliers)
    every = np.arange(len(pairs))
    rows = every[(every < good[0]) | (every > good[-1]) | np.isin(every, good)]
    place = places_of_arm(pairs.of(rows))
    elsewhere = place[1:] != place[:-1]
    return rows[np.append(True, elsewhere)], rows[np.append(elsewhere, True)]


def _gains(G: Grams, g: FloatRows, part: slice) -> tuple[Gains, Moves]:
    """How much less is left over (sum of squares) with a move after every place ``[m]``, and the
    move ``[m, 6]``: a score test, X and Y being fitted anew.
    """
    n = len(G)
    # Sums over the poses after each place.
    after = np.cumsum(G[::-1], axis=0)[::-1][_LEAST : n - _LEAST + 1]
    pull = np.cumsum(g[::-1], axis=0)[::-1][_LEAST : n - _LEAST + 1, part]
    rows = after[:, part, :]
    fitted = np.asarray(np.linalg.solve(G.sum(axis=0), rows.transpose(0, 2, 1)), dtype=np.float64)
    V = rows[:, :, part] - rows @ fitted
    # Three poses at an end may be too alike to tell all of a move.
    inverse = np.asarray(np.linalg.pinv(V, hermitian=True), dtype=np.float64)
    by: Moves = (inverse @ -pull[..., None])[..., 0]
    return -(pull * by).sum(axis=1), by
