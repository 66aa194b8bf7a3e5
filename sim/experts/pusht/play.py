"""Plays in Push-T: pushes the block to one place after another, none of them the task's goal.

What the next push does depends on a goal that no signal shows, so the data is multi-modal and
non-Markov; between two goals the tool sometimes wanders off.
"""

from __future__ import annotations

import numpy as np

from robolearn.geometry import PlanarPose
from robolearn.pusht import BLOCK
from robolearn.seeding import child_seed
from robolearn.spec import EmbodimentSpec
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput
from sim.experts.pusht import model
from sim.experts.pusht.expert import PushTExpert
from sim.experts.pusht.plan import PlanConfig

# A goal is given up after this time [s], and reached when the block is this near [m].
PATIENCE_S, NEAR_M = 8.0, 0.02
# Goals are drawn in the middle of the table [m].
LOW_M, HIGH_M = 0.13, 0.38


class PushTPlay:
    """Agent: the expert with goals of its own."""

    def __init__(
        self, spec: EmbodimentSpec, noise: float = 0.0, plan: PlanConfig | None = None
    ) -> None:
        self._expert = PushTExpert(spec, noise, plan)
        self._patience_ns = round(PATIENCE_S * 1e9)
        self.reset(0)

    @property
    def name(self) -> str:
        """Who decides, for provenance."""
        return self._expert.name.replace("scripted:", "play:")

    def reset(self, seed: int) -> None:
        """A new episode; goals and routes come from ``seed``."""
        self._expert.reset(seed)
        self._rng = np.random.default_rng(child_seed(seed, "play"))
        self._goal: PlanarPose | None = None
        self._until_ns = 0

    @property
    def goal(self) -> PlanarPose | None:
        """The pose ``[3]`` that the block is being pushed to."""
        return self._goal

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The next target of the tool; a new goal when the last one is reached or given up."""
        pose = model.to_centre(np.asarray(observation.value(BLOCK), dtype=np.float64))
        goal = self._goal
        reached = goal is None or model.pose_error(pose, model.to_centre(goal)) < NEAR_M
        if reached or observation.t_ns > self._until_ns:
            xy = self._rng.uniform(LOW_M, HIGH_M, 2)
            self._goal = np.array([*xy, self._rng.uniform(-np.pi, np.pi)])
            self._goal = model.from_centre(self._goal)
            self._until_ns = observation.t_ns + self._patience_ns
            self._expert.aim(self._goal)
        return self._expert.decide(observation, reply)
