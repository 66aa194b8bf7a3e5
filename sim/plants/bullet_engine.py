"""Steps the lab's PyBullet plants: a client, the joints of one body, servos."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError, PhysicsDivergedError
from robolearn.geometry import Vector
from sim.plants.urdf import bullet


def engine_steps(dt_s: float, step_s: float) -> int:
    """How many engine steps of ``step_s`` a control period of ``dt_s`` [s] is; at least one."""
    steps = round(dt_s / step_s)
    if steps < 1 or abs(steps * step_s - dt_s) > 1e-9:
        raise ConfigError(
            f"the plant steps at {1.0 / step_s:g} Hz; {dt_s} s is no multiple of that"
        )
    return steps


@dataclass(frozen=True, slots=True)
class _Servos:
    """What the motors are told, and where they were told to be ``before``."""

    before: Joints
    q: Joints
    qd: Joints
    gain: float
    max_torque: Sequence[float]


class BulletEngine:
    """One physics client at a fixed rate, and the arm in it whose joints are measured.

    ``p``: the engine, whose calls take :attr:`id`; ``body``: the arm's number in it. ``q``,
    ``qd``, ``torque``: joint angles [rad], velocities [rad/s] and motor torques [N m] after the
    last step.
    """

    def __init__(self, step_hz: float) -> None:
        self.p = bullet()
        self._dt_s = 1.0 / step_hz
        self._client: int | None = None
        self.body = -1
        self.time_s = 0.0
        self.q = self.qd = self.torque = np.zeros(0)
        self._servos: _Servos | None = None
        # What touched what in the engine steps of the last period, where it had several.
        self._touched: list[Any] = []

    @property
    def id(self) -> dict[str, int]:
        """Keyword of every call of the engine."""
        if self._client is None:
            raise PhysicsDivergedError("the plant is closed")
        return {"physicsClientId": self._client}

    def restart(self) -> None:
        """A new, empty world at time 0."""
        self.close()
        self._client = int(self.p.connect(self.p.DIRECT))
        self.time_s = 0.0
        self._servos, self._touched = None, []
        self.p.setGravity(0.0, 0.0, -9.81, **self.id)
        self.p.setPhysicsEngineParameter(
            fixedTimeStep=self._dt_s, numSolverIterations=60, **self.id
        )

    def mount(self, body: int, joints: list[int]) -> None:
        """Measure these joints of ``body`` from now on."""
        self.body, self._joints = body, joints

    def put(self, q: Joints) -> None:
        """Put the joints at ``q`` at rest."""
        for joint, angle in zip(self._joints, q.tolist(), strict=True):
            self.p.resetJointState(self.body, joint, angle, 0.0, **self.id)
        self._servos, self._touched = None, []

    def servo(self, q: Joints, qd: Joints, gain: float, max_torque: Sequence[float]) -> None:
        """Targets of the joints [rad], [rad/s]; ``gain``: share of the position error that is
        corrected per engine step; torques [N m]. In a period of several engine steps they go there
        evenly, as a drive does that is told less often than it acts.
        """
        before = q if self._servos is None else self._servos.q
        self._servos = _Servos(before, q.copy(), qd.copy(), gain, max_torque)
        self._command(1.0)

    def _command(self, share: float) -> None:
        """Tell the motors, so much of the way to the newest targets."""
        told = self._servos
        if told is None:
            return
        q = told.before + share * (told.q - told.before) if share < 1.0 else told.q
        self.p.setJointMotorControlArray(
            *(self.body, self._joints, self.p.POSITION_CONTROL),
            targetPositions=q.tolist(),
            targetVelocities=told.qd.tolist(),
            positionGains=[told.gain] * len(self._joints),
            velocityGains=[1.0] * len(self._joints),
            forces=told.max_torque,
            **self.id,
        )

    def contact_force(self, links: Sequence[int]) -> Vector:
        """Sum of the contact forces ``[3]`` [N] on these links of the measured body, base frame,
        averaged over the engine steps of the last period.
        """
        force = np.zeros(3)
        touched = self._touched or [self.p.getContactPoints(**self.id)]
        # Asked for one body, the engine turns the normals towards it and not the frictions.
        for c in itertools.chain(*touched):
            on_a, on_b = (c[i] == self.body and c[i + 2] in links for i in (1, 2))
            if on_a != on_b:
                force += acting_on_first(c) if on_a else -acting_on_first(c)
        return force / len(touched)

    def step(self, dt_s: float) -> None:
        """Advance by ``dt_s`` [s], a whole number of engine steps."""
        steps = engine_steps(dt_s, self._dt_s)
        self._touched = []
        for i in range(steps):
            if steps > 1:
                self._command((i + 1) / steps)
            self.p.stepSimulation(**self.id)
            if steps > 1:
                self._touched.append(self.p.getContactPoints(**self.id))
        if self._servos is not None:
            # Nobody may tell anything new: then they stay.
            self._servos = dataclasses.replace(self._servos, before=self._servos.q)
        self.time_s += dt_s
        self.read()

    def read(self) -> None:
        """Measure; raises :class:`PhysicsDivergedError` for what is not finite."""
        states = self.p.getJointStates(self.body, self._joints, **self.id)
        self.q = np.array([s[0] for s in states])
        self.qd = np.array([s[1] for s in states])
        self.torque = np.array([s[3] for s in states])
        if not np.isfinite(self.q).all():
            raise PhysicsDivergedError("joint angles of the lab's arm are not finite")

    def close(self) -> None:
        """Disconnect; safe to call twice."""
        if self._client is not None:
            self.p.disconnect(**self.id)
            self._client = None


def acting_on_first(contact: Sequence[Any]) -> Vector:
    """Force ``[3]`` [N] on the first body of a row of ``getContactPoints``: along the normal and
    both directions of friction.
    """
    c = contact
    return np.array(c[7]) * c[9] + np.array(c[11]) * c[10] + np.array(c[13]) * c[12]
