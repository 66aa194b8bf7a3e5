"""A policy that goes straight to the goal of a cell that is commanded by its joints.

The policy's own process imports this module: what a deployment imports would take it seconds.
"""

from dataclasses import dataclass

import numpy as np

from hardware.cell.motion import JOINT_POSITION
from robolearn.contracts import PolicySpec
from robolearn.spec import ActionSpec, SignalSpec, TaskSpace
from robolearn.types import PolicyInput, PolicyOutput

GOAL = "goal/joint_position"


@dataclass(frozen=True)
class BuildReach:
    """Picklable builder of a policy that goes straight to the goal."""

    joints: int

    def __call__(self):
        return ReachPolicy(self.joints)


class ReachPolicy:
    """Action i of a chunk is i + 1 tenths of a radian nearer to the goal."""

    def __init__(self, joints):
        shape = (joints,)
        seen = (SignalSpec(JOINT_POSITION, shape, "rad", 10.0), SignalSpec(GOAL, shape, "rad", 0.0))
        action = ActionSpec(JOINT_POSITION, shape, "rad", 10.0)
        self.spec = PolicySpec(TaskSpace(seen, (action,), 10.0), n_obs=1, horizon=8, execute=4)

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        q, goal = (request.observations[k][:, -1] for k in (JOINT_POSITION, GOAL))
        way = np.linspace(0.1, 0.8, 8)[None, None, :, None]
        actions = q[:, None, None] + np.clip((goal - q)[:, None, None], -way, way)
        return PolicyOutput(actions, np.zeros((1, n)), request.t_ns)
