"""Chooses the set-points that the MJCF's position servos follow best, and how often."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from robolearn.errors import SceneError
from robolearn.shapes import Floats
from sim.scene.config import SceneConfig
from sim.shapes import Indices

WHERE = "scene.yaml: control"


def setpoint_steps(rate_hz: float, config: SceneConfig) -> int:
    """Physics steps per set-point; :class:`SceneError` unless a tick is a whole number of them."""
    exact = 1.0 / (rate_hz * config.physics.timestep_s) if rate_hz > 0.0 else 0.0
    steps = round(exact)
    if steps < 1 or abs(exact - steps) > 1e-6 or config.substeps % steps:
        raise SceneError(
            f"{WHERE}.setpoint_rate_hz {rate_hz:g} must be a multiple of"
            f" {config.rate_hz:g} that divides {1.0 / config.physics.timestep_s:g}"
        )
    return steps


@dataclass(frozen=True, slots=True)
class Gains:
    """Identified gains of position servos, in their order: ``kp`` [N m/rad], ``kv`` [N m s/rad]."""

    kp: tuple[float, ...]
    kv: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.kp) != len(self.kv) or min(self.kp, default=0.0) <= 0.0 or min(self.kv) < 0.0:
            raise ValueError(f"gains: kp > 0 and kv >= 0, one each per servo; got {self}")


def apply_gains(model: mujoco.MjModel, actuators: Indices, gains: Gains) -> None:
    """Replace the gains that scene.xml gives these servos."""
    if len(gains.kp) != len(actuators):
        raise SceneError(f"{WHERE}.gains: {len(gains.kp)} values for {len(actuators)} servos")
    model.actuator_gainprm[actuators, 0] = gains.kp
    model.actuator_biasprm[actuators, 1] = -np.array(gains.kp)
    model.actuator_biasprm[actuators, 2] = -np.array(gains.kv)


def servo_lead(model: mujoco.MjModel, actuators: Indices) -> Floats:
    """Damping over stiffness [s] of each servo: ``q + lead * qd`` as set-point has no speed lag."""
    stiffness = model.actuator_gainprm[actuators, 0]
    if np.any(stiffness <= 0.0) or np.any(-model.actuator_biasprm[actuators, 1] != stiffness):
        raise SceneError(f"{WHERE}.actuators must be position servos (kp, kv)")
    return -model.actuator_biasprm[actuators, 2] / stiffness
