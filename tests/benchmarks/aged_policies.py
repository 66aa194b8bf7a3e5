"""Makes policies of different quality: copies of one training at several ages."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.sweep import Value
from robolearn.operations.train import load_experiment, source_of
from robolearn.training.experiment import train
from robolearn.training.loop import Hooks, Progress

# Ages are multiples of it [updates].
EVERY = 100


def aged(
    recipe: Path,
    store: Path,
    ages: Sequence[int],
    runs: Sequence[Path],
    settings: Mapping[str, Value] | None = None,
) -> None:
    """Train by ``recipe`` until the last of ``ages`` [updates], rising; at each the run as it is
    then becomes one of ``runs``. What is there already is left as it is.
    """
    if any(age % EVERY for age in ages):
        raise ValueError(f"ages must be multiples of {EVERY}, got {list(ages)}")
    if all(run.is_dir() for run in runs):
        return
    growing = runs[-1].with_name(f"{runs[-1].name}.growing")
    shutil.rmtree(growing, ignore_errors=True)
    told = {"fit.steps": ages[-1], "fit.max_minutes": None, "fit.evaluate_every": EVERY}
    experiment = load_experiment(recipe, {**told, **(settings or {})})
    wanted = dict(zip(ages, runs, strict=True))
    seen: list[int] = []

    def keep() -> Mapping[str, float]:
        run = wanted.get(seen[-1])
        if run is not None:
            whole = run.with_name(f"{run.name}.copying")
            shutil.copytree(growing, whole, dirs_exist_ok=True)
            shutil.rmtree(run, ignore_errors=True)
            whole.rename(run)
        return {}

    def step(progress: Progress) -> None:
        seen.append(progress.step)

    hooks = Hooks(on_step=step, evaluate=keep)
    train(experiment, source_of(experiment, store), growing, hooks=hooks)
    shutil.rmtree(growing)
