"""Finds tasks by name, those of installed packages among them, and builds them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import SceneError, did_you_mean
from robolearn.table import CALLABLE, Table
from robolearn.types import Signals
from sim.shapes import Values
from sim.tasks.contract import Task

TASKS = Table[Callable[..., Task]](
    {
        "pusht": "sim.tasks.pusht:PushT",
        "free": "sim.tasks.free:Free",
        "lift_bar": "sim.tasks.lift_bar:LiftBar",
        "pick_place": "sim.tasks.pick_place:PickPlace",
        "stacking": "sim.tasks.stacking:Stacking",
        "drawer": "sim.tasks.drawer:Drawer",
        "insertion": "sim.tasks.insertion:Insertion",
        "play_table": "sim.tasks.play_table:PlayTable",
        "reach": "sim.tasks.reach:Reach",
    },
    what="task",
    group="robolearn.tasks",
    wanted=CALLABLE,
)
# ``task/signal`` of kind ``derived`` -> the function from the other signals to its values.
DERIVED = Table[Callable[[Signals], NDArray[np.float64]]](
    {"play_table/goal/achieved": "sim.tasks.play_table:achieved"},
    what="derived signal",
    group="robolearn.derived_signals",
    wanted=CALLABLE,
)


def derived_signal(task: str, signal: str, where: str) -> Callable[[Signals], Values]:
    """The function behind a derived signal; the error lists what the task derives."""
    known = [n.removeprefix(f"{task}/") for n in DERIVED if n.startswith(f"{task}/")]
    if signal not in known:
        raise SceneError(
            f"{where}: task '{task}' derives no signal '{signal}'."
            f"{did_you_mean(signal, known)} It derives: {sorted(known)}"
        )
    return DERIVED.find(f"{task}/{signal}")


def takes_sizes(name: str) -> bool:
    """Whether a task judges by the sides of its objects: a parameter ``sizes_m``, by signal."""
    task = TASKS.find(name, error=SceneError, where="task.name")
    return "sizes_m" in inspect.signature(task).parameters


def build_task(name: str, params: Mapping[str, Any], where: str = "scene.yaml") -> Task:
    """Build a task with its parameters; :class:`SceneError` says which tasks and which parameters
    exist.
    """
    task = TASKS.find(name, error=SceneError, where=f"{where}: task.name")
    known = inspect.signature(task).parameters
    missing = [n for n, p in known.items() if p.default is p.empty and n not in params]
    unknown = [n for n in params if n not in known]
    if missing or unknown:
        raise SceneError(
            f"{where}: task.params of '{name}': missing {missing}, unknown {unknown}; it has"
            f" {list(known)}"
        )
    try:
        return task(**params)
    except (TypeError, ValueError) as error:
        raise SceneError(f"{where}: task.params: {error}") from error
