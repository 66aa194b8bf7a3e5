"""Finds the task that judges a deployment, with its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.trials.suites import Suite
from hardware.cell.config import CellConfig
from robolearn.errors import ConfigError, SceneError
from robolearn.operations.goals import params_for
from robolearn.pusht import GOAL, goal_params
from sim.scene.load import load_scene, packaged_scenes
from sim.tasks.contract import Task
from sim.tasks.pusht import PushT
from sim.tasks.registry import build_task


def task_of(
    suite: Suite, cell: CellConfig, robot: Path, where: Path, run: Path | None = None
) -> Task:
    """The task of a suite, with the parameters of the cell (``robot.task_params``), else those of
    the scene that the suite's data comes from; Push-T's goal, where neither says it, is that of
    the recordings of ``run``.

    ConfigError says which are missing and where they belong; ``robot``, ``where``: the files.
    """
    name = suite.config.task
    told = f"'task_params' of {robot}" if cell.task_params else f"'source_world' of {where}"
    params = params_for(cell.task_params or _of_scene(suite), name, run, told)
    try:
        return build_task(name, params, where=str(where))
    except SceneError as error:
        raise ConfigError(
            f"{error}. Give them as 'task_params' in the section 'robot' of {robot}, or name in"
            f" 'source_world' of {where} the scene whose task has them (now:"
            f" '{suite.config.source_world}')"
        ) from error


def recorded_params(task: Task) -> dict[str, Any]:
    """What recordings say of the task, where it is not the usual one: Push-T's goal."""
    return goal_params(task.goal if isinstance(task, PushT) and task.goal != GOAL else None)


def _of_scene(suite: Suite) -> Mapping[str, Any]:
    world = suite.config.source_world
    if world not in packaged_scenes() and not Path(world).is_dir():
        return {}
    task = load_scene(world).config.task
    return task.params if task.name == suite.config.task else {}
