"""Lays the start that is wanted over what a camera sees, so that a person can place things so."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from robolearn.errors import ConfigError, DataError, RenderError, did_you_mean
from robolearn.operations.pictures.draw import Drawn
from robolearn.operations.suites import open_suite
from robolearn.shapes import Picture
from robolearn.spec import EmbodimentSpec
from robolearn.types import Condition, Outline
from sim.env.scene_env import SceneEnv
from sim.rendering.renderer import Renderer, View
from sim.scene.load import load_scene

_EDGES = (255, 40, 40)
"""Outlines of what is wanted are red: they show where the blend alone is too faint."""
# Steps of brightness between which an outline is seen (Canny's thresholds).
_FAINT, _CLEAR = 60, 160
# Of what is wanted, where a person compares it with what is there.
_OPACITY = 0.5
# What is drawn to see whether it can be [px].
_SMALLEST = (16, 16)


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
    with contextlib.closing(StartDrawer(scene, camera)) as drawer:
        return drawer.draw(condition, width, height)


class StartDrawer:
    """Draws starts of ``scene`` as its ``camera`` sees them, until :meth:`close`; on one thread."""

    def __init__(self, scene: str, camera: str) -> None:
        self._env, self._camera = SceneEnv(load_scene(scene), cameras=()), camera
        self._renderer = Renderer(self._env.model)
        names = [c.name for c in self._env.scene.config.cameras]
        if camera not in names:
            self.close()
            raise ConfigError(
                f"{scene} has no camera '{camera}'.{did_you_mean(camera, names)}"
                f" It has: {', '.join(names)}"
            )

    def draw(self, condition: Condition, width: int, height: int) -> Picture:
        """``[height, width, 3]``; :class:`DataError` for a start that the scene does not have."""
        self._env.reset(condition, np.random.default_rng(condition.seed))
        return self._renderer.images(self._env.data, [View(self._camera, width, height)])[0]

    def outlines(self) -> tuple[Outline, ...]:
        """What the scene's things look like from above."""
        return self._env.outlines()

    def close(self) -> None:
        """Free the contexts; safe to call twice."""
        self._renderer.close()
        self._env.close()


class StartOverlay:
    """Lays a start over what the cell's ``camera`` sees, as the camera of that name of ``scene``
    would see it. A start is drawn once per size. ``path``: a picture file that is written when a
    start is asked for that was not before.
    """

    def __init__(self, camera: str, scene: str, path: Path | None = None) -> None:
        self.camera, self._path = camera, path
        self._drawer = StartDrawer(scene, camera)
        self._condition: Condition | None = None
        self._drawn: dict[tuple[int, ...], Picture] = {}
        # Why this start cannot be shown, or its picture not be written; "" for nothing.
        self._trouble = ""

    @classmethod
    def of(cls, text: str, spec: EmbodimentSpec, path: Path | None = None) -> StartOverlay | None:
        """Of ``CAMERA=SCENE``; None for "". :class:`ConfigError` for a camera that the cell lacks,
        or the scene.
        """
        if not text:
            return None
        camera, equals, scene = text.partition("=")
        seen = [s.name for s in spec.signals if s.is_image and not s.is_depth]
        cameras = [name.removesuffix("/image") for name in seen]
        if not (equals and scene) or camera not in cameras:
            raise ConfigError(
                f"overlay: expected CAMERA=SCENE with one of the cell's cameras {cameras}, got"
                f" '{text}'"
            )
        return cls(camera, scene, path)

    def require(self, condition: Condition) -> None:
        """:class:`DataError` for a start that the scene does not have, :class:`RenderError` on a
        machine that cannot draw.
        """
        self._drawer.draw(condition, *_SMALLEST)

    @property
    def outlines(self) -> tuple[Outline, ...]:
        """What the scene's things look like from above; a cell's signals say where they are."""
        return self._drawer.outlines()

    @property
    def trouble(self) -> str:
        """Why the start that was asked for last cannot be shown, or kept as a file; "": it can."""
        return self._trouble

    @property
    def note(self) -> str:
        """What the person is told, also of what went wrong: placing goes on without it."""
        if self._condition is not None and not self._drawn:
            return f"Where things belong cannot be shown: {self._trouble}"
        kept = self._trouble or ("" if self._path is None else f"also {self._path}")
        kept = f" ({kept})" if kept else ""
        return f"The picture of '{self.camera}'{kept} shows where things belong, outlined in red."

    def over(self, condition: Condition, seen: Picture) -> Picture:
        """``seen`` with the start over it; as it is, of a start that the scene does not have."""
        new = condition != self._condition
        if new:
            self._condition, self._drawn, self._trouble = condition, {}, ""
        elif not self._drawn:
            return seen
        height, width = seen.shape[:2]
        try:
            if (height, width) not in self._drawn:
                self._drawn[height, width] = self._drawer.draw(condition, width, height)
        except (DataError, RenderError) as error:
            self._trouble = str(error)
            return seen
        mixed = overlay(self._drawn[height, width], seen, _OPACITY)
        if new and self._path is not None:
            try:
                Drawn(self.camera, mixed).write(self._path)
            except (OSError, ConfigError) as error:
                # A full disk ends no session: the picture is seen here.
                self._trouble = f"{self._path} was not written: {error}"
        return mixed

    def close(self) -> None:
        """Free what draws; safe to call twice."""
        self._drawer.close()


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
