"""Defines what decides set-points inside the supervisor: targets in, joint set-points out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hardware.shapes import Action
from hardware.supervisor.link import Target
from robolearn.arms.differential import Limited
from robolearn.arms.shapes import Joints
from robolearn.arms.slowing import Slowed


@dataclass(frozen=True, slots=True)
class Leeway:
    """Distance to the nearest joint limit [rad], and of the tool to the border of its workspace
    [m] (infinite without one); negative outside.
    """

    joint_rad: float
    tool_m: float


@runtime_checkable
class Follower(Protocol):
    """Turns targets (on the table, in joint space) into joint set-points within the limits."""

    def start(self, q: Joints) -> None:
        """At rest at joint positions ``q`` [rad]."""
        ...

    @property
    def far(self) -> float:
        """Targets further outside than this are no rounding: whoever sends them is out of order."""
        ...

    def outside(self, value: Action) -> float:
        """How far a target ``[w]`` lies outside workspace or limits, per component; 0 inside."""
        ...

    def target(self, target: Target, now_ns: int) -> bool:
        """Follow this from now on; False when it had to be clipped to workspace or limits."""
        ...

    def step(self, dt_s: float, now_ns: int, *, moving: bool) -> Joints:
        """The next set-point [rad]; ``moving=False`` decelerates along the plan, then holds."""
        ...

    @property
    def limited(self) -> Limited:
        """What keeps the newest set-point back from what was commanded; not the limits of speed and
        acceleration, which a target that jumped meets at every step.
        """
        ...

    def limit_of(self, slowed: Slowed) -> tuple[float, float]:
        """Value and limit of the event that tells it."""
        ...

    @property
    def at_rest(self) -> bool:
        """True when the set-point stands still."""
        ...

    def action(self, q: Joints) -> Action:
        """The action ``[w]`` that joint positions ``q`` carry out (tool on the table, or ``q``)."""
        ...

    def rest(self, q: Joints, qd: Joints) -> Joints:
        """Where braking from ``q`` [rad] at ``qd`` [rad/s] would end ``[joints]`` [rad]."""
        ...

    @property
    def acceleration(self) -> float:
        """Limit of the norm of the action's acceleration [m/s^2 or rad/s^2]."""
        ...

    @property
    def tool_speed(self) -> float:
        """Limit of the tool's speed [m/s]; infinite where there is none."""
        ...

    def travel(self, one: Joints, two: Joints) -> float:
        """How far the tool moves between two set-points [m]."""
        ...

    def violation(
        self, q: Joints, before: Joints | None, dt_s: float, *, guided: bool = False
    ) -> str:
        """Why ``q``, ``dt_s`` after ``before``, must not be sent ("" when it may);
        ``guided``: it is one of a guided move, not of :meth:`step`.
        """
        ...

    def leeway(self, q: Joints) -> Leeway:
        """How far ``q`` [rad] is from what :meth:`violation` says of it alone."""
        ...

    def rough(self, q: Joints) -> str:
        """The same for acceleration and jerk of what :meth:`step` gave since the start."""
        ...
