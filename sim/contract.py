"""Defines what a simulated world is: an env that can be drawn, hashed, and asked for starts."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from robolearn.contracts import Env
from robolearn.geometry import Pose
from robolearn.shapes import Picture
from robolearn.types import Condition, Outline
from sim.rendering.cameras import Calibration


@runtime_checkable
class World(Env, Protocol):
    """A simulated env: it can be drawn, hashed, and asked for starts."""

    @property
    def engine(self) -> str:
        """Name and version of the physics engine."""
        ...

    @property
    def scene_hash(self) -> str:
        """Hex digest of everything that describes the world."""
        ...

    @property
    def task(self) -> str:
        """Name of the task."""
        ...

    @property
    def task_params(self) -> dict[str, Any]:
        """Parameters of the task that are not its defaults, as JSON values: where its goal is."""
        ...

    @property
    def max_steps(self) -> int:
        """Time limit of the task's protocol [control steps]."""
        ...

    @property
    def slowed(self) -> str:
        """What keeps an arm from all that is commanded, in words; "" for nothing."""
        ...

    def calibrations(self) -> dict[str, Calibration]:
        """How the cameras of the image signals see and where they are, as far as it is known."""
        ...

    def camera_pose(self, camera: str, frame: str) -> Pose:
        """``T_frame_camera [4, 4]`` [m] of a camera as it stands now (it looks along +z, y down) in
        one of the world's frames; :class:`SceneError` where that is not known.
        """
        ...

    def outlines(self) -> tuple[Outline, ...]:
        """What the things look like from above whose poses are signals, as far as it is known."""
        ...

    def sample_condition(self, seed: int) -> Condition:
        """A start from the reset distribution; a pure function of ``seed``."""
        ...

    def render(self, width: int, height: int) -> Picture:
        """Picture from above ``[height, width, 3]``."""
        ...
