"""Two trained runs and a short suite: what commands that compare policies are given."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from eval.trials.suites import load_suite, suite_yaml
from policies.imitation.flow import FlowConfig
from robolearn.data.reading.selection import DataConfig
from robolearn.training.experiment import Experiment, train
from robolearn.training.loop import FitConfig
from tests.learning_mocks import random_source

PUSHT = Path(__file__).parents[1] / "configs" / "eval" / "pusht.yaml"


def two_runs(folder: Path, data: DataConfig, max_steps: int) -> Path:
    """Runs ``one`` and ``two`` of different seeds, and ``short.yaml`` with two conditions."""
    config = FlowConfig(n_obs=2, horizon=8, execute=4, width=16, blocks=1, batch_size=8)
    fit = FitConfig(steps=2, warmup=1, log_every=1, checkpoint_every=2)
    for seed, name in enumerate(("one", "two")):
        experiment = Experiment("flow", data, config, fit, seed=seed)
        train(experiment, random_source(), folder / name, cache_dir=folder / "cache")
    suite = load_suite(PUSHT).config
    short = dataclasses.replace(suite, name="short", max_steps=max_steps, subset=2)
    (folder / "short.yaml").write_text(suite_yaml(short))
    return folder
