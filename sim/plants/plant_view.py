"""Draws the lab's workcell from joint angles and poses, away from the running physics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from robolearn.arms.shapes import Joints
from robolearn.geometry import ObjectPose
from robolearn.shapes import Picture


@runtime_checkable
class Drawable(Protocol):
    """A plant of the lab that can draw itself."""

    def set_joints(self, q: Joints) -> None:
        """Put the arm at ``q`` at rest."""
        ...

    def place_object(self, name: str, pose: ObjectPose) -> None:
        """Put an object at rest."""
        ...

    def picture(self, view: str, width: int, height: int) -> Picture:
        """A picture ``[height, width, 3]``."""
        ...

    def close(self) -> None:
        """Release the engine."""
        ...


class PlantView:
    """Draws any state of a workcell; for cameras, pictures on demand and videos of episodes.

    ``plant`` is this view's own; ``put_fingers(width_m)``: its gripper, where it has one.
    """

    def __init__(self, plant: Drawable, put_fingers: Callable[[float], None] | None = None) -> None:
        self._plant, self._put_fingers = plant, put_fingers

    def draw(
        self,
        view: str,
        width: int,
        height: int,
        q: Joints,
        poses: Mapping[str, ObjectPose],
        opening_m: float | None = None,
    ) -> Picture:
        """A picture ``[height, width, 3]`` with joints at ``q [6]``, objects at ``poses`` and the
        fingers ``opening_m`` apart.

        ``view`` is ``top`` (the table square, y up; the arm above its flange is cut away),
        ``perspective``, or a camera of the scene that draws.
        """
        if opening_m is not None and self._put_fingers is not None:
            self._put_fingers(opening_m)
        self._plant.set_joints(q)
        for name, pose in poses.items():
            self._plant.place_object(name, pose)
        return self._plant.picture(view, width, height)

    def close(self) -> None:
        """Release the engine; safe to call twice."""
        self._plant.close()
