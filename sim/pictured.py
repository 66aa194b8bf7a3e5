"""Names of worlds whose pictures are observed: ``pick_place,camera=agent+wrist,size=84``.

The cameras are those of ``scene.yaml``; worlds of other engines have one, ``top``. Without options
a scene offers the cameras that have a ``signal``, and other worlds none. Names of worlds with
options of their own (``robosuite/Lift,camera=agentview``) are not touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from robolearn.errors import SceneError
from sim.rendering.renderer import LARGEST
from sim.world_name import choose

# Sides of the pictures of the Push-T recordings [px].
DEFAULT_SIZE = 96


@dataclass(frozen=True, slots=True)
class Pictures:
    """Which cameras are observed (None: as the scene says) and their size [px] (None: likewise)."""

    cameras: tuple[str, ...] | None = None
    size: int | None = None

    @property
    def suffix(self) -> str:
        """What to append to a world's name."""
        cameras = f",camera={'+'.join(self.cameras)}" if self.cameras is not None else ""
        return cameras + (f",size={self.size}" if self.size is not None else "")


def split_pictures(name: str) -> tuple[str, Pictures]:
    """A world's name without its picture options, and these; :class:`SceneError` for bad ones."""
    base, *parts = re.split(r",(?=[a-z]+=)", name)
    values: dict[str, str] = {}
    for part in parts:
        key, _, value = part.partition("=")
        choose(base, "option", key, ("camera", "size"))
        if key in values:
            raise SceneError(f"'{name}': '{key}' is given twice")
        values[key] = value
    size = values.get("size")
    if size is not None and not (size.isdecimal() and 1 <= int(size) <= LARGEST):
        raise SceneError(f"'{name}': size is 1 to {LARGEST} pixels, got '{size}'")
    cameras = values.get("camera")
    chosen = None if cameras is None else tuple(c for c in cameras.split("+") if c)
    if cameras is not None and (not chosen or len(set(chosen)) < len(chosen)):
        raise SceneError(f"'{name}': camera names cameras, each once, like camera=top+wrist")
    return base, Pictures(chosen, int(size) if size is not None else None)


def only_top(name: str, pictures: Pictures) -> int:
    """Size of the one picture of a world that only has a ``top`` camera; 0 without pictures."""
    if pictures.cameras is None:
        return pictures.size or 0
    for camera in pictures.cameras:
        choose(name, "camera", camera, ("top",))
    return pictures.size or DEFAULT_SIZE
