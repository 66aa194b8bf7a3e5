"""Adds what an arm carries to a scene's model before it is compiled: a point-like mass."""

from __future__ import annotations

import mujoco
import numpy as np

PAYLOAD = "payload"
# Of a ball of water: the moment of a payload about itself is small against that of its place.
_DENSITY = 1000.0


def add_payload(spec: mujoco.MjSpec, joint: str, at_m: tuple[float, float, float]) -> None:
    """A body called ``payload`` behind ``joint``, at ``at_m`` of that link's frame, of 1 g.

    It is carried as the link is: compensated by the controller where the link's weight is.
    """
    link = spec.joint(joint).parent
    body = link.add_body(name=PAYLOAD, pos=list(at_m), gravcomp=link.gravcomp)
    body.mass, body.inertia, body.explicitinertial = 1e-3, list(moments(1e-3)), True


def moments(mass_kg: float) -> tuple[float, float, float]:
    """Principal moments of a payload about its centre [kg m^2]."""
    radius_m = (3.0 * mass_kg / (4.0 * np.pi * _DENSITY)) ** (1.0 / 3.0)
    moment = max(1e-9, 0.4 * mass_kg * radius_m**2)
    return moment, moment, moment


def set_payload(model: mujoco.MjModel, mass_kg: float) -> None:
    """Give the payload of a compiled model another mass; ``mj_setConst`` is the caller's."""
    body = model.body(PAYLOAD).id
    model.body_mass[body] = max(mass_kg, 1e-6)
    model.body_inertia[body] = moments(max(mass_kg, 1e-6))
