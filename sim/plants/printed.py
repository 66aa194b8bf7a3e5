"""Describes prints (tags, boards) as boxes of a MuJoCo model: exact edges, and no question which
way a texture lies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.calibration.boards import Board
from robolearn.calibration.fiducials import Tag, black_cells, dictionary
from robolearn.errors import ConfigError
from robolearn.geometry import Pose, pose, quat_from_rotation, rotation_from_quat
from sim.plants.mount import ArmMount, flange_in_last_link
from sim.scene.config import Scene, world_pose

# Ink over paper, and paper over what it lies on [m]: flatter, and a camera half a metre away shows
# one through the other.
INK_M, PAPER_M = 0.0004, 0.0012
# The body that a scene gains.
BOARD = "printed_board"
_WHITE, _BLACK = "1 1 1 1", "0 0 0 1"


@dataclass(frozen=True, slots=True)
class OnFlange:
    """Where a person fixes a board to the flange, when asked to."""

    # The board's origin on the flange [m].
    position_m: tuple[float, float, float]
    # Its orientation there, w x y z (unit length).
    quaternion: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        _require_placed(self.position_m, self.quaternion)

    @property
    def T_flange_board(self) -> Pose:  # noqa: N802  (a transform)
        """The board's pose ``[4, 4]`` there."""
        return _placed(self.position_m, self.quaternion)


@dataclass(frozen=True, slots=True)
class PrintedBoard:
    """A ChArUco board or a chessboard in the lab's pictures; nothing collides with it."""

    # What is printed (its frame: x right, y up, z out of the print, origin at its lower left).
    board: Board
    # What it is fixed to: the table (its frame), or the arm's flange, with which it moves.
    where: Literal["table", "flange"] = "table"
    # The board's origin there [m]; on the table the print is at least 2 mm high.
    position_m: tuple[float, float, float] = (0.1, 0.1, 0.002)
    # Its orientation there, w x y z (unit length).
    quaternion: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    # Of a board on the table: where a person fixes it to the flange (None: nobody does).
    on_flange: OnFlange | None = None

    def __post_init__(self) -> None:
        if self.on_flange is not None and self.where != "table":
            raise ConfigError(
                "a board that a person fixes to the flange ('on_flange') lies on the table at first"
                f" ('where: table'), got where: {self.where}"
            )
        if self.board.kind == "tags":
            raise ConfigError(
                "a printed board is a 'charuco' or a 'chessboard'; tags belong to an object (a"
                " camera's view.tags)"
            )
        _require_placed(self.position_m, self.quaternion)
        columns, rows = self.board.squares
        if self.board.kind == "charuco":
            known = len(dictionary(self.board.dictionary).bytesList)
            if columns * rows // 2 > known:
                raise ConfigError(
                    f"a ChArUco board of {columns} x {rows} squares has {columns * rows // 2} tags,"
                    f" '{self.board.dictionary}' has {known}"
                )

    def require_other_tags(self, tags: Sequence[Tag], dictionary: str) -> None:
        """Raise ConfigError where the block carries tags of this board: neither would be found."""
        columns, rows = self.board.squares
        count = columns * rows // 2 if self.board.kind == "charuco" else 0
        twice = sorted(t.id for t in tags if t.id < count)
        if twice and dictionary == self.board.dictionary:
            raise ConfigError(
                f"tags {twice} of '{dictionary}' are on the block and on the printed board, and"
                " nothing in a picture tells them apart; give the board another dictionary"
            )

    @property
    def T_where_board(self) -> Pose:  # noqa: N802  (the field's name)
        """The board's pose ``[4, 4]`` on the table, or on the flange."""
        return _placed(self.position_m, self.quaternion)


def _require_placed(position_m: Sequence[float], quaternion: Sequence[float]) -> None:
    if not np.isfinite(position_m).all():
        raise ConfigError(f"a board's position is finite, got {tuple(position_m)}")
    if abs(float(np.linalg.norm(quaternion)) - 1.0) > 1e-3:
        raise ConfigError(
            f"a board's quaternion (w x y z) has unit length, got {tuple(quaternion)}"
        )


def _placed(position_m: Sequence[float], quaternion: Sequence[float]) -> Pose:
    q = np.array(quaternion)
    return pose(rotation_from_quat(q / np.linalg.norm(q)), position_m)


def with_board(scene: Scene, model: mujoco.MjModel, mount: ArmMount, board: PrintedBoard) -> Scene:
    """The scene with the board in its pictures; ``model`` is its own, compiled."""
    if board.where == "table":
        frames = scene.config.frames
        joint, T = None, world_pose(model, frames[next(iter(frames))]) @ board.T_where_board
    else:
        last = mount.joints[mount.arm.dof - 1]
        joint, T = last, flange_in_last_link(model, mount) @ board.T_where_board
    text = "".join(board_geoms(board.board))

    def edit(spec: mujoco.MjSpec) -> None:
        parent = spec.worldbody if joint is None else spec.joint(joint).parent
        quat = quat_from_rotation(T[:3, :3]).tolist()
        body = parent.add_body(name=BOARD, pos=T[:3, 3].tolist(), quat=quat)
        drawn = mujoco.MjSpec.from_string(f"<mujoco><worldbody>{text}</worldbody></mujoco>")
        for geom in drawn.geoms:
            body.add_geom(
                type=geom.type,
                pos=geom.pos,
                size=geom.size,
                rgba=geom.rgba,
                contype=0,
                conaffinity=0,
                mass=0.0,
                group=0,
            )

    return dataclasses.replace(scene, edits=(*scene.edits, edit))


def board_geoms(board: Board) -> list[str]:
    """A board's paper and ink in its own frame; the print is the plane z = 0.

    As OpenCV draws it: the upper left square is black, and tags are numbered row by row through the
    white squares.
    """
    columns, rows = board.squares
    side, high = board.square_m, rows * board.square_m
    middle = (columns * side / 2, high / 2)
    half = (middle[0] + side / 2, middle[1] + side / 2)
    low = -INK_M - PAPER_M / 2
    out = [box((*middle, low), (*half, PAPER_M / 2), _WHITE)]
    number = 0
    for row in range(rows):
        for column in range(columns):
            x, y = (column + 0.5) * side, high - (row + 0.5) * side
            if (row + column) % 2 == 0:
                out.append(_ink((x, y), (side / 2, side / 2)))
            elif board.kind == "charuco":
                out += _marker(board, number, (x, y))
                number += 1
    return out


def _marker(board: Board, number: int, at: tuple[float, float]) -> Iterator[str]:
    black = black_cells(board.dictionary, number)
    cell = board.marker_m / len(black)
    left, top = at[0] - board.marker_m / 2, at[1] + board.marker_m / 2
    for row, cells in enumerate(black):
        for begin, end in _runs(cells):
            x, y = left + cell * (begin + end) / 2, top - cell * (row + 0.5)
            yield _ink((x, y), (cell * (end - begin) / 2, cell / 2))


def _runs(cells: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Begin and end of what is black without a gap: one box instead of many."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], cells, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _ink(at: tuple[float, float], half: tuple[float, float]) -> str:
    return box((*at, -INK_M / 2), (*half, INK_M / 2), _BLACK)


def box(centre: tuple[float, ...], half: tuple[float, ...], colour: str, yaw: float = 0.0) -> str:
    """A box that is turned about z [rad]."""
    return (
        f'<geom type="box" pos="{numbers(centre)}" size="{numbers(half)}" rgba="{colour}"'
        f' quat="{np.cos(yaw / 2)} 0 0 {np.sin(yaw / 2)}"/>'
    )


def numbers(values: Iterable[float]) -> str:
    """As MJCF writes vectors."""
    return " ".join(f"{float(v):.9g}" for v in values)
