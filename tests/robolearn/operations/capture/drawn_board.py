"""The arm of a lab's cell, moved by the product's own tour; what its camera sees is reckoned.

No picture is drawn: corners are where a drawn lens at a drawn place puts them, off by noise, and
found where the squares around them are in the picture, as a detector of ChArUco boards does.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from hardware.cell.load import load_cell
from hardware.commissioning.reach import Reach
from robolearn.arms.models import named_arm
from robolearn.calibration.boards import LEAST_POINTS, BoardFinder, View, on_a_line
from robolearn.calibration.rig import Mount, Rig, RigCamera, RigView, calibrate_rig
from robolearn.calibration.rig_fit import Chain, State, information, project
from robolearn.capture.write import CaptureWriter
from robolearn.geometry import (
    Pose,
    inverse,
    pose,
    rotation_from_quat,
    rotation_from_rotvec,
)
from robolearn.operations.capture.options import CaptureOptions
from robolearn.operations.capture.plan import planned, still_cell
from robolearn.operations.capture.shooting import Shooting, Taken
from robolearn.operations.capture.take import Taker
from robolearn.operations.cell.operator import CellOperator
from robolearn.operations.lab.workcell import load_lab

Where = Literal["beside", "riding"]
FILES = {
    "beside": Path("configs/hardware/lab_ur5e_capture.yaml"),
    "riding": Path("configs/hardware/lab_ur5e_pick_place_capture.yaml"),
}
NOISE_PX = 0.3
# A corner is found this far inside the picture [px]; of a board that is not flatter than this.
_INSIDE_PX, _STEEPEST = 3.0, math.radians(65.0)


class DrawnTour(Shooting):
    """No device is opened: the arm is at once where it is told to be."""

    def __init__(self, where: Where, seed: int, poses: int, folder: Path) -> None:
        rng = np.random.default_rng([seed, 77])
        self.cell, lab = load_cell(FILES[where]), load_lab(FILES[where])
        self._still = still_cell(self.cell)
        camera, printed = lab.cameras[0], lab.board
        if printed is None:
            raise AssertionError("the lab has a board")
        self._where, self._rng, board = where, rng, printed.board
        self.name, self.size = camera.device.name, (camera.device.width, camera.device.height)
        self.options = CaptureOptions(
            squares=board.squares,
            square_m=board.square_m,
            marker_m=board.marker_m,
            dictionary=board.dictionary,
            board_on="flange" if where == "beside" else "table",
            on_flange=() if where == "beside" else (self.name,),
            poses=poses,
            scan=0,
            seed=seed,
        )
        self.arm, self._q = named_arm(self.cell.arm), np.array(self._still.rest)
        self.env: Any = SimpleNamespace(home=self._home)
        self.writer: Any = CaptureWriter(folder, planned(self.cell, self.options))
        if camera.bracket is not None:
            held, fovy_deg = camera.bracket, camera.bracket.fovy_deg
            about = _placed(held.quaternion, held.position_m)
        else:
            view, fovy_deg = camera.view, camera.view.fovy_deg
            z = np.subtract(view.target_m, view.eye_m) / math.dist(view.target_m, view.eye_m)
            x = np.cross(z, view.up) / np.linalg.norm(np.cross(z, view.up))
            looks = pose(np.column_stack([x, np.cross(z, x), z]), view.eye_m)
            about = self._T_base_table @ looks
        self.lens = _lens(fovy_deg, self.size, rng)
        turn = rotation_from_rotvec(rng.uniform(-1.0, 1.0, 3) * math.radians(1.5))
        self.T_parent_camera = about @ pose(turn, rng.uniform(-0.01, 0.01, 3))
        self.T_parent_board = _placed(printed.quaternion, printed.position_m)
        if where == "riding":
            self.T_parent_board = self._T_base_table @ self.T_parent_board
        x, y = np.meshgrid(*(np.arange(1, n) * board.square_m for n in board.squares))
        self._corners = np.column_stack([x.ravel(), y.ravel(), np.zeros(x.size)])
        self._square_m, self.tries = board.square_m, 0
        # What was kept: where the flange was, and the corners.
        self.views: list[tuple[Pose, View]] = []

    def run(self) -> tuple[str, ...]:
        """All pictures of the board; returns what should be repeated."""
        reach, operator = Reach.of(self._still), CellOperator(lambda _: None)
        taker = Taker(
            self.cell, self.writer.config, self.options, operator, lambda _: None, reach, self
        )
        taker.boards()
        return tuple(taker.advice)

    def found(self) -> Rig:
        """What the pictures say."""
        mount, held = self._mounts
        views = [RigView(str(i), self.name, v, held, T) for i, (T, v) in enumerate(self.views)]
        return calibrate_rig([RigCamera(self.name, mount, self.size)], views)

    def least_sigma(self) -> np.ndarray:
        """Standard deviations of the camera's place ``[6]`` [m, rad] that nothing could better."""
        here, places = np.eye(4), {"camera": self.T_parent_camera, "board": self.T_parent_board}
        state = State({"camera": self.lens}, places, frozenset())
        beside = self._where == "beside"
        chains = [
            Chain(v, "camera", "camera", "board", here if beside else T, T if beside else here)
            for T, v in self.views
        ]
        covariance = np.linalg.inv(information(chains, state, NOISE_PX))
        return np.sqrt(np.diag(covariance))[state.columns()["camera"]]

    @property
    def q(self) -> np.ndarray:
        """Where the arm is [rad]."""
        return self._q

    def take_at(self, q: np.ndarray, camera: str, finder: BoardFinder | None) -> Taken:
        """What is seen from there."""
        del camera, finder
        self.tries += 1
        self._q, T = q, self.arm.fk(q)
        view = self.look(T)
        problem = "" if view is not None else "the board is not seen"
        return Taken(np.zeros((2, 2, 3), np.uint8), None, 0.0, view, T, problem)

    def record(self) -> None:
        """Nobody records the joints."""

    def keep(self, set_name: str, taken: Taken) -> None:
        """No picture is written."""
        del set_name
        if taken.view is not None:
            self.views.append((taken.T_base_flange, taken.view))

    def _home(self) -> None:
        self._q = np.array(self._still.rest)

    @property
    def _T_base_table(self) -> Pose:  # noqa: N802  (a transform)
        if self.cell.T_base_table is None:
            raise AssertionError("the cell has a table")
        return self.cell.T_base_table

    @property
    def _mounts(self) -> tuple[Mount, Mount]:
        return ("table", "flange") if self._where == "beside" else ("flange", "table")

    def look(self, T_base_flange: Pose) -> View | None:
        """The corners that are found from there."""
        camera, board = self.T_parent_camera, self.T_parent_board
        if self._where == "beside":
            T = inverse(camera) @ T_base_flange @ board
        else:
            T = inverse(T_base_flange @ camera) @ board
        ahead = T[:3, :3] @ self._corners.mean(axis=0) + T[:3, 3]
        flat = -float(T[:3, 2] @ ahead) < math.cos(_STEEPEST) * float(np.linalg.norm(ahead))
        if flat or ahead[2] < 0.1:
            return None
        inside = np.ones(len(self._corners), dtype=bool)
        for x, y in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
            around = self._corners + self._square_m * np.array([x, y, 0.0])
            at = project(around @ T[:3, :3].T + T[:3, 3], self.lens)[0]
            inside &= ((at > _INSIDE_PX) & (at < np.array(self.size) - 1 - _INSIDE_PX)).all(axis=1)
        if inside.sum() < LEAST_POINTS or on_a_line(self._corners[inside]):
            return None
        pixels = project(self._corners[inside] @ T[:3, :3].T + T[:3, 3], self.lens)[0]
        noise = NOISE_PX * self._rng.normal(size=pixels.shape)
        return View(self._corners[inside], pixels + noise)


def _placed(quaternion: tuple[float, ...], position_m: tuple[float, ...]) -> Pose:
    q = np.array(quaternion)
    return pose(rotation_from_quat(q / np.linalg.norm(q)), position_m)


def _lens(fovy_deg: float, size: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Around a field of view, as the lab's cameras are drawn, and bent."""
    focal = 0.5 * size[1] / math.tan(0.5 * math.radians(fovy_deg))
    fx = focal * (1.0 + 0.05 * rng.uniform(-1.0, 1.0))
    fy = fx * (1.0 + 0.002 * rng.uniform(-1.0, 1.0))
    centre = 0.5 * np.array(size) - 0.5 + 0.015 * size[0] * rng.uniform(-1.0, 1.0, 2)
    bent = (rng.uniform(-0.1, 0.1), rng.uniform(-0.1, 0.05), *(5e-4 * rng.normal(size=2)))
    return np.array([fx, fy, *centre, *bent])
