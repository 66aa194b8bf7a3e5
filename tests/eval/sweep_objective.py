"""What a sweep's workers run in tests, apart from what is heavy to import: each imports it anew."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import numpy as np

from eval.sweep import Axis, Stage, SweepConfig, SweepTask
from robolearn.seeding import child_seed

CONFIG = SweepConfig(
    name="s",
    experiment="e.yaml",
    suite="s.yaml",
    world="w",
    space={"algorithm.lr": Axis(1e-4, 1e-1, log=True), "algorithm.kind": Axis(choices=("a", "b"))},
    trials=12,
    wave=4,
    stages=(Stage(10, 8), Stage(100, 20)),
    report_runs=2,
)


@dataclass(frozen=True)
class Objective:
    """Best at lr = 0.01 and kind b; seeds add noise. The worker of candidate ``die`` dies."""

    die: int = -1

    def __call__(self):
        return self.run

    def run(self, task: SweepTask) -> tuple[float, ...]:
        if task.number == self.die and task.kind == "tune":
            os.kill(os.getpid(), signal.SIGKILL)
        lr = float(task.params["algorithm.lr"])
        mean = 0.8 - 0.2 * abs(np.log10(lr) + 2) + 0.1 * (task.params["algorithm.kind"] == "b")
        n = CONFIG.stages[task.stage].conditions
        noise = np.random.default_rng(child_seed(task.seed, task.kind, task.number)).normal(
            0, 0.1, n
        )
        return tuple(float(v) for v in np.clip(mean + noise, 0, 1))
