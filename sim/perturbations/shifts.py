"""Shifts one property of a scene by a known amount, the same in every episode.

A perturbation of ``model`` is drawn anew for every episode and asks whether a policy stands it. A
shift is no draw: it asks what would follow if the scene were wrong by so much.
"""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np

from robolearn.errors import ConfigError
from sim.perturbations import model as models
from sim.scene.config import Scene

# Magnitude 1 of a delay [s].
DELAY_S = 0.1


def friction(
    model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator
) -> None:
    """Every sliding friction coefficient times ``2 ** magnitude``; contacts of a scene that has
    none get ``0.3 * magnitude``, which cannot be less than none.
    """
    del rng
    colliding = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    rough = colliding & (model.geom_condim > 1)
    pairs = model.pair_dim > 1
    if rough.any() or pairs.any():
        model.geom_friction[colliding, 0] *= 2.0**magnitude
        model.pair_friction[pairs, :2] *= 2.0**magnitude
        return
    if magnitude < 0.0 or not colliding.any():
        raise ConfigError(f"{scene.name}: 'friction_shift' finds no friction that could be less")
    model.geom_condim[colliding] = 3
    model.geom_friction[colliding, 0] = models.ADDED_FRICTION * magnitude


def mass(model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator) -> None:
    """Mass and inertia of every object times ``2 ** magnitude``."""
    del rng
    groups = models.object_bodies(model, scene)
    if not groups:
        raise ConfigError(f"{scene.name}: 'mass_shift' finds no object; reset.settable names none")
    bodies = np.unique(np.concatenate(list(groups.values())))
    model.body_mass[bodies] *= 2.0**magnitude
    model.body_inertia[bodies] *= 2.0**magnitude


def damping(
    model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator
) -> None:
    """Damping and dry friction of every joint times ``2 ** magnitude``."""
    del rng
    if not (model.dof_damping.any() or model.dof_frictionloss.any()):
        raise ConfigError(f"{scene.name}: 'damping_shift' finds no joint with damping or friction")
    model.dof_damping[:] *= 2.0**magnitude
    model.dof_frictionloss[:] *= 2.0**magnitude


def gain(model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator) -> None:
    """Stiffness of every servo times ``2 ** magnitude``, its damping times the root of that."""
    del rng
    servos = model.actuator_biasprm[:, 1] < 0.0
    if not servos.any():
        raise ConfigError(f"{scene.name}: 'gain_shift' finds no position servo")
    model.actuator_gainprm[servos, 0] *= 2.0**magnitude
    model.actuator_biasprm[servos, 1] *= 2.0**magnitude
    model.actuator_biasprm[servos, 2] *= 2.0 ** (magnitude / 2.0)


def camera(model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator) -> None:
    """Every camera 20 mm to its own right and up and turned by 3 degrees about where it looks,
    each times the magnitude. Calibrations that the env reports stay nominal.
    """
    del rng
    if not model.ncam:
        raise ConfigError(f"{scene.name}: 'camera_shift' finds no camera")
    turn = np.zeros(4)
    mujoco.mju_axisAngle2Quat(turn, np.array([0.0, 0.0, 1.0]), models.TURN_RAD * magnitude)
    for i in range(model.ncam):
        moved, turned = np.zeros(3), np.zeros(4)
        sideways = models.SHIFT_M * magnitude * np.array([1.0, 1.0, 0.0])
        mujoco.mju_rotVecQuat(moved, sideways, model.cam_quat[i])
        mujoco.mju_mulQuat(turned, model.cam_quat[i], turn)
        model.cam_pos[i] += moved
        model.cam_quat[i] = turned


def light(model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator) -> None:
    """Brightness of every light, the headlight too, times ``2 ** magnitude``."""
    del scene, rng
    headlight = model.vis.headlight
    parts = [headlight.ambient, headlight.diffuse, headlight.specular]
    parts += [model.light_ambient, model.light_diffuse, model.light_specular]
    for part in parts:
        part[:] = np.clip(part * 2.0**magnitude, 0.0, 4.0)


def delay(scene: Scene, magnitude: float, rng: np.random.Generator) -> Scene:
    """Set-points reach the actuators 100 ms times the magnitude later, or earlier by what the
    scene has of delay.
    """
    del rng
    shifted = scene.config.control_delay_s + DELAY_S * magnitude
    if shifted < -1e-9:
        raise ConfigError(
            f"{scene.name}: 'delay_shift={magnitude:g}' needs a delay of {-DELAY_S * magnitude:g} s"
            f" that could be less; the scene has {scene.config.control_delay_s:g} s"
        )
    config = dataclasses.replace(scene.config, control_delay_s=max(0.0, shifted))
    return dataclasses.replace(scene, config=config)
