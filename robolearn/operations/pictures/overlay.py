"""Lays the start that is wanted over what a camera sees, so that a person can place things so."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from robolearn.errors import ConfigError, did_you_mean
from robolearn.operations.suites import open_suite
from robolearn.shapes import Picture
from robolearn.types import Condition
from sim.env.scene_env import SceneEnv
from sim.rendering.renderer import Renderer, View
from sim.scene.load import load_scene

_EDGES = (255, 40, 40)
"""Outlines of what is wanted are red: they show where the blend alone is too faint."""
# Steps of brightness between which an outline is seen (Canny's thresholds).
_FAINT, _CLEAR = 60, 160


def overlay_start(
    photo: Path, scene: str, camera: str, suite: Path, condition: str, *, opacity: float = 0.5
) -> Picture:
    """The photo with the scene of ``condition`` of ``suite`` over it, as ``camera`` would see it.

    Scene and real camera must agree (``robolearn calibrate camera``); the photo's size counts.
    Errors: :class:`ConfigError` for a picture, camera or condition that is not there.
    """
    found: Any = cv2.imread(str(photo), cv2.IMREAD_COLOR) if photo.is_file() else None
    if found is None:
        raise ConfigError(f"'{photo}' is not a picture that can be read (.png, .jpg)")
    seen: Picture = np.ascontiguousarray(found[..., ::-1])
    wanted = draw_start(scene, camera, _condition(suite, condition), seen.shape[1], seen.shape[0])
    return overlay(wanted, seen, opacity)


def draw_start(scene: str, camera: str, condition: Condition, width: int, height: int) -> Picture:
    """What a camera of a scene sees of a start, ``[height, width, 3]``."""
    with contextlib.closing(SceneEnv(load_scene(scene), cameras=())) as env:
        names = [c.name for c in env.scene.config.cameras]
        if camera not in names:
            raise ConfigError(
                f"{scene} has no camera '{camera}'.{did_you_mean(camera, names)}"
                f" It has: {', '.join(names)}"
            )
        env.reset(condition, np.random.default_rng(condition.seed))
        with contextlib.closing(Renderer(env.model)) as renderer:
            return renderer.images(env.data, [View(camera, width, height)])[0]


def overlay(wanted: Picture, seen: Picture, opacity: float) -> Picture:
    """``wanted`` over ``seen`` (same size), its outlines drawn; ``opacity`` 0: outlines alone."""
    if not (math.isfinite(opacity) and 0.0 <= opacity <= 1.0):
        raise ConfigError(f"opacity must be in [0, 1], got {opacity}")
    mixed = np.rint((1.0 - opacity) * seen + opacity * wanted).astype(np.uint8)
    edges = cv2.Canny(cv2.cvtColor(wanted, cv2.COLOR_RGB2GRAY), _FAINT, _CLEAR)
    mixed[np.asarray(edges) > 0] = _EDGES
    return mixed


def _condition(suite: Path, wanted: str) -> Condition:
    opened = open_suite(suite)
    conditions = {c.id: c for c in opened.select(len(opened.config.conditions))}
    if wanted not in conditions:
        raise ConfigError(
            f"{suite} has no condition '{wanted}'.{did_you_mean(wanted, conditions)} It has"
            f" {len(conditions)}: {', '.join([*conditions][:5])}, ..."
        )
    return conditions[wanted]
