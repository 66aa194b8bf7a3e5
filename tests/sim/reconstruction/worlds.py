"""Makes captures of tables that are known: drawn worlds, rendered with depth and noise.

Everything (shapes, sizes, places, colours, camera poses) follows from a seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import mujoco
import numpy as np

from robolearn.calibration.fiducials import dictionary
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
from robolearn.geometry import pose, quat_from_rotation, rot_z, rotation_from_rotvec
from sim.rendering.renderer import Renderer, View
from sim.scene.load import load_scene
from tests.robolearn.capture.foreign import looking

KINDS = ("box", "cylinder", "concave")


@dataclass(frozen=True)
class Thing:
    """An object: ``parts`` of (type, half sizes, centre) in its own upright frame, whose origin is
    on the table below its middle.
    """

    name: str
    kind: str
    parts: tuple[tuple[str, tuple[float, ...], tuple[float, float, float]], ...]
    xy_yaw: tuple[float, float, float]
    rgb: tuple[float, float, float]
    mass_kg: float

    @property
    def T(self) -> np.ndarray:  # noqa: N802
        return pose(rot_z(self.xy_yaw[2]), (self.xy_yaw[0], self.xy_yaw[1], 0.0))

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Signed distance of points [n, 3] of the table's frame from its surface [m]."""
        local = (points - self.T[:3, 3]) @ self.T[:3, :3]
        every = []
        for kind, size, centre in self.parts:
            p = local - np.array(centre)
            if kind == "box":
                q = np.abs(p) - np.array(size)
            else:
                q = np.column_stack(
                    [np.hypot(p[:, 0], p[:, 1]) - size[0], np.abs(p[:, 2]) - size[1]]
                )
            every.append(np.linalg.norm(np.maximum(q, 0), axis=1) + np.minimum(q.max(axis=1), 0.0))
        return np.min(every, axis=0)

    def surface(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Points [n, 3] of the table's frame on what can be seen of the surface: the underside is
        left out.
        """
        low = np.min([np.array(at) - _reach(k, s) for k, s, at in self.parts], axis=0) - 0.01
        high = np.max([np.array(at) + _reach(k, s) for k, s, at in self.parts], axis=0) + 0.01
        local = rng.uniform(low, high, (40 * count, 3))
        points = local @ self.T[:3, :3].T + self.T[:3, 3]
        # Newton's steps along the gradient of the distance, which is 1 outside of it.
        for _ in range(4):
            d = self.distance(points)
            gradient = np.stack(
                [self.distance(points + h) - self.distance(points - h) for h in 1e-5 * np.eye(3)],
                axis=1,
            )
            points = points - d[:, None] * gradient / 2e-5
        on = (np.abs(self.distance(points)) < 1e-4) & (points[:, 2] > 0.002)
        return points[on][:count]

    @property
    def volume(self) -> float:
        sizes = [
            8 * np.prod(s) if k == "box" else 2 * np.pi * s[0] ** 2 * s[1] for k, s, _ in self.parts
        ]
        return float(np.sum(sizes))


def _reach(kind: str, size: tuple[float, ...]) -> np.ndarray:
    return np.array(size if kind == "box" else (size[0], size[0], size[1]))


@dataclass(frozen=True)
class World:
    """Things on a table at z = 0."""

    things: tuple[Thing, ...]
    seed: int

    def xml(self) -> str:
        bodies = ""
        for t in self.things:
            x, y, yaw = t.xy_yaw
            geoms = "".join(
                f'<geom type="{kind}" size="{" ".join(map(repr, size))}"'
                f' pos="{" ".join(map(repr, at))}" rgba="{" ".join(map(str, t.rgb))} 1"/>'
                for kind, size, at in t.parts
            )
            bodies += f'<body name="{t.name}" pos="{x} {y} 0" euler="0 0 {yaw}">{geoms}</body>'
        return f"""<mujoco><compiler angle="radian"/>
  <statistic center="0 0 0" extent="1"/>
  <visual><map znear=".02" zfar="5"/><headlight ambient=".5 .5 .5" diffuse=".4 .4 .4"/>
    <global offwidth="640" offheight="480"/><quality offsamples="0"/></visual>
  <asset><texture name="t" type="2d" builtin="checker" rgb1=".6 .5 .4" rgb2=".5 .42 .34"
    width="64" height="64"/><material name="t" texture="t" texrepeat="20 20"/></asset>
  <worldbody><geom type="box" size=".6 .5 .02" pos="0 0 -.02" material="t"/>{bodies}
    <camera name="eye" pos="0 0 1"/></worldbody></mujoco>"""


def draw(seed: int, kinds: tuple[str, ...] = KINDS) -> World:
    """Things of these kinds, apart from each other."""
    rng = np.random.default_rng(seed)
    things: list[Thing] = []
    turn = rng.uniform(0, 2 * np.pi)
    for k, kind in enumerate(kinds):
        around = turn + 2 * np.pi * k / len(kinds) + rng.uniform(-0.2, 0.2)
        far = rng.uniform(0.10, 0.14) if len(kinds) > 1 else 0.03
        parts = _parts(kind, rng)
        at = (far * np.cos(around), far * np.sin(around), rng.uniform(-np.pi, np.pi))
        rgb = tuple(float(v) for v in rng.uniform(0.15, 0.9, 3).round(2))
        things.append(Thing(f"{kind}_{k}", kind, parts, at, rgb, float(rng.uniform(0.05, 0.5))))
    return World(tuple(things), seed)


def _parts(kind: str, rng: np.random.Generator):
    if kind == "box":
        a, b, c = (float(v) for v in rng.uniform(0.018, 0.035, 3))
        return (("box", (a, b * 1.3, c), (0.0, 0.0, c)),)
    if kind == "cylinder":
        r, h = float(rng.uniform(0.02, 0.035)), float(rng.uniform(0.02, 0.05))
        return (("cylinder", (r, h), (0.0, 0.0, h)),)
    # A channel: a floor and two walls, one higher than the other.
    a, b, w = float(rng.uniform(0.03, 0.04)), float(rng.uniform(0.035, 0.05)), 0.008
    low, high = float(rng.uniform(0.015, 0.02)), float(rng.uniform(0.025, 0.035))
    return (
        ("box", (a, b, w), (0.0, 0.0, w)),
        ("box", (w, b, low), (w - a, 0.0, 2 * w + low)),
        ("box", (w, b, high), (a - w, 0.0, 2 * w + high)),
    )


def camera_poses(count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Around the table at two heights, looking at its middle or near."""
    out = []
    for k in range(count):
        around = 2 * np.pi * (k * 0.618034 % 1.0)
        up = np.deg2rad((28.0, 50.0, 68.0)[k % 3])
        far = rng.uniform(0.42, 0.52)
        at = rng.uniform(-0.02, 0.02, 3) + np.array([0, 0, 0.02])
        eye = far * np.array([np.cos(up) * np.cos(around), np.cos(up) * np.sin(around), np.sin(up)])
        out.append(looking(tuple(eye), tuple(at)))
    return out


# Where the arm stands, where its camera sits, and where the board lies.
T_TABLE_BASE = pose(rot_z(0.4), (-0.5, 0.1, -0.03))
T_TOOL_CAMERA = pose(rot_z(-1.1), (0.05, 0.02, 0.03))
T_TABLE_BOARD = pose(rot_z(0.3), (-0.12, -0.09, 0.0))


def matrix_rows(T: np.ndarray):
    return tuple(tuple(float(v) for v in row) for row in T)


def _board() -> CaptureBoard:
    return CaptureBoard("charuco", (7, 5), 0.03, 0.022, T_table_board=matrix_rows(T_TABLE_BOARD))


def with_board(
    picture: np.ndarray,
    depth: np.ndarray,
    K: np.ndarray,
    T_table_camera: np.ndarray,
    T_table_board: np.ndarray = T_TABLE_BOARD,
) -> np.ndarray:
    """The picture with the board printed on the table, where the table is seen."""
    dots = 20
    made = cv2.aruco.CharucoBoard((7, 5), 0.03, 0.022, dictionary("4x4_50"))
    drawn = made.generateImage((7 * dots, 5 * dots))
    # From dots (v down from the upper edge) to the board's frame (y up from the lower one).
    per = 0.03 / dots
    to_board = np.array([[per, 0, per / 2], [0, -per, 5 * 0.03 - per / 2], [0, 0, 1.0]])
    T = np.linalg.inv(T_table_camera) @ T_table_board
    H = K @ T[:3, [0, 1, 3]] @ to_board
    size = (picture.shape[1], picture.shape[0])
    # Four times finer, then averaged: no steps at edges.
    fine = np.diag([4.0, 4.0, 1.0]) @ H
    fine = np.array([[1, 0, 1.5], [0, 1, 1.5], [0, 0, 1.0]]) @ fine
    large = (4 * size[0], 4 * size[1])
    ink = cv2.resize(cv2.warpPerspective(drawn, fine, large), size, interpolation=cv2.INTER_AREA)
    on = np.full_like(drawn, 255)
    on = cv2.resize(cv2.warpPerspective(on, fine, large), size, interpolation=cv2.INTER_AREA)
    row, column = np.indices(depth.shape)
    rays = np.stack([(column - K[0, 2]) / K[0, 0], (row - K[1, 2]) / K[1, 1]], axis=-1)
    height = depth * (rays @ T_table_camera[2, :2] + T_table_camera[2, 2]) + T_table_camera[2, 3]
    share = (on / 255.0 * (np.abs(height) < 0.004))[..., None]
    return np.rint(picture * (1 - share) + ink[..., None] * share).astype(np.uint8)


def with_arm(spec: mujoco.MjSpec) -> None:
    """Put the arm of ``ur5e_table`` beside the table, at ``T_TABLE_BASE``."""
    arm = mujoco.MjSpec.from_file(str(load_scene("ur5e_table").path / "scene.xml"))
    frame = spec.worldbody.add_frame(pos=T_TABLE_BASE[:3, 3])
    frame.quat = quat_from_rotation(T_TABLE_BASE[:3, :3])
    base = arm.body("base")
    base.pos, base.quat = np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0])
    frame.attach_body(base, "", "")


def shoot(
    folder: Path,
    world: World,
    *,
    name: str = "drawn",
    joints: np.ndarray | None = None,
    views: int = 12,
    size: tuple[int, int] = (160, 120),
    noise_m: float = 0.0,
    pose_px: float = 0.0,
    poses: str = "world",
    masks: bool = False,
    hand: Mapping[str, float] | None = None,
) -> Path:
    """Render the world into a capture folder: depth with noise, poses off by ``pose_px``.

    ``poses``: ``world`` (of the cameras), ``board`` (none: a board lies on the table), ``flange``
    (of an arm's tool that carries the camera, nobody knows where; the board lies there, too).
    With ``masks`` every pixel's object is told, and at_m is not. ``joints [views, 6]``: an arm
    stands beside the table, at these when the pictures are taken, one a second (robot.csv); of its
    ``hand``'s joints [m], by name, nothing is recorded.
    """
    rng = np.random.default_rng([world.seed, 7])
    width, height = size
    focal = 0.95 * width
    lens = CaptureLens((focal, focal), ((width - 1) / 2, (height - 1) / 2))
    config = CaptureConfig(
        schema=1,
        name=name,
        cameras={
            "eye": CaptureCamera(
                "flange" if poses == "flange" else "hand",
                size,
                lens,
                depth=CaptureDepth(0.0001, noise_m or 0.001),
            )
        },
        sets=(CaptureSet("scan", "eye", "scan"),),
        objects=tuple(
            CaptureObject(t.name, t.mass_kg, "drawn", None if masks else (t.xy_yaw[0], t.xy_yaw[1]))
            for t in world.things
        ),
        board=None if poses == "world" else _board(),
        arm=CaptureArm("", matrix_rows(T_TABLE_BASE))
        if poses == "flange" or joints is not None
        else None,
        workspace=CaptureWorkspace((-0.22, -0.22, 0.0), (0.22, 0.22, 0.16)),
    )
    writer = CaptureWriter(folder, config)
    spec = mujoco.MjSpec.from_string(world.xml())
    if joints is not None:
        with_arm(spec)
        stood = np.add.outer(np.arange(float(views)), (-0.1, 0.1)).ravel()
        writer.add_record(stood, np.repeat(joints, 2, axis=0))
    model = spec.compile()
    eye = model.camera("eye").id
    model.cam_fovy[eye] = np.rad2deg(2 * np.arctan(height / 2 / focal))
    data = mujoco.MjData(model)
    renderer = Renderer(model, "plain")
    view = View("eye", width, height)
    for k, T in enumerate(camera_poses(views, rng)):
        if joints is not None:
            data.qpos[: joints.shape[1]] = joints[k]
        for joint, value in (hand or {}).items():
            data.qpos[model.joint(joint).qposadr[0]] = value
        turned = T[:3, :3] @ np.diag([1.0, -1.0, -1.0])
        model.cam_pos[eye] = T[:3, 3]
        mujoco.mju_mat2Quat(model.cam_quat[eye], np.ascontiguousarray(turned).ravel())
        mujoco.mj_forward(model, data)
        picture, depth = renderer.image(data, view), renderer.depth(data, view)
        depth = np.where(np.isfinite(depth), depth + rng.normal(0, noise_m or 1e-9, depth.shape), 0)
        off = np.eye(4)
        off[:3, :3] = rotation_from_rotvec(rng.normal(0, pose_px / focal, 3))
        off[:3, 3] = rng.normal(0, pose_px / focal * 0.5, 3)
        given: dict[str, Any] = {"T_world_camera": T @ off} if poses == "world" else {}
        if poses != "world":
            K = np.array([[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1]])
            picture = with_board(picture, depth, K, T)
        if poses == "flange":
            given = {"T_base_tool": np.linalg.inv(T_TABLE_BASE) @ T @ np.linalg.inv(T_TOOL_CAMERA)}
        if joints is not None:
            given["t_s"] = float(k)
        mask = None
        if masks:
            bodies = np.array([*model.geom_bodyid, 0])[renderer.segmentation(data, view)]
            # Bodies follow the world's, in the order of the things.
            mask = bodies.astype(np.uint16)
        writer.add("scan", picture, depth.astype(np.float32), mask=mask, **given)
    renderer.close()
    return folder
