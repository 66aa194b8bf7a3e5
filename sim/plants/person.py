"""Moves what a person holds before the lab's cameras: carries one around, or turns the board.

In pictures alone, as prints and brackets are: nothing of the physics follows. A person stops where
a picture is wanted, walks on, and trembles while holding still.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import mujoco
import numpy as np

from robolearn.errors import ConfigError
from robolearn.geometry import (
    ObjectPose,
    Pose,
    Vector,
    pose,
    quat_from_rotation,
    rot_z,
    rotation_from_rotvec,
)
from robolearn.seeding import child_seed
from robolearn.shapes import Floats
from sim.plants.printed import PrintedBoard
from sim.scene.config import Scene

# scan: around what lies on the table; lens: near the board, which comes to all sides of the
# picture; turntable: the board is turned, with what stands on it, and the camera stays. For an arm
# that is captured: the board is laid onto the table or fixed to the flange; an object (or nothing)
# is put between the fingers, the board taken away; the table is cleared.
Doing = Literal[
    "scan", "lens", "turntable", "board_on_table", "board_on_flange", "in_hand", "cleared"
]
DOINGS: tuple[Doing, ...] = get_args(Doing)
ARM_DOINGS: tuple[Doing, ...] = ("board_on_table", "board_on_flange", "in_hand", "cleared")
# Where nobody sees it, in the table's frame [m].
_AWAY_M = (0.0, 0.0, -60.0)
# From one stop to the next, around the table or of the board that is turned [rad]: many times
# around, never twice the same place.
_ROUND_RAD = math.radians(27.0)
# A board that fills the picture is seen from so near [m], its middle so far beside the picture's.
_LENS_AWAY_M, _LENS_ASIDE_M = (0.28, 0.42), 0.11
# Hands tremble by a few slow and a few quick waves [Hz], which make these shares of it.
_WAVES_HZ, _SHARES = np.array([0.4, 0.9, 2.1, 8.5]), np.array([0.7, 0.5, 0.3, 0.05])


@dataclass(frozen=True, slots=True)
class Carrying:
    """How a person carries a camera, and what through."""

    # What it looks at on a walk around the table, in the table's frame [m].
    target_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    # How far from there, least and most [m].
    away_m: tuple[float, float] = (0.32, 0.48)
    # How high above the table it is seen from, least and most [deg].
    above_deg: tuple[float, float] = (38.0, 72.0)
    # It never looks exactly there: so far beside, at most [m].
    aside_m: float = 0.03
    # A stop, and the way to the next one [s].
    still_s: float = 3.0
    move_s: float = 1.5
    # What hands tremble by at a stop (standard deviation) [m], [deg].
    tremble_m: float = 0.0003
    tremble_deg: float = 0.03
    # Vertical field of view [deg].
    fovy_deg: float = 45.0

    def __post_init__(self) -> None:
        (near, far), (low, high) = self.away_m, self.above_deg
        if not (0.05 <= near <= far <= 3.0 and 5.0 <= low <= high <= 85.0):
            raise ConfigError(
                "carried: away_m in [0.05, 3] m and above_deg in [5, 85] are needed, the smaller"
                f" number first; got {self.away_m}, {self.above_deg}"
            )
        rest = (self.aside_m, self.tremble_m, self.tremble_deg)
        if not all(0.0 <= v < math.inf for v in (*self.target_m[2:], *rest)):
            raise ConfigError(
                "carried: a target on the table or above it, and aside_m, tremble_m and tremble_deg"
                f" of at least 0 are needed, got {self.target_m}, {rest}"
            )
        if not (0.0 < self.still_s < 3600.0 and 0.0 < self.move_s < 3600.0):
            raise ConfigError(
                f"carried: still_s and move_s are above 0 s, got {self.still_s}, {self.move_s}"
            )
        if not 1.0 <= self.fovy_deg <= 150.0:
            raise ConfigError(f"carried: fovy_deg in [1, 150] is needed, got {self.fovy_deg}")


class Walk:
    """Where a camera is that is carried, at any time; the same again for the same ``seed``."""

    def __init__(self, carrying: Carrying, seed: int, middle_m: Vector | None = None) -> None:
        """``middle_m``: of the board, in the table's frame [m]; None: it has none."""
        self._carrying, self._seed = carrying, seed
        self._middle = np.array(carrying.target_m) if middle_m is None else middle_m
        rng = np.random.default_rng(child_seed(seed, "tremble"))
        self._phases: Floats = rng.uniform(0.0, 2.0 * math.pi, (6, len(_WAVES_HZ)))

    def T_table_camera(self, t_s: float, doing: Doing) -> Pose:  # noqa: N802  (a transform)
        """The camera's pose ``[4, 4]`` (it looks along +z, x to the right, y down), ``t_s`` [s]
        after the walk began.
        """
        stop, share = stops(t_s, self._carrying)
        if doing == "turntable":
            # It lies somewhere and looks at the board.
            c = self._carrying
            place = [float(np.mean(c.away_m)), 0.0, math.radians(c.above_deg[0]), 0.0]
            return _looking(np.array([*self._middle, *place]))
        near = doing == "lens"
        before, after = self._stop(stop, lens=near), self._stop(stop + 1, lens=near)
        return _looking(before + share * (after - before)) @ self._tremble(t_s)

    def _stop(self, number: int, *, lens: bool) -> Floats:
        """Of a stop: point that is looked at (3), distance, azimuth, elevation, roll."""
        c = self._carrying
        rng = np.random.default_rng(child_seed(self._seed, "stop", number))
        if lens:
            target, aside = self._middle, _LENS_ASIDE_M * np.array([1.0, 1.0, 0.0])
            away, above, roll = _LENS_AWAY_M, (50.0, 80.0), math.pi
        else:
            target, aside = np.array(c.target_m), c.aside_m * np.array([1.0, 1.0, 0.3])
            away, above, roll = c.away_m, c.above_deg, 0.3
        point = target + aside * rng.uniform(-1.0, 1.0, 3)
        elevation = math.radians(float(rng.uniform(*above)))
        rest = [float(rng.uniform(*away)), number * _ROUND_RAD, elevation]
        return np.array([*point, *rest, float(rng.uniform(-roll, roll))])

    def _tremble(self, t_s: float) -> Pose:
        waves = np.sin(2.0 * math.pi * _WAVES_HZ * t_s + self._phases) @ _SHARES
        waves *= math.sqrt(2.0) / float(np.linalg.norm(_SHARES))
        turn = math.radians(self._carrying.tremble_deg) * waves[3:]
        return pose(rotation_from_rotvec(turn), self._carrying.tremble_m * waves[:3])


def stops(t_s: float, carrying: Carrying) -> tuple[int, float]:
    """Which stop, and what share of the way to the next one is done, ``t_s`` [s] after the start;
    starts and ends of ways are smooth.
    """
    period_s = carrying.still_s + carrying.move_s
    number = math.floor(t_s / period_s)
    share = max(0.0, t_s - number * period_s - carrying.still_s) / carrying.move_s
    return number, share * share * (3.0 - 2.0 * share)


@dataclass(frozen=True, slots=True)
class Arranged:
    """Where what a person holds is, in the table's frame: the camera and the board (None: nobody
    touches it), and all objects.
    """

    T_table_camera: Pose | None
    T_table_board: Pose | None
    poses: Mapping[str, ObjectPose]


class Person:
    """Who carries one camera of the lab, or turns the board before it."""

    def __init__(
        self, carrying: Carrying | None, board: PrintedBoard | None, seed: int, tool_m: float = 0.0
    ) -> None:
        """``tool_m``: from the flange to what is held between the fingers [m]."""
        self._carrying, self._board, self._tool_m = carrying or Carrying(), board, tool_m
        self._carries = carrying is not None
        self._doing: Doing = "scan"
        self._thing, self._since_ns = "", 0
        middle = None
        if board is not None:
            self._half = 0.5 * board.board.square_m * np.array([*board.board.squares, 0.0])
            middle = (board.T_where_board @ np.array([*self._half, 1.0]))[:3]
        self._walk = Walk(self._carrying, seed, middle)

    def begin(self, doing: Doing, thing: str, t_ns: int) -> None:
        """Do this from ``t_ns`` on, with the object ``thing`` ("": none) on the board."""
        self._doing, self._thing, self._since_ns = doing, thing, t_ns

    def arranged(
        self, t_ns: int, poses: Mapping[str, ObjectPose], T_table_flange: Pose | None = None
    ) -> Arranged:
        """Where everything is at ``t_ns``; objects that nobody holds are at their ``poses``."""
        t_s = max(0.0, (t_ns - self._since_ns) * 1e-9)
        camera = self._walk.T_table_camera(t_s, self._doing) if self._carries else None
        if self._doing in ARM_DOINGS:
            T = np.eye(4) if T_table_flange is None else T_table_flange
            return Arranged(camera, self._laid(T), self._held(poses, T))
        if self._doing != "turntable" or self._board is None:
            return Arranged(camera, None, poses)
        number, share = stops(t_s, self._carrying)
        angle = (number + share) * _ROUND_RAD
        T = turned_board(self._board.T_where_board, self._half, angle)
        if self._thing not in poses:
            return Arranged(camera, T, poses)
        stands = _standing(poses[self._thing], T, self._half, angle)
        return Arranged(camera, T, {**poses, self._thing: stands})

    def _laid(self, T_table_flange: Pose) -> Pose | None:
        """Where the board is; None: there is none."""
        board = self._board
        if board is None or board.where != "table":
            return None
        if self._doing == "board_on_table":
            return board.T_where_board
        if self._doing == "board_on_flange" and board.on_flange is not None:
            return T_table_flange @ board.on_flange.T_flange_board
        return pose(None, _AWAY_M)

    def _held(
        self, poses: Mapping[str, ObjectPose], T_table_flange: Pose
    ) -> Mapping[str, ObjectPose]:
        """Where objects are: one between the fingers, or all away."""
        if self._doing == "cleared":
            return {name: _at(pose(None, _AWAY_M), old) for name, old in poses.items()}
        if self._doing != "in_hand" or self._thing not in poses:
            return poses
        T = T_table_flange @ pose(None, (0.0, 0.0, self._tool_m))
        return {**poses, self._thing: _at(T, poses[self._thing])}


def _at(T: Pose, like: ObjectPose) -> ObjectPose:
    """An object's pose in as many numbers as before."""
    if len(like) == 3:
        return np.array([*T[:2, 3], math.atan2(float(T[1, 0]), float(T[0, 0]))])
    return np.array([*T[:3, 3], *quat_from_rotation(T[:3, :3])])


def with_carried(scene: Scene, model: mujoco.MjModel, name: str, carrying: Carrying) -> Scene:
    """The scene with a camera ``name`` that hangs in the air; ``model`` is its own, compiled."""
    taken = [model.camera(i).name for i in range(model.ncam)]
    if name in taken:
        raise ConfigError(
            f"scene '{scene.name}' has a camera '{name}' already; call the one that is carried"
            f" something else than {taken}"
        )

    def edit(spec: mujoco.MjSpec) -> None:
        spec.worldbody.add_camera(name=name, pos=[0.0, 0.0, 1.0], fovy=carrying.fovy_deg)

    return dataclasses.replace(scene, edits=(*scene.edits, edit))


def _standing(pose_before: ObjectPose, board: Pose, middle: Vector, angle: float) -> ObjectPose:
    """An object's pose upright on the middle of the board, turned with it: as many numbers as
    before.
    """
    x, y, z = (board @ np.array([*middle, 1.0]))[:3].tolist()
    if len(pose_before) == 3:
        return np.array([x, y, angle])
    half = 0.5 * angle
    return np.array([x, y, z + pose_before[2], math.cos(half), 0.0, 0.0, math.sin(half)])


def turned_board(T_table_board: Pose, middle: Vector, angle_rad: float) -> Pose:
    """The board's pose ``[4, 4]`` after a turn about its ``middle`` [m] of its own frame, in its
    plane.
    """
    there, back = pose(None, middle), pose(None, -middle)
    return T_table_board @ there @ pose(rot_z(angle_rad)) @ back


def _looking(stop: Floats) -> Pose:
    """A camera's pose that looks at a stop's point."""
    point, (away, azimuth, elevation, roll) = stop[:3], stop[3:]
    level = np.array([math.cos(azimuth), math.sin(azimuth)]) * math.cos(elevation)
    out = np.array([*level, math.sin(elevation)])
    right = np.array([-math.sin(azimuth), math.cos(azimuth), 0.0])
    R = np.column_stack([right, np.cross(-out, right), -out])
    return pose(R @ rot_z(roll), point + away * out)
