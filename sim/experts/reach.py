"""Reaches: straight to the goal in joint space, no joint faster than a speed."""

from __future__ import annotations

import numpy as np

from robolearn.agents.actions import clip_action
from robolearn.errors import SpecMismatchError
from robolearn.seeding import child_seed
from robolearn.spec import EmbodimentSpec
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput
from sim.tasks.reach import GOAL, JOINTS

SPEED = 0.8
"""Speed of the joint with the longest way [rad/s]."""


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
        """One step along the straight line from the measured posture to the goal."""
        del reply
        self._seq += 1
        q, goal = observation.value(JOINTS), observation.value(GOAL)
        way = goal - q
        longest = float(np.abs(way).max())
        target = q + way * min(1.0, 2.0 * self._step / max(longest, 1e-9))
        target = target + 0.1 * self._noise * self._rng.uniform(-1.0, 1.0, len(q))
        action = clip_action(self._actions, {JOINTS: target})
        return Command(self._seq, action, observation.t_ns, "scripted")
