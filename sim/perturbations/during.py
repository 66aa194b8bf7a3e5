"""Acts on a scene while an episode runs: what no start can say, as outdoors and in plants."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import mujoco
import numpy as np

from robolearn.errors import ConfigError
from sim.perturbations.model import object_bodies
from sim.scene.config import Scene

# Magnitude 1 of the wind: standard deviation of x and of y, in parts of the object's weight.
WIND = 0.15
# It wanders within this time [s].
GUST_S = 1.0
# When a payload changes [s].
PAYLOAD_S = (1.0, 4.0)


@runtime_checkable
class During(Protocol):
    """Something that goes on in one episode."""

    def step(self, data: mujoco.MjData, seconds: float) -> None:
        """Called before every control tick, which lasts ``seconds``."""
        ...


@runtime_checkable
class Starting(Protocol):
    """What begins it, before the episode's start is placed."""

    def __call__(
        self, model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator
    ) -> During:
        """See the class."""
        ...


class Wind:
    """A horizontal force on each object: an Ornstein-Uhlenbeck process of a second per axis, the
    same for all objects in parts of their weight; it begins anywhere in its distribution.
    """

    def __init__(
        self, model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator
    ) -> None:
        groups = object_bodies(model, scene)
        if not groups:
            raise ConfigError(f"{scene.name}: 'wind' finds no object; reset.settable names none")
        gravity = float(np.linalg.norm(model.opt.gravity)) or 9.81
        self._weights = {
            int(b[0]): float(model.body_mass[b].sum()) * gravity for b in groups.values()
        }
        self._size, self._rng = WIND * magnitude, rng
        self._share = self._size * rng.standard_normal(2)

    def step(self, data: mujoco.MjData, seconds: float) -> None:
        """Blow, then change a little."""
        for body, weight in self._weights.items():
            data.xfrc_applied[body, :2] = weight * self._share
        keep = math.exp(-seconds / GUST_S)
        fresh = self._size * math.sqrt(1.0 - keep * keep)
        self._share = keep * self._share + fresh * self._rng.standard_normal(2)


class Payload:
    """From a moment on, drawn between one and four seconds, each object's mass and inertia are
    times ``2 ** (magnitude * u)``, u uniform in [-1, 1].
    """

    def __init__(
        self, model: mujoco.MjModel, scene: Scene, magnitude: float, rng: np.random.Generator
    ) -> None:
        groups = object_bodies(model, scene)
        if not groups:
            raise ConfigError(f"{scene.name}: 'payload' finds no object; reset.settable names none")
        self._model, self._left_s = model, float(rng.uniform(*PAYLOAD_S))
        self._factors = [
            (bodies, 2.0 ** (magnitude * float(rng.uniform(-1.0, 1.0))))
            for bodies in groups.values()
        ]

    def step(self, data: mujoco.MjData, seconds: float) -> None:
        """Change the masses when it is time."""
        del data
        before, self._left_s = self._left_s, self._left_s - seconds
        if not self._left_s <= 0.0 < before:
            return
        model, stat = self._model, self._model.stat
        sizes = float(stat.meansize), float(stat.extent), np.array(stat.center)
        for bodies, factor in self._factors:
            model.body_mass[bodies] *= factor
            model.body_inertia[bodies] *= factor
        # With data of its own: the episode's must stay where it is.
        mujoco.mj_setConst(model, mujoco.MjData(model))
        # Clipping planes and views hang on lengths of the scene.
        stat.meansize, stat.extent = sizes[0], sizes[1]
        stat.center[:] = sizes[2]
