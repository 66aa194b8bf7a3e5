"""The task: bring the tool over a line. And the expert that does it."""

import numpy as np

from robolearn.errors import ConfigError
from robolearn.types import Command, Condition, Outcome

TOOL = "tool/xy_table"


class Slide:
    """Success: the tool's x is at least ``line_m`` [m]."""

    name = "slide"
    distributions = ("left",)
    max_steps = 100
    failures = ()

    def __init__(self, line_m=0.4):
        if not 0.1 < line_m < 0.5:
            raise ConfigError(f"slide: line_m is between 0.1 and 0.5 m, got {line_m}")
        self._line_m = line_m

    def reset(self):
        """Nothing is kept."""

    def check(self, poses):
        """Every start is fine."""

    def judge(self, values):
        """Judge the tool; progress is the share of the way."""
        x = float(values[TOOL][0])
        success = x >= self._line_m
        progress = min(1.0, max(0.0, x / self._line_m))
        return Outcome(success, progress, progress, terminal=success)

    def sample_condition(self, seed):
        """A start at the left border; a pure function of ``seed``."""
        y = float(np.random.default_rng(seed).uniform(0.1, 0.4))
        return Condition(id=f"slide-{seed}", seed=seed, poses={TOOL: (0.05, y)})


class SlideExpert:
    """Goes to the right."""

    name = "scripted slide"

    def __init__(self, spec, *, noise=0.0):
        self._step_m = 0.03 * (1.0 - noise)

    def reset(self, seed):
        """An episode starts."""
        self._seq = -1

    def request(self, observation):
        """Nothing is inferred."""

    def decide(self, observation, reply):
        """One step to the right of where the tool is."""
        self._seq += 1
        target = observation.value(TOOL) + np.array([self._step_m, 0.0])
        action = {TOOL: np.clip(target, 0.0, 0.5)}
        return Command(self._seq, action, observation.t_ns, "scripted")
