"""Applies what a person wrote into ``overrides`` of ``scene.yaml``: pose, mass, friction of things.

The MJCF stays as it was made; what stands here comes on top whenever the scene is loaded, and is
said in ``provenance.details.by_hand`` with the numbers before.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

from robolearn.arms.tool_commands import pose_from_values
from robolearn.errors import SceneError, did_you_mean
from robolearn.geometry import Pose, pose, quat_from_rotation
from sim.scene.config import Override, Scene, SceneConfig, names_of, require_name, world_pose


def overridden(scene: Scene, model: mujoco.MjModel) -> Scene:
    """The scene with its overrides in force; ``model`` is what the MJCF alone makes.

    SceneError names the body, and what there is.
    """
    config = scene.config
    if not config.overrides:
        return scene
    where = f"{scene.path}/scene.yaml: overrides"
    T_world_table = world_pose(model, _table(config, model, where))
    bodies = names_of(model, mujoco.mjtObj.mjOBJ_BODY)
    by_hand: dict[str, dict[str, Any]] = {}
    for name, override in config.overrides.items():
        if name not in bodies or name == "world":
            raise SceneError(
                f"{where}: scene.xml has no body '{name}'.{did_you_mean(name, bodies)} It has:"
                f" {[b for b in bodies if b != 'world']}"
            )
        _check(override, model, name, f"{where}.{name}")
        by_hand[name] = _before(override, model, name, T_world_table)

    def edit(spec: mujoco.MjSpec) -> None:
        for name, override in config.overrides.items():
            _apply(spec, model, name, override, T_world_table)

    details = {**config.provenance.details, "by_hand": by_hand}
    provenance = dataclasses.replace(config.provenance, details=details)
    task = dataclasses.replace(config.task, params=_shifted(config, by_hand))
    config = dataclasses.replace(config, provenance=provenance, task=task)
    return dataclasses.replace(scene, config=config, edits=(*scene.edits, edit))


def by_hand_sentences(details: Mapping[str, Any]) -> list[str]:
    """What a person changed, a sentence per thing."""
    return [
        f"{name} was changed by hand: "
        + ", ".join(f"{key} from {old} to {new}" for key, (old, new) in changes.items())
        for name, changes in details.get("by_hand", {}).items()
    ]


def _table(config: SceneConfig, model: mujoco.MjModel, where: str) -> str:
    if "table" not in config.frames:
        raise SceneError(f"{where} need a frame 'table'; this scene has {sorted(config.frames)}")
    require_name(model, mujoco.mjtObj.mjOBJ_SITE, config.frames["table"], f"{where}: frames.table")
    return config.frames["table"]


def _check(override: Override, model: mujoco.MjModel, name: str, where: str) -> None:
    body = model.body(name)
    if override.mass_kg is not None and not 0 < override.mass_kg < math.inf:
        raise SceneError(f"{where}: mass_kg is above 0 kg, got {override.mass_kg}")
    if override.mass_kg is not None and not float(model.body_mass[body.id]) > 0:
        raise SceneError(f"{where}: mass_kg: '{name}' has no mass that could be another")
    if override.friction is not None and not 0 <= override.friction < math.inf:
        raise SceneError(f"{where}: friction is not negative, got {override.friction}")
    if override.friction is not None and not len(_colliding(model, body.id)):
        raise SceneError(f"{where}: friction: '{name}' touches nothing")
    if override.pose is not None:
        if int(model.body_parentid[body.id]) != 0:
            raise SceneError(f"{where}: pose: '{name}' hangs on another body; move that one")
        values = np.array(override.pose, dtype=np.float64)
        if len(values) != 7 or abs(float(np.linalg.norm(values[3:])) - 1.0) > 0.01:
            raise SceneError(
                f"{where}: pose is x y z [m] and a unit quaternion w x y z in the table's frame,"
                f" got {list(override.pose)}"
            )


def _before(
    override: Override, model: mujoco.MjModel, name: str, T_world_table: Pose
) -> dict[str, Any]:
    """By key: the number before, and now."""
    body, out = model.body(name).id, dict[str, Any]()
    if override.mass_kg is not None:
        out["mass_kg"] = [round(float(model.body_mass[body]), 6), override.mass_kg]
    if override.friction is not None:
        old = float(model.geom_friction[_colliding(model, body)[0], 0])
        out["friction"] = [round(old, 6), override.friction]
    if override.pose is not None:
        T = np.linalg.inv(T_world_table) @ _body_pose(model, body)
        values = [*T[:3, 3], *quat_from_rotation(T[:3, :3])]
        out["pose"] = [[round(float(v), 6) for v in values], list(override.pose)]
    return out


def _apply(
    spec: mujoco.MjSpec, model: mujoco.MjModel, name: str, override: Override, T_table: Pose
) -> None:
    body, number = spec.body(name), model.body(name).id
    if override.pose is not None:
        T = T_table @ pose_from_values(np.array(override.pose, dtype=np.float64), "pose")
        body.pos, body.quat = T[:3, 3], quat_from_rotation(T[:3, :3])
        body.alt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT
    if override.mass_kg is not None:
        ratio = override.mass_kg / float(model.body_mass[number])
        body.mass, body.inertia = override.mass_kg, ratio * model.body_inertia[number]
        body.ipos, body.iquat = model.body_ipos[number], model.body_iquat[number]
        body.ialt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT
        body.fullinertia = np.full(6, np.nan)
        body.explicitinertial = True
    if override.friction is not None:
        for geom in body.geoms:
            geom.friction = [override.friction, *geom.friction[1:]]
            # Of two surfaces the rougher one counts, but for one that says more.
            geom.priority = 1


def _colliding(model: mujoco.MjModel, body: int) -> list[int]:
    first, count = int(model.body_geomadr[body]), int(model.body_geomnum[body])
    return [
        g
        for g in range(first, first + count)
        if int(model.geom_contype[g]) or int(model.geom_conaffinity[g])
    ]


def _body_pose(model: mujoco.MjModel, body: int) -> Pose:
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    return pose(data.xmat[body].reshape(3, 3), data.xpos[body])


def _shifted(config: SceneConfig, by_hand: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Starts that are drawn around where things were found move along with these."""
    params, uniform = dict(config.task.params), config.task.params.get("uniform")
    if not isinstance(uniform, dict):
        return params
    shifted = dict(uniform)
    for name, changes in by_hand.items():
        signal = f"{name}/pose"
        if "pose" not in changes or signal not in uniform:
            continue
        old, new = changes["pose"]
        shift = np.zeros(len(uniform[signal]["low"]))
        shift[:3] = (np.array(new) - np.array(old))[:3]
        shifted[signal] = {
            end: [float(v) for v in np.array(uniform[signal][end]) + shift]
            for end in ("low", "high")
        }
    return {**params, "uniform": shifted}
