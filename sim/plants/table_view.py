"""Draws what a camera over the lab's table sees, by MuJoCo, from joint angles and poses.

The physics stays PyBullet's: its software renderer takes 113 ms for a picture of 640 x 480, this
one a tenth. Only primitives, looks of its own (not those of a scene package).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.arms.models import UR5E
from robolearn.arms.shapes import Joints
from robolearn.calibration.fiducials import Tag, black_cells, require_tags
from robolearn.errors import ConfigError
from robolearn.geometry import (
    PlanarPose,
    Pose,
    Vector,
    inverse,
    pose,
    quat_from_rotation,
    rot_x,
    rot_z,
)
from robolearn.pusht import BAR_PX, GOAL, STEM_PX, TABLE_SIZE_M, TOOL_RADIUS_M, transform_points
from sim.plants.look import Hidden, Look, TrueCamera
from sim.plants.printed import PrintedBoard, board_geoms, box, numbers
from sim.plants.urdf import BLOCK_HEIGHT_M, RIM_HEIGHT_M, block_box, rim_boxes
from sim.rendering.cameras import Calibration, calibration, intrinsics
from sim.rendering.renderer import Renderer, View, update_poses

CAMERA = "view"
_TUBES = (0.06, 0.055, 0.045, 0.04, 0.04, 0.036)
# Paper and print, over the block's top [m]: the tags' plane is 1 mm above the block.
_PAPER_M, TAG_HEIGHT_M = 0.0006, BLOCK_HEIGHT_M + 0.001
_TABLE, _RIM, _GOAL = "0.86 0.84 0.79 1", "0.55 0.57 0.60 1", "0.50 0.78 0.52 1"
_BLOCK, _TOOL, _TUBE, _JOINT = (
    "0.42 0.47 0.55 1",
    "0.15 0.22 0.75 1",
    "0.72 0.73 0.76 1",
    "0.3 0.5 0.7 1",
)


@dataclass(frozen=True, slots=True)
class TableViewConfig:
    """Where the camera is, in the table's frame, and what the block carries."""

    # The camera [m].
    eye_m: tuple[float, float, float] = (0.256, 0.256, 0.75)
    # What it looks at [m].
    target_m: tuple[float, float, float] = (0.256, 0.256, 0.0)
    # Direction that is up in the picture.
    up: tuple[float, float, float] = (0.0, 1.0, 0.0)
    # Vertical field of view [deg].
    fovy_deg: float = 42.0
    # Nothing nearer is drawn [m]: a camera above the arm sees through it (an arm over the table
    # hides the block from any camera above); 0.02 shows the whole arm.
    near_m: float = 0.65
    # Dictionary of the tags.
    dictionary: str = "4x4_50"
    # Tags on the block's upper side.
    tags: tuple[Tag, ...] = (
        Tag(0, (-0.044, -0.015), 0.024),
        Tag(1, (0.044, -0.015), 0.024),
        Tag(2, (0.0, -0.104), 0.024),
    )

    def __post_init__(self) -> None:
        require_tags(self.tags, self.dictionary)
        if not (0 < self.near_m < 10 and 1 <= self.fovy_deg <= 150):
            raise ConfigError(
                "near_m in (0, 10) and fovy_deg in [1, 150] are needed, got"
                f" {self.near_m}, {self.fovy_deg}"
            )


class TableView:
    """Draws the workcell; table frame = world frame. One OpenGL context, in one thread."""

    def __init__(
        self,
        config: TableViewConfig,
        *,
        T_base_table: Pose,
        tool_length_m: float,
        width: int,
        height: int,
        block: str = "block",
        board: PrintedBoard | None = None,
        depth: bool = False,
        hidden: Hidden | None = None,
    ) -> None:
        """``depth``: looks come with the depth of every pixel; ``hidden``: what the seed draws."""
        self._T_table_base, self._depth = inverse(T_base_table), depth
        self._block, self._board = block, board
        self._model = mujoco.MjModel.from_xml_string(_mjcf(config, tool_length_m, board))
        self._data = mujoco.MjData(self._model)
        self._renderer = Renderer(self._model, "fast")
        self._view = View(CAMERA, width, height)
        if hidden is not None:
            hidden.apply(self._model, self._view)
        self._focal_px = float(intrinsics(self._model, self._view)[0, 0])

    def arrange(self, T_table_camera: Pose | None, T_table_board: Pose | None) -> None:
        """Nobody moves this camera or its board by hand: ConfigError for one that is told so."""
        if T_table_camera is not None or T_table_board is not None:
            raise ConfigError("on Push-T's table nobody carries a camera, or turns a board")

    def truth(self, width: int, height: int) -> TrueCamera:
        """How pictures of this size are seen."""
        found = calibration(self._model, View(CAMERA, width, height))
        return TrueCamera(width, height, found.K, "table", found.T_body_camera)

    def calibration(self) -> Calibration:
        """Intrinsics, and the camera's pose in the table's frame (``T_body_camera``)."""
        return calibration(self._model, self._view)

    def look(
        self, q: Joints, poses: Mapping[str, PlanarPose], opening_m: float | None = None
    ) -> Look:
        """What is seen with joints at ``q [6]`` and the block at ``poses[block]`` (x, y, yaw)."""
        del opening_m
        frames = UR5E.frames(q)
        for i in range(UR5E.dof):
            self._place(f"link{i}", self._T_table_base @ frames[i + 1])
        flange = self._T_table_base @ frames[-1] @ UR5E.flange_in_last
        self._place("tool", flange)
        if self._board is not None:
            on_table = self._board.where == "table"
            here = self._board.T_where_board
            self._place("board", here if on_table else flange @ here)
        x, y, yaw = (float(v) for v in poses[self._block])
        self._place("block", pose(rot_z(yaw), (x, y, 0.0)))
        update_poses(self._model, self._data)
        if not self._depth:
            return Look(self._renderer.image(self._data, self._view), None, self._focal_px)
        return Look(*self._renderer.image_and_depth(self._data, self._view), self._focal_px)

    def close(self) -> None:
        """Free the context; safe to call twice."""
        self._renderer.close()

    def _place(self, body: str, T: Pose) -> None:
        index = self._model.body(body).mocapid[0]
        self._data.mocap_pos[index] = T[:3, 3]
        self._data.mocap_quat[index] = quat_from_rotation(T[:3, :3])


def _mjcf(config: TableViewConfig, tool_length_m: float, board: PrintedBoard | None) -> str:
    half = TABLE_SIZE_M / 2
    bodies = [
        box((half, half, -0.05), (0.5, 0.55, 0.05), _TABLE),
        *(
            box((*at, RIM_HEIGHT_M / 2), (w / 2, h / 2, RIM_HEIGHT_M / 2), _RIM)
            for at, (w, h) in rim_boxes()
        ),
        *_goal(),
        *(_mocap(f"link{i}", _link(i)) for i in range(UR5E.dof)),
        _mocap(
            "tool",
            [
                # Two: the near plane opens the upper one, the lower one keeps its lid.
                f'<geom type="cylinder" fromto="0 0 {start} 0 0 {tool_length_m}"'
                f' size="{TOOL_RADIUS_M}" rgba="{_TOOL}"/>'
                for start in (0.0, 0.4 * tool_length_m)
            ],
        ),
        _mocap("block", _block(config)),
        *(() if board is None else (_mocap("board", board_geoms(board.board)),)),
    ]
    x, y = _camera_axes(config)
    return f"""<mujoco>
  <statistic extent="1"/>
  <visual><map znear="{config.near_m}" zfar="20"/>
    <headlight ambient=".45 .45 .45" diffuse=".25 .25 .25" specular="0 0 0"/></visual>
  <worldbody>
    <light directional="true" dir="-.3 .2 -1" diffuse=".4 .4 .4" specular=".1 .1 .1"/>
    <camera name="{CAMERA}" pos="{numbers(config.eye_m)}" xyaxes="{numbers(x)} {numbers(y)}"
      fovy="{config.fovy_deg}"/>
    {"".join(bodies)}
  </worldbody>
</mujoco>"""


def _camera_axes(config: TableViewConfig) -> tuple[Vector, Vector]:
    """The picture's right and up in the table's frame."""
    forward = np.array(config.target_m) - np.array(config.eye_m)
    right = np.cross(forward, np.array(config.up))
    if np.linalg.norm(right) < 1e-9:
        raise ConfigError(
            f"a camera at {config.eye_m} that looks at {config.target_m} has no picture with"
            f" {config.up} up"
        )
    right /= np.linalg.norm(right)
    up = np.cross(right, forward)
    return right, up / np.linalg.norm(up)


def _block(config: TableViewConfig) -> list[str]:
    out = [
        box((*centre, BLOCK_HEIGHT_M / 2), (w / 2, h / 2, BLOCK_HEIGHT_M / 2), _BLOCK)
        for centre, (w, h) in (block_box(part) for part in (BAR_PX, STEM_PX))
    ]
    for tag in config.tags:
        out += _tag(tag, black_cells(config.dictionary, tag.id))
    return out


def _tag(tag: Tag, black: NDArray[np.bool_]) -> list[str]:
    n = len(black)
    cell = tag.size_m / n
    paper = tag.size_m / 2 + cell / 2
    x, y = tag.at_m
    low, half = BLOCK_HEIGHT_M, _PAPER_M / 2
    out = [box((x, y, low + half), (paper, paper, half), "1 1 1 1", tag.yaw_rad)]
    half = (TAG_HEIGHT_M - BLOCK_HEIGHT_M) / 2
    for row, column in np.argwhere(black):
        offset = np.array([[(column + 0.5) * cell, -(row + 0.5) * cell]])
        offset += np.array([-tag.size_m / 2, tag.size_m / 2])
        cx, cy = transform_points(offset, (x, y, tag.yaw_rad))[0].tolist()
        out.append(box((cx, cy, low + half), (cell / 2, cell / 2, half), "0 0 0 1", tag.yaw_rad))
    return out


def _goal() -> list[str]:
    out: list[str] = []
    for corners in (BAR_PX, STEM_PX):
        centre, (w, h) = block_box(corners)
        x, y = transform_points(np.array([centre]), GOAL)[0].tolist()
        out.append(box((x, y, 0.0), (w / 2, h / 2, 0.0008), _GOAL, GOAL[2]))
    return out


def _link(i: int) -> list[str]:
    """Tubes along the two straight parts of a DH row, in the frame at its end."""
    row, radius = UR5E.links[i], _TUBES[i]
    back = inverse(pose(rot_x(row.alpha), (row.a, 0.0, row.d)))
    start, elbow = back[:3, 3], (back @ np.array([0.0, 0.0, row.d, 1.0]))[:3]
    out: list[str] = []
    for a, b, colour in ((start, elbow, _JOINT), (elbow, np.zeros(3), _TUBE)):
        if np.linalg.norm(b - a) > 0.01:
            out.append(
                f'<geom type="capsule" fromto="{numbers(a)} {numbers(b)}" size="{radius}"'
                f' rgba="{colour}"/>'
            )
    return out


def _mocap(name: str, geoms: Iterable[str]) -> str:
    return f'<body name="{name}" mocap="true">{"".join(geoms)}</body>'
