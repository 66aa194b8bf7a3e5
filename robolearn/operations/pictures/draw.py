"""Draws a world at a start from its reset distribution: from above, or by its cameras."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from robolearn.errors import ConfigError, did_you_mean
from robolearn.operations.reality.worlds import make_world
from robolearn.shapes import Picture
from sim.env.scene_env import SceneEnv
from sim.rendering.renderer import Renderer, View
from sim.scene.load import load_scene

ABOVE, ALL = "top", "all"


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a camera sees: RGB ``[height, width, 3]``."""

    camera: str
    image: Picture

    def write(self, path: Path) -> None:
        """Write a picture file (.png, .jpg); its folder is made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if not cv2.imwrite(str(path), np.ascontiguousarray(self.image[..., ::-1])):
            raise ConfigError(f"cannot write '{path}': check its permissions and the free space")


def draw_world(
    world: str, *, camera: str = ABOVE, width: int = 512, height: int = 512, seed: int = 0
) -> tuple[Drawn, ...]:
    """Pictures of ``width`` x ``height`` [px] of the start that follows from ``seed``.

    ``camera``: ``top``, which every world has; a camera of a scene package, or ``all`` of them.

    Errors: :class:`SceneError` for a world that is not there, :class:`ConfigError` for a camera
    that it does not have, :class:`RenderError` on a machine that cannot draw.
    """
    if camera == ABOVE:
        with contextlib.closing(make_world(world)) as env:
            env.reset(env.sample_condition(seed), np.random.default_rng(seed))
            return (Drawn(ABOVE, env.render(width, height)),)
    with contextlib.closing(SceneEnv(load_scene(world), cameras=())) as scene:
        names = [c.name for c in scene.scene.config.cameras]
        if camera not in (ALL, *names):
            raise ConfigError(
                f"{world} has no camera '{camera}'.{did_you_mean(camera, names)}"
                f" It has: {', '.join(names)}; or '{ALL}'"
            )
        scene.reset(scene.sample_condition(seed), np.random.default_rng(seed))
        chosen = names if camera == ALL else [camera]
        with contextlib.closing(Renderer(scene.model)) as renderer:
            images = renderer.images(scene.data, [View(name, width, height) for name in chosen])
    return tuple(Drawn(name, image) for name, image in zip(chosen, images, strict=True))
