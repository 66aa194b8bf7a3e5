"""Finds the task that judges a deployment, with its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.trials.suites import Suite
from hardware.cell.config import CellConfig
from robolearn.errors import ConfigError, SceneError
from sim.scene.load import load_scene, packaged_scenes
from sim.tasks.contract import Task
from sim.tasks.registry import build_task


def task_of(suite: Suite, cell: CellConfig, robot: Path, where: Path) -> Task:
    """The task of a suite, with the parameters of the cell (``robot.task_params``), else those of
    the scene that the suite's data comes from.

    ConfigError says which are missing and where they belong; ``robot``, ``where``: the files.
    """
    name = suite.config.task
    params = dict(cell.task_params) or _of_scene(suite)
    try:
        return build_task(name, params, where=str(where))
    except SceneError as error:
        raise ConfigError(
            f"{error}. Give them as 'task_params' in the section 'robot' of {robot}, or name in"
            f" 'source_world' of {where} the scene whose task has them (now:"
            f" '{suite.config.source_world}')"
        ) from error


def _of_scene(suite: Suite) -> Mapping[str, Any]:
    world = suite.config.source_world
    if world not in packaged_scenes() and not Path(world).is_dir():
        return {}
    task = load_scene(world).config.task
    return task.params if task.name == suite.config.task else {}
