"""Turns a person's axes (x forward, y left, z up) into those of the frame that is commanded.

frame            forward                                   up
table            ``heading_rad``                           away from the table
tool             the tool's, as if it pointed up           the same
camera           into the picture                          up in the picture
camera_heading   level; what is up or away in the picture  away from the table

A camera's axes are those of vision: x right, y down, z into the picture. One that rides on the arm
is asked at every tick where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hardware.teleop.config import MappingConfig
from hardware.teleop.targets import XY_TABLE, JointTarget, ToolTarget
from robolearn.arms.shapes import Twist
from robolearn.errors import ConfigError
from robolearn.geometry import Pose, Rotation, pose, rot_x, rot_z, rotation_from_rotvec
from robolearn.types import Observation

# The person's forward, left and up as a camera's x, y and z count (the columns).
_R_CAMERA_PERSON = np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])
# A picture whose right is steeper than 60 degrees has no heading.
_LEAST_LEVEL = 0.5
_TURNS_ONLY_LEVEL = (0.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Eye:
    """A camera: ``look``: its axes ``[3, 3]`` in the commanded frame, as it stood when that was
    observed; ``heading_rad``: where level forward is in its picture before anything moved, None
    where that is not known (it ``rides`` on an arm that was not seen yet) or not there.
    """

    look: Callable[[Observation], Rotation]
    heading_rad: float | None
    rides: bool


class PersonAxes:
    """Those of one mapping; ``eye``: of the camera that it names."""

    def __init__(self, config: MappingConfig, target: ToolTarget, eye: Eye | None) -> None:
        self._config, self._eye = config, eye if config.by_camera else None
        if config.by_camera and eye is None:
            raise ConfigError(
                f"mapping: nobody knows here where the camera '{config.camera}' is; drive in"
                " frame: table (heading_rad: the camera's yaw) or tool"
            )
        sideways = eye is not None and eye.heading_rad is None and not eye.rides
        if config.frame == "camera_heading" and sideways:
            raise self._on_its_side()
        if config.frame == "camera" and target.spec.name == XY_TABLE:
            raise ConfigError(
                f"mapping: '{XY_TABLE}' has no up and down, which the axes of a picture need; use"
                " frame: camera_heading"
            )
        heading = config.heading_rad
        if heading is None:
            # A table is looked at from above: forward is up the picture.
            heading = math.pi / 2 if target.spec.name == XY_TABLE else 0.0
        self._R_frame_person: Rotation | None = None if config.by_camera else rot_z(heading)
        self._free = target.free
        # What turns about one axis only is turned about it by whoever turns the device.
        self._level = tuple(target.free[3:]) == _TURNS_ONLY_LEVEL

    def see(self, observation: Observation) -> None:
        """Where the camera is now. ConfigError for one that never had a heading."""
        if self._eye is None:
            return
        R = self._eye.look(observation)
        if self._config.frame == "camera":
            self._R_frame_person = R @ _R_CAMERA_PERSON
            return
        heading = heading_of(R)
        if heading is not None:
            self._R_frame_person = rot_z(heading)
        elif self._R_frame_person is None:
            raise self._on_its_side()

    def _on_its_side(self) -> ConfigError:
        return ConfigError(
            f"mapping: the camera '{self._config.camera}' lies on its side, so its picture has no"
            " level right: use frame: camera"
        )

    def rotation(self, at: Pose) -> Rotation:
        """Of the person's axes, in the commanded frame."""
        if self._config.frame == "tool":
            # The z axis of a tool points out of it, a person's z axis points up.
            return at[:3, :3] @ rot_x(math.pi)
        if self._R_frame_person is None:
            raise ConfigError("mapping: the camera was not looked at yet (PersonAxes.see)")
        return self._R_frame_person

    def moved(self, at: Pose, change: Twist) -> Pose:
        """``at`` moved by ``change`` [m, rad] along and about the person's axes."""
        R = self.rotation(at)
        turn = change[3:] if self._level else R @ change[3:]
        free = np.concatenate([R @ change[:3], turn]) * self._free
        return pose(rotation_from_rotvec(free[3:]) @ at[:3, :3], at[:3, 3] + free[:3])


def axes_of(
    config: MappingConfig, target: ToolTarget | JointTarget, eye: Eye | None
) -> PersonAxes | None:
    """Of a tool; None for joints, which have none. ConfigError where a camera should say which."""
    if isinstance(target, ToolTarget):
        return PersonAxes(config, target, eye)
    if config.by_camera:
        raise ConfigError(
            f"mapping: '{target.spec.name}' names joints, which have no axes of a camera: leave"
            " frame and camera out"
        )
    return None


def heading_of(R_frame_camera: Rotation) -> float | None:
    """Where level forward is for who looks at a picture [rad]: a quarter turn left of its right;
    None for a picture that lies on its side.
    """
    x, y = float(R_frame_camera[0, 0]), float(R_frame_camera[1, 0])
    return math.atan2(x, -y) if math.hypot(x, y) > _LEAST_LEVEL else None
