"""Perturbs a scene before its model is compiled, in memory only."""

from __future__ import annotations

import dataclasses
import math

import mujoco
import numpy as np

from robolearn.errors import ConfigError
from sim.perturbations.model import DISTRACTOR
from sim.scene.config import Scene, SceneConfig

# A surface is large when its middle half size is [m].
LARGE_M = 0.15
DISTRACTORS = 3
DARKER = 0.35


def textures(scene: Scene, magnitude: float, rng: np.random.Generator) -> Scene:
    """Large surfaces that do not move get checkers, 0.35 times the magnitude darker and lighter
    than they were, of a random tile size.
    """
    contrast = min(1.0, DARKER * magnitude)
    tiles = float(rng.uniform(3.0, 9.0))
    tint = rng.uniform(-0.15, 0.15, 3) * magnitude

    def edit(spec: mujoco.MjSpec) -> None:
        count = 0
        for geom in spec.geoms:
            size = sorted((float(s) if s > 0 else 10.0) for s in geom.size)
            moves = _moves(geom.parent)
            if moves or geom.group > 2 or size[1] < LARGE_M or geom.rgba[3] == 0:
                continue
            base = _colour(spec, geom)
            name = f"perturbed_{count}"
            _checker(spec, name, np.clip(base + tint, 0, 1), contrast, tiles)
            geom.material = name
            geom.rgba = [1.0, 1.0, 1.0, 1.0]
            count += 1
        if not count:
            raise ConfigError(f"{scene.name}: 'textures' finds no large surface")

    return _edited(scene, edit)


def distractors(scene: Scene, magnitude: float, rng: np.random.Generator) -> Scene:
    """Adds 3 times the magnitude (rounded up) bodies that are seen and nothing else: they do not
    move, collide or weigh anything.
    """
    count = math.ceil(DISTRACTORS * magnitude)
    kinds = [mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER]
    kinds.append(mujoco.mjtGeom.mjGEOM_ELLIPSOID)
    shapes = [(kinds[int(rng.integers(3))], rng.uniform(0.012, 0.03, 3)) for _ in range(count)]

    def edit(spec: mujoco.MjSpec) -> None:
        for i, (kind, size) in enumerate(shapes):
            # As if moved from outside: drawn in front of photographs, too.
            body = spec.worldbody.add_body(name=f"{DISTRACTOR}{i}", mocap=True)
            half = [size[0], size[2], size[2]] if kind == kinds[1] else list(size)
            body.add_geom(
                type=kind, size=half, contype=0, conaffinity=0, mass=0.0, rgba=[0.5, 0.5, 0.5, 1]
            )

    names = tuple(f"{DISTRACTOR}{i}" for i in range(count))
    cameras = tuple(
        dataclasses.replace(c, foreground=(*c.foreground, *names)) if c.foreground else c
        for c in scene.config.cameras
    )
    config = dataclasses.replace(scene.config, cameras=cameras)
    return _edited(dataclasses.replace(scene, config=config), edit)


def control_rate(scene: Scene, magnitude: float, rng: np.random.Generator) -> Scene:
    """A tick lasts ``1 + magnitude`` times as long, to the nearest length that fits the scene's
    faster signals and set-points. Signals at the control rate slow down with it.
    """
    del rng
    config = scene.config
    step, substeps = config.physics.timestep_s, config.substeps
    faster = [round(1 / (s.rate_hz * step)) for s in config.signals if s.rate_hz > config.rate_hz]
    setpoint = config.control.get("setpoint_rate_hz")
    if setpoint:
        faster.append(round(1.0 / (float(setpoint) * step)))
    unit = math.lcm(*faster) if faster else 1
    longer = max(substeps + unit, round(substeps * (1.0 + magnitude) / unit) * unit)
    rate = 1.0 / (longer * step)
    return dataclasses.replace(scene, config=_at_rate(config, rate))


def _at_rate(config: SceneConfig, rate_hz: float) -> SceneConfig:
    signals = tuple(
        dataclasses.replace(s, rate_hz=rate_hz) if s.rate_hz == config.rate_hz else s
        for s in config.signals
    )
    return dataclasses.replace(config, rate_hz=rate_hz, signals=signals)


def _edited(scene: Scene, edit: object) -> Scene:
    return dataclasses.replace(scene, edits=(*scene.edits, edit))


def _moves(body: mujoco.MjsBody) -> bool:
    while body is not None and body.name != "world":
        if len(body.joints):
            return True
        body = body.parent
    return False


def _colour(spec: mujoco.MjSpec, geom: mujoco.MjsGeom) -> np.ndarray:
    material = spec.material(geom.material) if geom.material else None
    rgba = material.rgba if material is not None else geom.rgba
    return np.array(rgba[:3], dtype=np.float64)


def _checker(
    spec: mujoco.MjSpec, name: str, colour: np.ndarray, contrast: float, tiles: float
) -> None:
    spec.add_texture(
        name=name,
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        width=64,
        height=64,
        rgb1=np.clip(colour * (1.0 - contrast), 0, 1),
        rgb2=np.clip(colour + contrast * (1.0 - colour), 0, 1),
    )
    material = spec.add_material(name=name, texrepeat=[tiles, tiles])
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
