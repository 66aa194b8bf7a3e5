"""Perturbs a compiled model before every episode; whoever calls restores it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from robolearn.errors import ConfigError
from robolearn.geometry import XY
from sim.scene.config import Scene, SignalConfig, require_name

# Of every object as many as it has.
AnyIndices = Int[NDArray[np.intp], "_"]


# Names of what the perturbation ``distractors`` adds begin so.
DISTRACTOR = "distractor_"
BODY_KINDS = ("body_pose_xy", "body_pose")
# Where all contacts are frictionless, this is the friction that magnitude 1 may add.
ADDED_FRICTION = 0.3
SHIFT_M, TURN_RAD, ZOOM = 0.02, float(np.radians(3.0)), 0.05


def mass(model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator) -> None:
    """Mass and inertia of each object times ``2 ** (magnitude * u)``, u uniform in [-1, 1]."""
    groups = object_bodies(model, scene)
    if not groups:
        raise ConfigError(f"{scene.name}: 'mass' finds no object; reset.settable names none")
    for bodies in groups.values():
        factor = _factor(magnitude, rng)
        model.body_mass[bodies] *= factor
        model.body_inertia[bodies] *= factor


def friction(
    model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator
) -> None:
    """Every sliding friction coefficient times the same ``2 ** (magnitude * u)``.

    Contacts and pairs; where the scene has none (all contacts frictionless), its contacts get
    ``0.3 * magnitude * |u|`` instead.
    """
    u = float(rng.uniform(-1.0, 1.0))
    colliding = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    rough = colliding & (model.geom_condim > 1)
    pairs = model.pair_dim > 1
    if not rough.any() and not pairs.any():
        if not colliding.any():
            raise ConfigError(f"{scene.name}: 'friction' finds nothing that collides")
        model.geom_condim[colliding] = 3
        model.geom_friction[colliding, 0] = ADDED_FRICTION * magnitude * abs(u)
        return
    model.geom_friction[colliding, 0] *= 2.0 ** (magnitude * u)
    model.pair_friction[pairs, :2] *= 2.0 ** (magnitude * u)


def lighting(
    model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator
) -> None:
    """Brightness of each light (the headlight too) times ``2 ** (magnitude * u)``, and a tint of
    up to a quarter per channel.
    """
    del scene
    headlight = model.vis.headlight
    lights = [(headlight.ambient, headlight.diffuse, headlight.specular)]
    lights += [
        (model.light_ambient[i], model.light_diffuse[i], model.light_specular[i])
        for i in range(model.nlight)
    ]
    for light in lights:
        tint = 1.0 + 0.25 * magnitude * rng.uniform(-1.0, 1.0, 3)
        factor = _factor(magnitude, rng) * np.maximum(tint, 0.0)
        for part in light:
            part[:] = np.clip(part * factor, 0.0, 4.0)


def colours(
    model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator
) -> None:
    """Every colour of a geom or material is shifted by up to 0.25 per channel; what is
    transparent stays so.
    """
    del scene
    for table in (model.geom_rgba, model.mat_rgba):
        shift = 0.25 * magnitude * rng.uniform(-1.0, 1.0, (len(table), 3))
        table[:, :3] = np.clip(table[:, :3] + shift, 0.0, 1.0)


def camera_pose(
    model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator
) -> None:
    """Each camera moves by up to 20 mm per axis, turns by up to 3 degrees about a random axis and
    zooms by up to 5 %. Calibrations that the env reports stay nominal.
    """
    if not model.ncam:
        raise ConfigError(f"{scene.name}: 'camera_pose' finds no camera")
    for i in range(model.ncam):
        model.cam_pos[i] += SHIFT_M * magnitude * rng.uniform(-1.0, 1.0, 3)
        axis = rng.normal(size=3)
        axis /= np.linalg.norm(axis)
        turn, turned = np.zeros(4), np.zeros(4)
        mujoco.mju_axisAngle2Quat(turn, axis, TURN_RAD * magnitude * float(rng.uniform(-1, 1)))
        mujoco.mju_mulQuat(turned, model.cam_quat[i], turn)
        model.cam_quat[i] = turned
        model.cam_fovy[i] *= 1.0 + ZOOM * magnitude * float(rng.uniform(-1.0, 1.0))


def place_distractors(
    model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator
) -> None:
    """Scatter the distractors around the middle of the objects' plane, and colour them anew."""
    del magnitude
    middle, height = _plane(model, scene)
    bodies = [i for i in range(model.nbody) if _name(model, i).startswith(DISTRACTOR)]
    for body in bodies:
        geom = int(model.body_geomadr[body])
        angle, radius = rng.uniform(-np.pi, np.pi), rng.uniform(0.08, 0.22)
        xy = middle + radius * np.array([np.cos(angle), np.sin(angle)])
        model.body_pos[body] = [*xy, height + model.geom_size[geom, 2]]
        model.geom_rgba[geom, :3] = rng.uniform(0.05, 0.95, 3)


def object_bodies(model: mujoco.MjModel, scene: Scene) -> dict[str, AnyIndices]:
    """The bodies of each object: by signal, the body it reads and all that hang on it."""
    found: dict[str, NDArray[np.intp]] = {}
    for signal in object_signals(scene):
        root = require_name(model, mujoco.mjtObj.mjOBJ_BODY, signal.of[0], f"signal {signal.name}")
        inside = [i for i in range(model.nbody) if root in _ancestors(model, i)]
        found[signal.name] = np.array(inside, dtype=np.intp)
    return found


def object_signals(scene: Scene) -> list[SignalConfig]:
    """The signals that are poses of objects which an episode's start may place."""
    settable = scene.config.reset.settable
    return [s for s in scene.config.signals if s.kind in BODY_KINDS and s.name in settable]


def _plane(model: mujoco.MjModel, scene: Scene) -> tuple[XY, float]:
    """Height of the plane in which the objects are, and the point (world x, y) of it at which the
    camera ``top`` looks.
    """
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    signals = object_signals(scene)
    height = float(data.site(scene.config.frames[signals[0].frame]).xpos[2]) if signals else 0.0
    camera = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, "top")
    if camera >= 0:
        mujoco.mj_camlight(model, data)
        at, ahead = data.cam_xpos[camera], -data.cam_xmat[camera].reshape(3, 3)[:, 2]
        if ahead[2] * (height - at[2]) > 0.0:
            return (at + (height - at[2]) / ahead[2] * ahead)[:2], height
    places = [data.xpos[b[0], :2] for b in object_bodies(model, scene).values()]
    return (np.mean(places, axis=0) if places else np.zeros(2)), height


def _ancestors(model: mujoco.MjModel, body: int) -> Iterator[int]:
    while body > 0:
        yield body
        body = int(model.body_parentid[body])


def _name(model: mujoco.MjModel, body: int) -> str:
    return str(mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, body) or "")


def _factor(magnitude: float, rng: np.random.Generator) -> float:
    return float(2.0 ** (magnitude * rng.uniform(-1.0, 1.0)))


class Snapshot:
    """Everything of a model that perturbations may change, to restore it bit for bit."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self._model = model
        self._arrays = {n: np.array(getattr(model, n)) for n in _numeric(model)}
        light = model.vis.headlight
        self._headlight = [np.array(v) for v in (light.ambient, light.diffuse, light.specular)]
        self._stat = [float(model.stat.meaninertia), float(model.stat.meanmass)]
        self._size = [float(model.stat.meansize), float(model.stat.extent)]
        self._center = np.array(model.stat.center)

    def restore(self) -> None:
        """Write all of it back."""
        model = self._model
        for name, values in self._arrays.items():
            getattr(model, name)[...] = values
        light = model.vis.headlight
        for part, values in zip(
            (light.ambient, light.diffuse, light.specular), self._headlight, strict=True
        ):
            part[:] = values
        self.restore_statistics()
        model.stat.meaninertia, model.stat.meanmass = self._stat

    def restore_statistics(self) -> None:
        """Lengths of the scene alone: clipping planes and views hang on them."""
        stat = self._model.stat
        stat.meansize, stat.extent = self._size
        stat.center[:] = self._center

    def changed(self) -> list[str]:
        """Names of the arrays that differ now."""
        return [
            n for n, v in self._arrays.items() if not np.array_equal(getattr(self._model, n), v)
        ]


_PREFIXES = ("body_", "geom_", "pair_", "light_", "cam_", "mat_", "dof_", "jnt_", "actuator_")
_DERIVED = ("tendon_", "eq_", "site_", "qpos")


def _numeric(model: mujoco.MjModel) -> list[str]:
    names = [n for n in dir(model) if n.startswith(_PREFIXES + _DERIVED)]
    values: list[tuple[str, Any]] = [(n, getattr(model, n)) for n in names]
    return [n for n, v in values if isinstance(v, np.ndarray) and v.size]
