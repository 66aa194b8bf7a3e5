"""Keeps what an arm said and what its camera saw at the same moments; says whether that is enough,
which of it is there twice, and which was taken at the same place of the arm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray
from scipy import spatial  # pyright: ignore[reportMissingTypeStubs]

from robolearn.errors import DataError
from robolearn.geometry import PoseRows, rotvecs_from_rotations

Setup = Literal["eye-in-hand", "eye-to-hand"]
Rows = Int[NDArray[np.intp], "n"]

# SciPy comes without types.
_spatial: Any = spatial

# At so many places of the arm at least; more poses than that are a log of a motion.
LEAST_POSES, MOST_POSES = 5, 5000
# Nearer to each other than that, poses of the arm are one place [m], [rad]: what the arm's own
# figures are off by there, all of them share.
_ONE_PLACE_M, _ONE_PLACE_RAD = 0.001, 0.002
# Every pose is held against every other one, of so many at most.
_MOST_IN_PAIRS = 200
# Between some two poses, and about a second axis: less and a part of the answer is made of noise.
LEAST_TURN_DEG, LEAST_SECOND_TURN_DEG = 10.0, 4.0


class ContradictionError(DataError):
    """The pairs of poses cannot all be what they are said to be."""


@dataclass(frozen=True, slots=True)
class PosePairs:
    """What the arm said and what the camera saw at the same moments: ``T_base_tool [n, 4, 4]`` and
    ``T_camera_board [n, 4, 4]`` [m]. ``names``: what people call the pairs (their pictures); none:
    they are numbered.
    """

    T_base_tool: PoseRows
    T_camera_board: PoseRows
    setup: Setup
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.T_base_tool)

    def of(self, rows: Sequence[int] | Rows) -> PosePairs:
        """Some of them."""
        chosen = np.asarray(rows, dtype=np.intp)
        names = tuple(self.names[int(chosen[i])] for i in range(len(chosen) if self.names else 0))
        return PosePairs(self.T_base_tool[chosen], self.T_camera_board[chosen], self.setup, names)

    def name(self, row: int) -> str:
        """What people call a pair."""
        return self.names[row] if self.names else str(row)

    def listed(self, rows: Sequence[int] | Rows) -> str:
        """Pairs for a sentence: the first eight."""
        more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
        return f"[{', '.join(self.name(int(i)) for i in rows[:8])}]{more}"

    @property
    def A(self) -> PoseRows:  # noqa: N802  (the equation's name)
        """The moving side of the equation ``[n, 4, 4]``."""
        return self.T_base_tool if self.setup == "eye-in-hand" else inverses(self.T_base_tool)


def require_enough(pairs: PosePairs) -> None:
    """DataError unless the poses are as many, and as different, as the answer needs."""
    if len(pairs) > MOST_POSES:
        raise DataError(
            f"{len(pairs)} poses are more than {MOST_POSES}: a log of a motion rather than of"
            " places; keep a few of every place at which the arm stood still"
        )
    first_there = np.unique(places_of_arm(pairs), return_index=True)[1]
    if len(first_there) < LEAST_POSES:
        why = (
            "too few"
            if len(first_there) == len(pairs)
            else f"at {len(first_there)} place(s) of the arm, too similar"
        )
        raise DataError(
            f"{len(pairs)} pose(s) are {why}: at least {LEAST_POSES} places are needed, 15 to 30"
            " make a good calibration; turn the tool about two axes between them"
        )
    places = thinned(pairs.of(first_there), _MOST_IN_PAIRS)
    first, second = np.triu_indices(len(places), 1)
    R = places.T_base_tool[:, :3, :3]
    turns = rotvecs_from_rotations(R[first].transpose(0, 2, 1) @ R[second])
    largest = float(np.degrees(np.linalg.norm(turns, axis=1).max()))
    # Rounding may leave a variance that is none a little below 0.
    spread = np.sqrt(np.maximum(np.linalg.eigvalsh(turns.T @ turns / len(turns)), 0.0))
    beside = float(np.degrees(spread[1]))
    if largest < LEAST_TURN_DEG or beside < LEAST_SECOND_TURN_DEG:
        raise DataError(
            f"the poses are too similar: the tool turns by at most {largest:.1f} degrees between"
            f" them ({LEAST_TURN_DEG:g} are needed), and by {beside:.1f} degrees (root mean square)"
            f" about a second axis ({LEAST_SECOND_TURN_DEG:g} are needed). Moving without turning"
            " says nothing of the camera's place: turn the tool about two axes, by 30 degrees and"
            " more"
        )


def thinned(pairs: PosePairs, most: int) -> PosePairs:
    """At most so many of the pairs, evenly from first to last."""
    return pairs.of(thinned_rows(len(pairs), most))


def thinned_rows(count: int, most: int) -> Rows:
    """Indices of them; which one of every stretch is drawn: of places that come round again and
    again, every so-manieth pose might be of one.
    """
    if count <= most:
        return np.arange(count)
    ends = np.linspace(0, count, most + 1).round().astype(np.intp)
    drawn = np.random.default_rng(count).random(most)
    return ends[:-1] + (drawn * np.diff(ends)).astype(np.intp)


def first_alike(pairs: PosePairs) -> Rows:
    """For every pair the first one that says the same, digit by digit: itself, or what it is a copy
    of.
    """
    rows = np.concatenate([pairs.T_base_tool, pairs.T_camera_board], axis=1).reshape(len(pairs), -1)
    first, same = np.unique(rows, axis=0, return_index=True, return_inverse=True)[1:]
    return first[same.ravel()]


def places_of_arm(pairs: PosePairs) -> Rows:
    """For every pair the number of the place at which the arm was: that of the first pose that it
    lies beside.
    """
    T, count = pairs.T_base_tool, len(pairs)
    # Two rotations differ by sqrt(2) times their angle (Frobenius norm, small angles).
    turned = T[:, :3, :3].reshape(count, 9) / (np.sqrt(2.0) * _ONE_PLACE_RAD)
    points = np.concatenate([T[:, :3, 3] / _ONE_PLACE_M, turned], axis=1)
    tree, place = _spatial.cKDTree(points), np.full(count, -1)
    for row in range(count):
        if place[row] < 0:
            near = np.asarray(tree.query_ball_point(points[row], 1.0), dtype=np.intp)
            place[near[place[near] < 0]] = row
    return np.unique(place, return_inverse=True)[1].ravel()


def inverses(T: PoseRows) -> PoseRows:
    """Inverses of poses ``[n, 4, 4]``."""
    out = np.zeros_like(T)
    out[:, :3, :3] = T[:, :3, :3].transpose(0, 2, 1)
    out[:, :3, 3] = -(out[:, :3, :3] @ T[:, :3, 3:])[..., 0]
    out[:, 3, 3] = 1.0
    return out


def count_places(pairs: PosePairs) -> int:
    """At how many places the arm was."""
    return int(places_of_arm(pairs).max()) + 1


def relative_motions(pairs: PosePairs) -> tuple[PoseRows, PoseRows]:
    """``C [m, 4, 4]`` of the arm's side and ``D`` of the camera's between every two poses (of some,
    where they are many), with ``C X = X D``.
    """
    pairs = thinned(pairs, _MOST_IN_PAIRS)
    i, j = np.triu_indices(len(pairs), 1)
    A, B = pairs.A, pairs.T_camera_board
    return inverses(A[j]) @ A[i], B[j] @ inverses(B[i])
