"""Agents that move an arm by a script, and a scorer without a task."""

import numpy as np

from hardware.cell.motion import JOINT_POSITION
from robolearn.types import Command, Outcome


class NoTask:
    """Nothing is ever achieved."""

    def reset(self):
        pass

    def judge(self, values):
        assert JOINT_POSITION in values
        return Outcome(False, 0.0, 0.0)


class Scripted:
    """An agent without a policy: ``action(k)`` is what it commands at tick ``k``."""

    name = "scripted"

    def reset(self, seed):
        self.seq = -1

    def request(self, observation):
        return None

    def decide(self, observation, reply):
        self.seq += 1
        return Command(self.seq, self.action(self.seq), observation.t_ns, "scripted")


class Wave(Scripted):
    """Moves the first joint by 10 mrad per tick, from a start [rad]."""

    name = "wave"

    def __init__(self, start):
        self.start = np.array(start)

    def action(self, k):
        q = self.start.copy()
        q[0] += 0.01 * k
        return {JOINT_POSITION: q}


class Towards(Scripted):
    """Commands the same values at every tick."""

    name = "towards"

    def __init__(self, commanded):
        self.commanded = {name: np.array(value) for name, value in commanded.items()}

    def action(self, k):
        return self.commanded
