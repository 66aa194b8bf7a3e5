"""Tasks: what counts as progress and success, and where episodes start."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import SceneError, did_you_mean
from robolearn.types import Condition, Outcome, Signals

TASKS: dict[str, str] = {
    "pusht": "sim.tasks.pusht:PushT",
    "free": "sim.tasks.free:Free",
    "lift_bar": "sim.tasks.lift_bar:LiftBar",
    "pick_place": "sim.tasks.pick_place:PickPlace",
    "stacking": "sim.tasks.stacking:Stacking",
    "drawer": "sim.tasks.drawer:Drawer",
    "insertion": "sim.tasks.insertion:Insertion",
    "play_table": "sim.tasks.play_table:PlayTable",
    "reach": "sim.tasks.reach:Reach",
}
# Task -> signal of kind ``derived`` -> module:function from the other signals to its values.
DERIVED: dict[str, dict[str, str]] = {
    "play_table": {"goal/achieved": "sim.tasks.play_table:achieved"}
}


@runtime_checkable
class Task(Protocol):
    """Judges states; holds the sticky part of an episode's outcome."""

    @property
    def name(self) -> str:
        """The task's name in scenes, episodes and trials."""
        ...

    @property
    def distributions(self) -> tuple[str, ...]:
        """Names of the reset distributions that the task can draw from."""
        ...

    @property
    def max_steps(self) -> int:
        """Time limit of the task's protocol [control steps]."""
        ...

    @property
    def failures(self) -> tuple[str, ...]:
        """Words of its own that an episode's ``reason`` may be, besides the loop's."""
        ...

    def reset(self) -> None:
        """Forget the last episode."""
        ...

    def judge(self, values: Signals) -> Outcome:
        """The outcome now, from the newest values of the signals."""
        ...

    def check(self, poses: Mapping[str, Any]) -> None:
        """Raise :class:`DataError` for a start that the task cannot have (objects overlap)."""
        ...

    def sample_condition(self, seed: int) -> Condition:
        """A start drawn from the task's reset distribution; a pure function of ``seed``."""
        ...


def require_task(name: str, where: str) -> str:
    """Return ``module:Class`` of a task; the error lists what exists."""
    if name not in TASKS:
        raise SceneError(
            f"{where}: task.name '{name}' is unknown.{did_you_mean(name, TASKS)}"
            f" Known: {sorted(TASKS)}"
        )
    return TASKS[name]


def derived_signal(task: str, signal: str, where: str) -> Callable[[Signals], NDArray[np.float64]]:
    """The function behind a derived signal; the error lists what the task derives."""
    known = DERIVED.get(task, {})
    if signal not in known:
        raise SceneError(
            f"{where}: task '{task}' derives no signal '{signal}'."
            f"{did_you_mean(signal, known)} It derives: {sorted(known)}"
        )
    module, _, function = known[signal].partition(":")
    return getattr(importlib.import_module(module), function)


def build_task(name: str, params: Mapping[str, Any], where: str = "scene.yaml") -> Task:
    """Build a task with its parameters."""
    module, _, kind = require_task(name, where).partition(":")
    try:
        return getattr(importlib.import_module(module), kind)(**params)
    except (TypeError, ValueError) as error:
        raise SceneError(f"{where}: task.params: {error}") from error
