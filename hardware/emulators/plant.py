"""Defines what an emulator needs of the physics behind it.

Emulators speak wire protocols and know nothing of an engine; ``robolearn.operations.lab`` hands
them an object that satisfies :class:`Plant` (``sim.plants.pusht.PyBulletPlant``, or
:class:`KinematicPlant` here for tests of a protocol alone).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from robolearn.arms.shapes import JointFlags, Joints
from robolearn.geometry import ObjectPose, RotvecPose, Vector


@runtime_checkable
class Plant(Protocol):
    """A workcell that can be stepped: one arm and named objects on a table.

    Poses of objects are in the table frame: ``[x, y, yaw]`` [m, m, rad] of what stays on the table,
    ``[x, y, z, qw, qx, qy, qz]`` of what moves in space.
    """

    @property
    def time_s(self) -> float:
        """Simulated time since construction [s]."""
        ...

    @property
    def object_names(self) -> tuple[str, ...]:
        """Names that :meth:`place_object` and :meth:`true_pose` accept."""
        ...

    def joint_positions(self) -> Joints:
        """Joint angles ``[6]`` [rad]."""
        ...

    def joint_velocities(self) -> Joints:
        """Joint velocities ``[6]`` [rad/s]."""
        ...

    def joint_torques(self) -> Joints:
        """Motor torques ``[6]`` [N m] of the last step."""
        ...

    def tool_pose(self) -> RotvecPose:
        """Tool centre in the arm's base frame: ``[x, y, z, rx, ry, rz]`` [m, rotation vector]."""
        ...

    def tool_force(self) -> Vector:
        """Contact force on the tool in the arm's base frame ``[3]`` [N] of the last step."""
        ...

    def set_joint_targets(self, q: Joints, qd: Joints) -> None:
        """Targets of the joint servos: angles ``[6]`` [rad] and feed-forward speed [rad/s]."""
        ...

    def set_joints(self, q: Joints) -> None:
        """Put the arm at ``q`` at rest (only before serving)."""
        ...

    def step(self, dt_s: float) -> None:
        """Advance the physics by ``dt_s`` [s]."""
        ...

    def place_object(self, name: str, pose: ObjectPose) -> None:
        """Put an object at rest, as a person's hand would; what moves in space takes
        ``[x, y, yaw]``, too: it then lies on the table.
        """
        ...

    def true_pose(self, name: str) -> ObjectPose:
        """Where the object really is; for scoring, never for a policy."""
        ...

    def close(self) -> None:
        """Release the engine; safe to call twice."""
        ...


@runtime_checkable
class ServoPlant(Plant, Protocol):
    """A plant whose motors can be switched off one by one: an arm of serial servos."""

    def set_powered(self, powered: JointFlags) -> None:
        """Which motors ``[n]`` hold their joint; the others are limp."""
        ...

    def full_torque(self) -> Joints:
        """Largest motor torques ``[n]`` [N m]."""
        ...


@runtime_checkable
class FingerPlant(Protocol):
    """The parallel gripper of a plant."""

    @property
    def stroke_m(self) -> float:
        """Largest distance of the fingers [m]."""
        ...

    def width(self) -> float:
        """Distance of the fingers [m]."""
        ...

    def set_target(self, width_m: float, force_share: float) -> None:
        """Where the fingers' servo pulls [m], with at most this share of its force."""
        ...

    def object_height(self, name: str) -> float:
        """Height of an object's centre over the table [m]; for scoring, never for a policy."""
        ...


class KinematicPlant:
    """Joints follow their targets within one step, objects stay where they are put.

    For tests of a protocol without an engine. ``tool_pose`` and ``tool_force`` are zero.
    """

    def __init__(self, q: Joints, objects: dict[str, ObjectPose] | None = None) -> None:
        self._q = np.array(q, dtype=np.float64)
        self._qd = np.zeros_like(self._q)
        self._target = self._q.copy()
        self._objects = {k: np.array(v, dtype=np.float64) for k, v in (objects or {}).items()}
        self._time_s = 0.0

    @property
    def time_s(self) -> float:
        """Simulated time [s]."""
        return self._time_s

    @property
    def object_names(self) -> tuple[str, ...]:
        """Names of the objects."""
        return tuple(self._objects)

    def joint_positions(self) -> Joints:
        """Joint angles [rad]."""
        return self._q.copy()

    def joint_velocities(self) -> Joints:
        """Joint velocities [rad/s]."""
        return self._qd.copy()

    def joint_torques(self) -> Joints:
        """Zero."""
        return np.zeros_like(self._q)

    def tool_pose(self) -> RotvecPose:
        """Zero: this plant has no geometry."""
        return np.zeros(6)

    def tool_force(self) -> Vector:
        """Zero: this plant has no contacts."""
        return np.zeros(3)

    def set_joint_targets(self, q: Joints, qd: Joints) -> None:  # noqa: ARG002  (exact tracking)
        """The angles that the next step reaches."""
        self._target = np.array(q, dtype=np.float64)

    def set_powered(self, powered: JointFlags) -> None:
        """Nothing: without weight a limp joint stays where it is."""

    def full_torque(self) -> Joints:
        """One, of motors that never need any."""
        return np.ones_like(self._q)

    def set_joints(self, q: Joints) -> None:
        """Put the arm at ``q`` at rest."""
        self._q = np.array(q, dtype=np.float64)
        self._target = self._q.copy()
        self._qd = np.zeros_like(self._q)

    def step(self, dt_s: float) -> None:
        """Reach the target."""
        self._qd = (self._target - self._q) / dt_s
        self._q = self._target.copy()
        self._time_s += dt_s

    def place_object(self, name: str, pose: ObjectPose) -> None:
        """Put an object somewhere."""
        self._objects[name] = np.array(pose, dtype=np.float64)

    def true_pose(self, name: str) -> ObjectPose:
        """Where the object is."""
        return self._objects[name].copy()

    def close(self) -> None:
        """Nothing to release."""
