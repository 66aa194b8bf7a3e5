"""Names the perturbations of simulated worlds for evaluation: seeded, with a magnitude.

A perturbed world has a name of its own, ``world~name=magnitude~name=magnitude``, and a hash of its
own; the files of the scene and the nominal world stay as they are. ``docs/perturbations.md`` says
what each changes and what magnitude 1 means.

What is random is drawn for every episode from the perturbation's seed and the condition's, so that
the same condition is perturbed alike whoever acts; what belongs to the world's construction
(textures, which distractors there are) is drawn once. Shifts draw nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import mujoco
import numpy as np

from robolearn.errors import ConfigError, did_you_mean
from robolearn.seeding import child_seed
from sim.perturbations import during, shifts
from sim.perturbations import model as models
from sim.perturbations import scene as scenes
from sim.scene.config import Scene

MARK = "~"
SEED = "seed"
# No magnitude beyond this: factors of 2 to the power of it are no masses or frictions any more.
MOST = 20.0
# Counts in the hash; raise it when a perturbation changes its meaning.
VERSION = 2

SceneEdit = Callable[[Scene, float, np.random.Generator], Scene]
ModelEdit = Callable[[mujoco.MjModel, Scene, float, np.random.Generator], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """A perturbation that exists, and what magnitude 1 means.

    ``scene`` edits the world before it is built, ``model`` the compiled model before every
    episode, ``during`` acts while an episode runs; the others act on what goes in and out of the
    env, and so work in any world.
    """

    meaning: str
    scene: SceneEdit | None = None
    model: ModelEdit | None = None
    during: during.Starting | None = None
    # Of a shift, which has two directions: the magnitude may be negative.
    signed: bool = False

    @property
    def needs_scene(self) -> bool:
        """Whether it works in worlds of scene packages only."""
        return (self.scene, self.model, self.during) != (None, None, None)


PERTURBATIONS: Mapping[str, Kind] = {
    "object_pose": Kind("start poses of objects: within 30 mm and 30 degrees"),
    "mass": Kind("mass and inertia of each object: times 1/2 to 2", model=models.mass),
    "friction": Kind("all sliding friction: times 1/2 to 2", model=models.friction),
    "lighting": Kind("each light: brightness times 1/2 to 2, tint", model=models.lighting),
    "colours": Kind("each colour: 0.25 per channel", model=models.colours),
    "textures": Kind("checkers on large surfaces, 0.35 dark", scene=scenes.textures),
    "camera_pose": Kind("each camera: 20 mm, 3 degrees, 5 % zoom", model=models.camera_pose),
    "distractors": Kind(
        "3 objects that are only seen", scene=scenes.distractors, model=models.place_distractors
    ),
    "wind": Kind("gusts of 0.15 of its weight push each object sideways", during=during.Wind),
    "payload": Kind("mass of each object: times 1/2 to 2 from a moment on", during=during.Payload),
    "action_delay": Kind("100 ms, in whole ticks"),
    "observation_delay": Kind("100 ms, in whole ticks"),
    "action_noise": Kind("what is done wanders about what is commanded: up to 5 mm, 0.05 rad"),
    "sensor_noise": Kind("1 mm, 0.5 degrees, 5 mm/s, 0.02 rad/s, 8 grey levels"),
    "control_rate": Kind("half the rate", scene=scenes.control_rate),
    "friction_shift": Kind("all sliding friction: twice", model=shifts.friction, signed=True),
    "mass_shift": Kind("mass and inertia of each object: twice", model=shifts.mass, signed=True),
    "damping_shift": Kind("damping of all joints: twice", model=shifts.damping, signed=True),
    "gain_shift": Kind("stiffness of all servos: twice", model=shifts.gain, signed=True),
    "delay_shift": Kind("100 ms more", scene=shifts.delay, signed=True),
    "camera_shift": Kind(
        "each camera 20 mm right and up, 3 degrees", model=shifts.camera, signed=True
    ),
    "light_shift": Kind("brightness of all lights: twice", model=shifts.light, signed=True),
}


@dataclass(frozen=True, slots=True)
class Perturbations:
    """Magnitudes by name and a seed."""

    magnitudes: Mapping[str, float]
    seed: int = 0

    def __post_init__(self) -> None:
        for name, magnitude in self.magnitudes.items():
            if name not in PERTURBATIONS:
                raise ConfigError(
                    f"no perturbation '{name}'.{did_you_mean(name, PERTURBATIONS)} There are:"
                    f" {list(PERTURBATIONS)}"
                )
            least = -MOST if PERTURBATIONS[name].signed else 0.0
            if not least <= magnitude <= MOST:
                raise ConfigError(
                    f"the magnitude of '{name}' must be {least:g} to {MOST:g} (1 means:"
                    f" {PERTURBATIONS[name].meaning}), got {magnitude:g}"
                )

    @property
    def suffix(self) -> str:
        """What the world's name gains; empty for none."""
        if not self.magnitudes:
            return ""
        # In full, so that the name stands for exactly this world.
        parts = [f"{n}={m!r}".removesuffix(".0") for n, m in self.magnitudes.items()]
        if self.seed:
            parts.append(f"{SEED}={self.seed}")
        return "".join(MARK + p for p in parts)

    def get(self, name: str) -> float:
        """The magnitude of ``name``; 0 when it is not perturbed."""
        return self.magnitudes.get(name, 0.0)

    def draws(self, name: str, of: int | str) -> np.random.Generator:
        """The random numbers of one perturbation for one episode (the condition's seed)."""
        return np.random.default_rng(child_seed(self.seed, name, of))

    def hash(self, scene_hash: str) -> str:
        """Digest of the perturbed world (16 hex digits)."""
        exact = [f"{n}={m!r}" for n, m in self.magnitudes.items()]
        text = "\0".join([scene_hash, str(VERSION), str(self.seed), *exact])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def require_scene(self, world: str) -> None:
        """Raise :class:`ConfigError` when a perturbation cannot be done in ``world``."""
        bad = [n for n in self.magnitudes if PERTURBATIONS[n].needs_scene]
        if bad:
            fine = [n for n, k in PERTURBATIONS.items() if not k.needs_scene]
            raise ConfigError(
                f"{bad} need a scene package, which '{world}' is not; every world knows: {fine}"
            )


def split_perturbations(name: str) -> tuple[str, Perturbations]:
    """``world~mass=1~seed=3`` as the world's name and what perturbs it.

    Magnitude 0 means not perturbed. Raises :class:`ConfigError` for what cannot be understood.
    """
    base, *parts = re.split(r"~(?=[a-z_]+=)", name)
    values: dict[str, float] = {}
    seed = 0
    for part in parts:
        key, _, text = part.partition("=")
        try:
            value = float(text)
        except ValueError as error:
            raise ConfigError(
                f"'{name}': expected {MARK}NAME=MAGNITUDE after the world, got '{MARK}{part}'"
            ) from error
        if key in values:
            raise ConfigError(f"'{name}': '{key}' is given twice")
        if key == SEED:
            if not value.is_integer() or value < 0:
                raise ConfigError(f"'{name}': a seed is a whole number from 0 on, got '{text}'")
            seed = int(value)
        else:
            values[key] = value
    checked = Perturbations(values, seed)
    active = {k: v for k, v in checked.magnitudes.items() if v != 0.0}
    return base, Perturbations(active, seed)
