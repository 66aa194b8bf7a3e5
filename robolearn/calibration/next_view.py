"""Chooses from where a camera should look at a board next, by what its pictures leave unknown.

Lens and places are found from the pictures so far; of every pose that might be next it is known
then which corners would be seen, and with their slopes how wide intervals would still be (the
information matrix of all pictures and that one). Next is the pose that leaves least over: the sum
of variances of focal lengths, place and orientation, each in shares of what is allowed (A-optimal).

It matters where the board is in the picture: a shift of the principal point and a turn of the
camera look alike but for terms of second order, which only corners far from the middle show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.calibration.boards import LEAST_POINTS, Board, View, on_a_line
from robolearn.calibration.rig import RigCamera, RigView, calibrate_rig
from robolearn.calibration.rig_fit import Chain, LensNumbers, Square, State, information
from robolearn.errors import DataError
from robolearn.geometry import Pose, inverse, pose, rotation_from_rotvec

Grid = Float64[NDArray[np.float64], "r c 3"]

# What a calibration may be off by: focal length (a share of it), place [m], orientation [rad].
_FOCAL, _PLACE_M, _TURN_RAD = 0.003, 0.002, np.radians(0.3)
# A board is turned from one that was seen by up to so much about its own axes [rad], and is as far
# away as those that were seen, or a little nearer or farther.
_TURN = np.radians([35.0, 35.0, 70.0])
_NEARER, _FARTHER = 0.9, 1.1
# Flatter than this, corners are not found [rad, between its normal and the ray].
_STEEPEST = np.radians(55.0)
# Corners are told from noise of this size, where pictures leave less over [px].
_LEAST_NOISE_PX = 0.1
# The name of the board's place.
_BOARD = "board"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known of one camera that rides on the arm and a board on the table, or of one beside
    it and a board on the flange; ``views``: the pictures that were believed.
    """

    camera: RigCamera
    state: State
    views: tuple[RigView, ...]
    # Corners of all squares ``[rows, columns, 3]`` [m]; those at the edge are not found.
    corners: Grid
    # All corners or none are found (a board without tags).
    whole: bool
    noise_px: float

    @classmethod
    def of(cls, camera: RigCamera, views: Sequence[RigView], board: Board) -> Outlook | None:
        """From pictures with the arm's pose; None where they tell too little yet."""
        try:
            found = calibrate_rig([camera], views)
        except DataError:
            return None
        (seen,) = found.cameras
        on_board = found.T_frame_board if camera.mount == "flange" else found.T_tool_board
        if seen.place is None or on_board is None:
            return None
        fixed = frozenset[str]() if camera.lens is None else frozenset({f"lens {camera.name}"})
        places = {camera.name: seen.place.T, _BOARD: on_board.T}
        return cls(
            camera,
            State({camera.name: seen.lens}, places, fixed),
            tuple(v for v in views if v.name not in found.outliers),
            _corners(board),
            board.kind != "charuco",
            max(seen.rms_px / np.sqrt(2.0), _LEAST_NOISE_PX),
        )

    @property
    def lens(self) -> LensNumbers:
        """As far as it is known."""
        return self.state.lenses[self.camera.name]

    def joined(self, view: RigView) -> Outlook:
        """With one more picture; lens and places as before."""
        return replace(self, views=(*self.views, view))

    def poses(self, count: int, rng: np.random.Generator) -> list[Pose]:
        """Poses of the flange from which the board should be seen, of ``count`` that are drawn;
        those that tell most first.
        """
        there = [self._at(v) for v in self.views]
        chains = [self._chain(v.view, _arm(v)) for v in self.views]
        told = information(chains, self.state, self.noise_px)
        scored: list[tuple[float, Pose]] = []
        for _ in range(count):
            T_camera_board = self._drawn(there, rng)
            view = self.sees(T_camera_board)
            if view is not None:
                flange = self._flange(T_camera_board)
                more = information([self._chain(view, flange)], self.state, self.noise_px)
                scored.append((self._left(told + more), flange))
        return [T for _, T in sorted(scored, key=lambda row: row[0])]

    def sees(self, T_camera_board: Pose) -> View | None:
        """The corners that a picture of a board there would show (of each the squares around it are
        needed, too); None: too few, or too flat.
        """
        ray = T_camera_board[:3, :3] @ self.corners.mean(axis=(0, 1)) + T_camera_board[:3, 3]
        if -float(T_camera_board[:3, 2] @ ray) < np.cos(_STEEPEST) * float(np.linalg.norm(ray)):
            return None
        focal, centre = self.lens[:2], self.lens[2:4]
        K = np.array([[focal[0], 0.0, centre[0]], [0.0, focal[1], centre[1]], [0.0, 0.0, 1.0]])
        turn, _ = cv2.Rodrigues(T_camera_board[:3, :3])
        at, _ = cv2.projectPoints(
            self.corners.reshape(-1, 3), turn, T_camera_board[:3, 3], K, self.lens[4:]
        )
        pixels = np.asarray(at, dtype=np.float64).reshape(*self.corners.shape[:2], 2)
        inside = ((pixels > 0) & (pixels < np.array(self.camera.size) - 1)).all(axis=2)
        found = inside[1:-1, 1:-1] & inside[:-2, :-2] & inside[:-2, 2:]
        found &= inside[2:, :-2] & inside[2:, 2:]
        if found.sum() < LEAST_POINTS or (self.whole and not found.all()):
            return None
        corners = self.corners[1:-1, 1:-1][found]
        return None if on_a_line(corners) else View(corners, pixels[1:-1, 1:-1][found])

    def _drawn(self, there: Sequence[Pose], rng: np.random.Generator) -> Pose:
        """The board anywhere in the picture, as far away as it was seen and turned from there."""
        far = [float(T[2, 3]) for T in there]
        z = rng.uniform(_NEARER * min(far), _FARTHER * max(far))
        fx, fy, cx, cy = (float(v) for v in self.lens[:4])
        u, v = (rng.uniform(0.0, side) for side in self.camera.size)
        turn = rotation_from_rotvec(rng.uniform(-1.0, 1.0, 3) * _TURN)
        chosen = int(rng.uniform(0.0, len(there)))
        R = there[chosen][:3, :3] @ turn
        middle = self.corners.mean(axis=(0, 1))
        return pose(R, np.array([(u - cx) / fx, (v - cy) / fy, 1.0]) * z - R @ middle)

    def _at(self, view: RigView) -> Pose:
        """Where the board's middle was before the camera, turned as the board was."""
        chain = self._chain(view.view, _arm(view))
        C = chain.A @ self.state.places[self.camera.name]
        middle = pose(None, self.corners.mean(axis=(0, 1)))
        return inverse(C) @ chain.G @ self.state.places[_BOARD] @ middle

    def _flange(self, T_camera_board: Pose) -> Pose:
        """Where the flange is when the camera sees the board so."""
        X, Y = self.state.places[self.camera.name], self.state.places[_BOARD]
        if self.camera.mount == "flange":
            return Y @ inverse(T_camera_board) @ inverse(X)
        return X @ T_camera_board @ inverse(Y)

    def _chain(self, view: View, T_base_flange: Pose) -> Chain:
        here = np.eye(4)
        A, G = (T_base_flange, here) if self.camera.mount == "flange" else (here, T_base_flange)
        return Chain(view, self.camera.name, self.camera.name, _BOARD, A, G)

    def _left(self, told: Square) -> float:
        """What is not known: variances in shares of what is allowed."""
        columns = self.state.columns()
        variance = np.diag(np.linalg.pinv(told, hermitian=True))
        left = variance[columns[self.camera.name]] / np.repeat([_PLACE_M, _TURN_RAD], 3) ** 2
        lens = columns.get(f"lens {self.camera.name}")
        if lens is None:
            return float(left.sum())
        focal = self.lens[:2]
        return float(left.sum() + (variance[lens][:2] / (_FOCAL * focal) ** 2).sum())


def _corners(board: Board) -> Grid:
    columns, rows = (np.arange(n + 1) * board.square_m for n in board.squares)
    x, y = np.meshgrid(columns, rows)
    return np.stack([x, y, np.zeros(x.shape)], axis=-1)


def _arm(view: RigView) -> Pose:
    if view.T_base_tool is None:
        raise DataError(f"picture '{view.name}': where the arm was is not known")
    return view.T_base_tool
