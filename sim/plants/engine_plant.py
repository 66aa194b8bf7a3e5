"""Tells of the arm of a PyBullet plant what its engine measures: the same for every such plant."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from robolearn.arms.shapes import Joints
from sim.plants.bullet_engine import BulletEngine


class EnginePlant(ABC):
    """One physics client; see ``hardware.emulators.plant.Plant`` for the methods' contract.

    ``engine``: its client, which runs at ``step_hz`` [Hz]; what stands in it is the subclass's.
    """

    def __init__(self, step_hz: float) -> None:
        self.engine = BulletEngine(step_hz)
        self._p = self.engine.p

    @property
    def _id(self) -> dict[str, int]:
        return self.engine.id

    @property
    def time_s(self) -> float:
        """Simulated time [s]."""
        return self.engine.time_s

    def joint_positions(self) -> Joints:
        """Joint angles [rad]."""
        return self.engine.q.copy()

    def joint_velocities(self) -> Joints:
        """Joint velocities [rad/s]."""
        return self.engine.qd.copy()

    def joint_torques(self) -> Joints:
        """Motor torques [N m] of the last step."""
        return self.engine.torque.copy()

    @abstractmethod
    def set_joint_targets(self, q: Joints, qd: Joints) -> None:
        """Targets of the joint servos [rad], [rad/s]."""

    def set_joints(self, q: Joints) -> None:
        """Put the arm at ``q`` [rad] at rest."""
        self.engine.put(q)
        self.set_joint_targets(q, np.zeros(len(q)))
        self.engine.read()

    def step(self, dt_s: float) -> None:
        """Advance by ``dt_s`` [s], a whole number of engine steps."""
        self.engine.step(dt_s)

    def close(self) -> None:
        """Disconnect; safe to call twice."""
        self.engine.close()
