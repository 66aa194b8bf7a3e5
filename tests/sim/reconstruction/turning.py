"""Adds pictures of one thing by itself to a capture: on a turntable, or in a gripper.

The thing turns, the camera and a box beside it stand still.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import mujoco
import numpy as np

from robolearn.capture.config import (
    CaptureArm,
    CaptureBoard,
    CaptureCamera,
    CaptureConfig,
    CaptureDepth,
    CaptureLens,
    CaptureObject,
    CaptureSet,
    CaptureWorkspace,
)
from robolearn.capture.write import CaptureWriter
from robolearn.geometry import pose, rot_x, rot_z, rotation_from_rotvec
from sim.rendering.renderer import Renderer, View
from tests.robolearn.capture.foreign import looking
from tests.sim.reconstruction.worlds import (
    T_TABLE_BASE,
    Thing,
    World,
    camera_poses,
    matrix_rows,
    with_board,
)

SIZE, FOCAL_PX, NOISE_M = (320, 240), 300.0, 0.0005
K = np.array([[FOCAL_PX, 0, (SIZE[0] - 1) / 2], [0, FOCAL_PX, (SIZE[1] - 1) / 2], [0, 0, 1]])
BOARD = CaptureBoard("charuco", (7, 5), 0.03, 0.022)
# From the board's middle to its frame, whose origin is its corner.
T_MIDDLE_BOARD = pose(None, (-0.105, -0.075, 0.0))
# Where the thing is in the tool's frame, its own z along the tool's against it.
T_TOOL_THING = pose(rot_x(np.pi), (-0.008, 0.0, 0.185))
# Beside the arm; the hand is before it.
T_TABLE_CAMERA = looking((0.27, -0.06, 0.40), (0.0, 0.0, 0.31))
_FINGERS = (
    ("box", (0.008, 0.004, 0.05), (-0.008, 0.0165, 0.13)),
    ("box", (0.008, 0.004, 0.05), (-0.008, -0.0165, 0.13)),
    ("box", (0.03, 0.05, 0.02), (0.0, 0.0, 0.06)),
)


@dataclass(frozen=True)
class Shot:
    """A picture with depth, which pixels show the thing, and where its carrier was."""

    picture: np.ndarray
    depth: np.ndarray
    mask: np.ndarray
    T_table_carrier: np.ndarray


def begin(folder: Path, world: World, apart: tuple[Thing, ...], sets: tuple[CaptureSet, ...]):
    """A capture with a scan of a table on which ``world`` stands, to be filled with ``sets``."""
    lens = CaptureLens((FOCAL_PX, FOCAL_PX), (K[0, 2], K[1, 2]))
    depth = CaptureDepth(0.0001, 0.001)
    things = (*world.things, *(t for t in apart if t not in world.things))
    config = CaptureConfig(
        schema=1,
        name="turned",
        cameras={
            "eye": CaptureCamera("hand", SIZE, lens, depth=depth),
            "side": CaptureCamera("table", SIZE, lens, matrix_rows(T_TABLE_CAMERA), depth),
        },
        sets=(CaptureSet("scan", "eye", "scan"), *sets),
        objects=tuple(
            CaptureObject(t.name, t.mass_kg, "drawn", t.xy_yaw[:2] if t in world.things else None)
            for t in things
        ),
        board=BOARD,
        arm=CaptureArm("", matrix_rows(T_TABLE_BASE)),
        workspace=CaptureWorkspace((-0.22, -0.22, 0.0), (0.22, 0.22, 0.16)),
    )
    writer = CaptureWriter(folder, config)
    rng = np.random.default_rng(world.seed)
    with Stage(world.xml(), rng) as stage:
        for T in camera_poses(12, rng):
            picture, depth_m, _ = stage.shoot(T)
            writer.add("scan", picture, depth_m, T_world_camera=T)
    return writer


def on_turntable(thing: Thing, views: int, seed: int = 0) -> Iterator[Shot]:
    """The thing on a board that is turned before a camera; a box beside it stands still."""
    rng = np.random.default_rng(seed)
    geoms = _geoms(thing.parts, thing.rgb)
    xml = _stage_xml(
        f'<body name="carrier"><geom type="box" size=".12 .09 .001" pos="0 0 -.001"'
        f' rgba="1 1 1 1"/><body name="thing">{geoms}</body></body>'
        '<geom type="box" size=".03 .03 .06" pos="-.2 .1 .04" rgba=".2 .4 .3 1"/>'
    )
    heights = (0.13, 0.20, 0.28)
    with Stage(xml, rng) as stage:
        for k in range(views):
            up = heights[k % 3]
            eye = looking((0.0, -0.24, up), (0.0, 0.0, 0.01))
            T = pose(rot_z(2 * np.pi * (0.618034 * k % 1.0)), (0.01, 0.02, 0.0))
            stage.put("carrier", T)
            picture, depth, mask = stage.shoot(eye)
            picture = with_board(picture, depth, K, eye, T @ T_MIDDLE_BOARD)
            yield Shot(picture, depth, mask, T)


def in_gripper(thing: Thing, views: int, seed: int = 0, *, empty: bool = False) -> Iterator[Shot]:
    """The thing between fingers that turn before a camera beside the arm."""
    rng = np.random.default_rng(seed)
    hand, geoms = _geoms(_FINGERS, (0.3, 0.3, 0.3)), _geoms(thing.parts, thing.rgb)
    at = T_TOOL_THING if not empty else pose(None, (0.0, 0.0, -50.0))
    xml = _stage_xml(f'<body name="carrier">{hand}<body name="thing">{geoms}</body></body>')
    with Stage(xml, rng) as stage:
        stage.put("thing", at)
        for k in range(views):
            turn = rotation_from_rotvec(np.array([*rng.uniform(-0.9, 0.9, 2), 0.0]))
            R = turn @ rot_x(np.pi) @ rot_z(2 * np.pi * (0.618034 * k % 1.0))
            T = pose(R, R @ np.array([0.0, 0.0, -0.19]) + [0.0, 0.0, 0.33])
            stage.put("carrier", T)
            picture, depth, mask = stage.shoot(T_TABLE_CAMERA)
            yield Shot(picture, depth, mask, T)


class Stage:
    """Renders; places bodies by name, and a camera."""

    def __init__(self, xml: str, rng: np.random.Generator) -> None:
        self._model = mujoco.MjSpec.from_string(xml).compile()
        self._data, self._rng = mujoco.MjData(self._model), rng
        eye = self._model.camera("eye").id
        self._model.cam_fovy[eye] = np.rad2deg(2 * np.arctan(SIZE[1] / 2 / FOCAL_PX))
        self._renderer = Renderer(self._model, "plain")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._renderer.close()

    def put(self, body: str, T: np.ndarray) -> None:
        at = self._model.body(body).id
        self._model.body_pos[at] = T[:3, 3]
        mujoco.mju_mat2Quat(self._model.body_quat[at], np.ascontiguousarray(T[:3, :3]).ravel())

    def shoot(self, T: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        model, view = self._model, View("eye", *SIZE)
        eye = model.camera("eye").id
        model.cam_pos[eye] = T[:3, 3]
        turned = np.ascontiguousarray(T[:3, :3] @ np.diag([1.0, -1.0, -1.0]))
        mujoco.mju_mat2Quat(model.cam_quat[eye], turned.ravel())
        mujoco.mj_forward(model, self._data)
        depth = self._renderer.depth(self._data, view)
        noisy = depth + self._rng.normal(0, NOISE_M, depth.shape)
        owner = self._renderer.segmentation(self._data, view)
        ours = [
            g for g in range(model.ngeom) if model.body(int(model.geom_bodyid[g])).name == "thing"
        ]
        depth = np.where(np.isfinite(depth), noisy, 0).astype(np.float32)
        return self._renderer.image(self._data, view), depth, np.isin(owner, ours).astype(np.uint16)


def _geoms(parts, rgb) -> str:
    colour = " ".join(map(str, rgb))
    return "".join(
        f'<geom type="{kind}" size="{" ".join(map(repr, size))}"'
        f' pos="{" ".join(map(repr, at))}" rgba="{colour} 1"/>'
        for kind, size, at in parts
    )


def _stage_xml(bodies: str) -> str:
    return f"""<mujoco><compiler angle="radian"/><statistic center="0 0 0" extent="1"/>
  <visual><map znear=".02" zfar="5"/><headlight ambient=".5 .5 .5" diffuse=".4 .4 .4"/>
    <global offwidth="640" offheight="480"/><quality offsamples="0"/></visual>
  <asset><texture name="t" type="2d" builtin="checker" rgb1=".6 .5 .4" rgb2=".5 .42 .34"
    width="64" height="64"/><material name="t" texture="t" texrepeat="20 20"/></asset>
  <worldbody><geom type="box" size=".6 .5 .02" pos="0 0 -.025" material="t"/>
    <geom type="box" size=".02 1 1" pos="-.7 0 .5" material="t"/>{bodies}
    <camera name="eye" pos="0 0 1"/></worldbody></mujoco>"""
