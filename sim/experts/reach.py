"""Reaches: straight to the goal in joint space, no joint faster than a speed; or, at play, by way
of postures beside the way.
"""

from __future__ import annotations

import numpy as np

from robolearn.agents.actions import clip_action
from robolearn.arms.shapes import Joints
from robolearn.errors import SpecMismatchError
from robolearn.seeding import child_seed
from robolearn.spec import EmbodimentSpec
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput
from sim.tasks.reach import GOAL, JOINTS

SPEED = 0.8
"""Speed of the joint with the longest way [rad/s]."""
BESIDE_RAD, NEAR_RAD, PATIENCE = 0.35, 0.08, 15
"""How far a posture of play is from the way to the goal, when it counts as taken, and after how
many ticks it is given up.
"""


class ReachExpert:
    """Commands the posture that is one tick nearer; ``noise`` disturbs every command by up to
    0.1 rad.
    """

    name = "scripted reach"

    def __init__(self, spec: EmbodimentSpec, *, noise: float = 0.0) -> None:
        actions = [a for a in spec.actions if a.name == JOINTS]
        if not actions or actions[0].mode != "absolute":
            raise SpecMismatchError(
                f"the reach expert commands '{JOINTS}' (absolute); '{spec.name}' accepts"
                f" {[a.name for a in spec.actions]}"
            )
        self._actions, self._noise = actions, noise
        self._step = SPEED / spec.rate_hz
        self.reset(0)

    def reset(self, seed: int) -> None:
        """An episode starts."""
        self._rng = np.random.default_rng(child_seed(seed, "reach expert"))
        self._seq = -1

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """One step along the straight line from the measured posture to where it goes."""
        del reply
        self._seq += 1
        q = observation.value(JOINTS)
        way = self.wanted(q, observation.value(GOAL)) - q
        longest = float(np.abs(way).max())
        target = q + way * min(1.0, 2.0 * self._step / max(longest, 1e-9))
        target = target + 0.1 * self._noise * self._rng.uniform(-1.0, 1.0, len(q))
        action = clip_action(self._actions, {JOINTS: target})
        return Command(self._seq, action, observation.t_ns, "scripted")

    def wanted(self, q: Joints, goal: Joints) -> Joints:
        """Where it goes from ``q``: to the goal."""
        del q
        return goal


class ReachPlay(ReachExpert):
    """Takes postures beside the way to the goal, one after the other, and every second time the
    goal itself: so that what play saw leads around whatever the straight way leads through.
    """

    name = "reach at play"

    def reset(self, seed: int) -> None:
        """An episode starts."""
        super().reset(seed)
        self._next: Joints | None = None
        self._ticks = 0

    def wanted(self, q: Joints, goal: Joints) -> Joints:
        """The posture of now; another one where it is taken or given up."""
        self._ticks += 1
        there = self._next is not None and float(np.abs(self._next - q).max()) < NEAR_RAD
        if self._next is None or there or self._ticks > PATIENCE:
            self._ticks, beside = 0, self._rng.uniform(-BESIDE_RAD, BESIDE_RAD, len(q))
            share = self._rng.uniform()
            self._next = goal if self._rng.uniform() < 0.5 else q + share * (goal - q) + beside
        return self._next
