"""Checks what needs the world itself of a scene package: starts, cameras, a second of rest.

``robolearn scene check`` runs them; what needs no world is checked whenever a scene is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from robolearn.agents.actions import hold_action
from robolearn.errors import DataError, SceneError
from robolearn.geometry import Vector, VectorRows
from robolearn.types import Command, Condition
from sim.env.scene_env import SceneEnv
from sim.rendering.cameras import camera_pose, intrinsics
from sim.rendering.renderer import View, is_orthographic
from sim.scene.config import CameraConfig, Scene

# Things may lie this deep in each other at the nominal start [m]: soft contacts rest deeper than
# hard ones.
_OVERLAP_M = 0.004
# Starts that are drawn and placed.
_STARTS = 20
# A second of holding still may move the tool this far [m].
_DRIFT_M = 0.02
_DRAWN_GROUPS = np.array([1, 1, 1, 0, 0, 0], dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class CameraReport:
    """A camera: its picture [px], field of view [deg] (or height [m], orthographic), its place
    [m], what carries it, and the things of the task that it sees at start 0.
    """

    name: str
    width: int
    height: int
    view: str
    position: tuple[float, float, float]
    body: str
    sees: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SceneReport:
    """What was verified. ``moving_kg`` by body that can move, ``joints`` with range and servo."""

    scene: str
    path: str
    content_hash: str
    schema: int
    engine: str
    robot: str
    task: str
    provenance: str
    rate_hz: float
    signals: tuple[str, ...]
    actions: tuple[str, ...]
    joints: tuple[str, ...]
    moving_kg: dict[str, float]
    cameras: tuple[CameraReport, ...]
    starts: int


def check_scene(scene: Scene) -> SceneReport:
    """Run every check; :class:`SceneError` names the object at fault and what to do."""
    env = SceneEnv(scene, cameras=())
    try:
        _check_start(env)
        for seed in range(_STARTS):
            _place(env, seed)
        _check_rest(env)
        _place(env, 0)
        cameras = tuple(_check_camera(env, c) for c in scene.config.cameras)
        return _report(env, cameras)
    finally:
        env.close()


def _check_start(env: SceneEnv) -> None:
    """The nominal start is reachable and free of collisions."""
    where = f"{env.scene.path}"
    try:
        env.reset(Condition("nominal", 0, {}), np.random.default_rng(0))
    except DataError as error:
        raise SceneError(f"{where}: the nominal start cannot be reached: {error}") from error
    # Where a condition places an object, its place in scene.xml does not matter.
    placed = {
        env.model.body(s.of[0]).id
        for s in env.scene.config.signals
        if s.name in env.scene.config.reset.settable and s.kind in ("body_pose", "body_pose_xy")
    }
    contact = env.data.contact
    for k in range(env.data.ncon):
        bodies = {int(env.model.geom_bodyid[g]) for g in contact.geom[k]}
        if contact.dist[k] < -_OVERLAP_M and not bodies & placed:
            a, b = (_owner(env.model, int(g)) for g in contact.geom[k])
            raise SceneError(
                f"{where}: at the nominal start {a} is {-contact.dist[k] * 1e3:.1f} mm deep in {b};"
                " move one of them, or change the arm's home"
            )


def _place(env: SceneEnv, seed: int) -> None:
    condition = env.sample_condition(seed)
    try:
        env.reset(condition, np.random.default_rng(seed))
    except DataError as error:
        raise SceneError(
            f"{env.scene.path}/scene.yaml: the reset distribution draws a start that cannot be"
            f" reached (seed {seed}): {error}"
        ) from error
    verdict = env.outcome()
    if verdict.terminal and not verdict.success:
        raise SceneError(
            f"{env.scene.path}/scene.yaml: the reset distribution draws a start that is over before"
            f" it begins (seed {seed}): {verdict.reason}; look at the areas of task.params"
        )


def _check_rest(env: SceneEnv) -> None:
    """Holding still for a second keeps the physics sane and the tools where they are."""
    config = env.scene.config
    tools = [s.name for s in config.signals if s.kind in ("site_pose", "site_xy")]
    before = env.observe()
    action = hold_action(env.spec.actions, before)
    for seq in range(round(config.rate_hz)):
        env.apply(Command(seq, action, env.now_ns(), "check"))
        env.advance()
        if env.outcome().reason == "physics_diverged":
            raise SceneError(
                f"{env.scene.path}: the physics diverges within a second of holding still; look at"
                " masses, contacts and the timestep"
            )
    after = env.observe()
    for name in tools:
        moved = float(np.linalg.norm(after.value(name)[:3] - before.value(name)[:3]))
        if moved > _DRIFT_M:
            raise SceneError(
                f"{env.scene.path}: {name} drifts {moved * 1e3:.0f} mm within a second of holding"
                " still; look at the servos' gains and at gravity compensation"
            )


def _check_camera(env: SceneEnv, camera: CameraConfig) -> CameraReport:
    model, data, at = env.model, env.data, f"{env.scene.path}/scene.yaml: camera {camera.name}"
    mujoco.mj_forward(model, data)
    position = data.cam_xpos[model.camera(camera.name).id].copy()
    owner = _inside(model, data, position)
    if owner:
        raise SceneError(f"{at} is inside {owner}; move it out")
    things = _things(env)
    view = View(camera.name, camera.width, camera.height)
    pixels = project(model, data, view, np.array(list(things.values())).reshape(-1, 3))
    size = np.array([camera.width, camera.height])
    visible = (
        (pixels[:, 2] > 0) & (pixels[:, :2] >= 0).all(axis=1) & (pixels[:, :2] < size).all(axis=1)
    )
    sees = tuple(name for name, ok in zip(things, visible.tolist(), strict=True) if ok)
    if things and not sees:
        raise SceneError(
            f"{at} at {np.round(position, 3).tolist()} m sees nothing of the workspace"
            f" ({sorted(things)}); turn it"
        )
    fovy = float(model.cam_fovy[model.camera(camera.name).id])
    flat = is_orthographic(model, camera.name)
    body = model.body(int(model.cam_bodyid[model.camera(camera.name).id])).name
    x, y, z = (float(v) for v in position)
    text = f"{fovy:g} m high, orthographic" if flat else f"{fovy:g} deg high"
    return CameraReport(camera.name, camera.width, camera.height, text, (x, y, z), body, sees)


def project(
    model: mujoco.MjModel, data: mujoco.MjData, view: View, points: VectorRows
) -> VectorRows:
    """Pixels ``[n, 2]`` and depth [m] of world points ``[n, 3]`` as ``[n, 3]``."""
    T = np.linalg.inv(camera_pose(model, data, view.camera))
    local = points @ T[:3, :3].T + T[:3, 3]
    K, depth = intrinsics(model, view), local[:, 2]
    flat = is_orthographic(model, view.camera)
    rays = np.column_stack([local[:, :2], np.ones(len(local))])
    if not flat:
        rays[:, :2] /= np.where(np.abs(depth) > 1e-9, depth, 1e-9)[:, None]
    return np.column_stack([(rays @ K.T)[:, :2], depth])


def _things(env: SceneEnv) -> dict[str, Vector]:
    """World positions of what the signals place in space, and of the frames."""
    data, config = env.data, env.scene.config
    out: dict[str, Vector] = {}
    for signal in config.signals:
        if signal.kind in ("site_pose", "site_xy"):
            out[signal.name] = data.site(signal.of[0]).xpos.copy()
        elif signal.kind in ("body_pose", "body_pose_xy"):
            out[signal.name] = data.body(signal.of[0]).xpos.copy()
    return out or {name: data.site(site).xpos.copy() for name, site in config.frames.items()}


def _inside(model: mujoco.MjModel, data: mujoco.MjData, point: Vector) -> str:
    """Name of a drawn geom around a point: rays to all sides end at its surface."""
    directions = np.array([*np.eye(3), *-np.eye(3), [0.58, 0.57, 0.58], [-0.58, -0.57, -0.58]])
    hit = np.full(1, -1, dtype=np.int32)
    geoms: set[int] = set()
    for direction in directions:
        mujoco.mj_ray(model, data, point, direction, _DRAWN_GROUPS, 1, -1, hit)
        geoms.add(int(hit[0]))
    found = geoms.pop()
    planes = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD)
    if geoms or found < 0 or model.geom_type[found] in [int(p) for p in planes]:
        return ""
    return _owner(model, found)


def _owner(model: mujoco.MjModel, geom: int) -> str:
    name, body = model.geom(geom).name, model.body(int(model.geom_bodyid[geom])).name
    return f"geom '{name}' of body '{body}'" if name else f"a geom of body '{body}'"


def _report(env: SceneEnv, cameras: tuple[CameraReport, ...]) -> SceneReport:
    config, model = env.scene.config, env.model
    servos = {int(model.actuator_trnid[a, 0]): a for a in range(model.nu)}
    joints: list[str] = []
    for j in range(model.njnt):
        name = model.joint(j).name or f"number {j}"
        kind = mujoco.mjtJoint(int(model.jnt_type[j])).name.removeprefix("mjJNT_").lower()
        low, high = (float(v) for v in model.jnt_range[j])
        text = f"{name} {kind}" + (f" {low:.4g} to {high:.4g}" if model.jnt_limited[j] else "")
        if j in servos:
            text += f", servo {float(model.actuator_gainprm[servos[j], 0]):g}"
        joints.append(text)
    return SceneReport(
        scene=env.scene.name,
        path=str(env.scene.path),
        content_hash=env.scene.content_hash,
        schema=config.schema,
        engine=env.engine,
        robot=config.robot.name,
        task=config.task.name,
        provenance=config.provenance.kind,
        rate_hz=config.rate_hz,
        signals=tuple(s.name for s in config.signals),
        actions=tuple(a.name for a in config.actions),
        joints=tuple(joints),
        moving_kg={
            model.body(b).name or f"number {b}": float(model.body_mass[b])
            for b in range(1, model.nbody)
            if model.body_weldid[b] != 0 and model.body_mass[b] > 0.0
        },
        cameras=cameras,
        starts=_STARTS,
    )
