"""Draws the lab's workcell from joint angles and poses, away from the running physics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from robolearn.arms.shapes import Joints
from robolearn.geometry import PlanarPose
from robolearn.shapes import Picture


@runtime_checkable
class Drawable(Protocol):
    """A plant of the lab that can draw itself."""

    def set_joints(self, q: Joints) -> None:
        """Put the arm at ``q`` at rest."""
        ...

    def place_object(self, name: str, pose: PlanarPose) -> None:
        """Put an object at rest at ``[x, y, yaw]``."""
        ...

    def picture(self, view: str, width: int, height: int) -> Picture:
        """A picture ``[height, width, 3]``."""
        ...

    def close(self) -> None:
        """Release the engine."""
        ...


class PlantView:
    """Draws any state of a workcell; for pictures on demand and for videos of episodes.

    ``plant`` is this view's own.
    """

    def __init__(self, plant: Drawable) -> None:
        self._plant = plant

    def draw(
        self,
        view: str,
        width: int,
        height: int,
        q: Joints,
        poses: Mapping[str, PlanarPose],
    ) -> Picture:
        """A picture ``[height, width, 3]`` with joints at ``q [6]`` and objects at ``[x, y, yaw]``.

        ``view`` is ``top`` (the table square, y up; the arm above its flange is cut away) or
        ``perspective``.
        """
        self._plant.set_joints(q)
        for name, pose in poses.items():
            self._plant.place_object(name, pose)
        return self._plant.picture(view, width, height)

    def close(self) -> None:
        """Release the engine; safe to call twice."""
        self._plant.close()
