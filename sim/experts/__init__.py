"""Scripted experts of tasks: agents that read signals and nothing else."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping

from robolearn.contracts import Agent
from robolearn.errors import ConfigError, did_you_mean
from robolearn.spec import EmbodimentSpec
from robolearn.types import Condition

# Task -> module:class or function, called with the embodiment and ``noise`` in [0, 1]: 0 is as good
# as the expert can, 1 is useless.
EXPERTS: dict[str, str] = {
    "pusht": "sim.experts.pusht.expert:PushTExpert",
    "pick_place": "sim.experts.pick_place:expert",
    "stacking": "sim.experts.stacking:expert",
    "drawer": "sim.experts.drawer:expert",
    "insertion": "sim.experts.insertion:expert",
    "play_table": "sim.experts.play_table:expert",
    "lift_bar": "sim.experts.lift_bar:LiftBarExpert",
    "robosuite_Lift": "sim.experts.robosuite:lift",
    "robosuite_Can": "sim.experts.robosuite:can",
    "reach": "sim.experts.reach:ReachExpert",
}

# Task -> module:Class of agents that play: many goals, none of them the task's. Built alike.
PLAYERS: dict[str, str] = {
    "pusht": "sim.experts.pusht.play:PushTPlay",
    "play_table": "sim.experts.play_table:player",
}


def build_expert(task: str, spec: EmbodimentSpec, noise: float = 0.0) -> Agent:
    """The expert of ``task`` for this embodiment; :class:`ConfigError` says which tasks exist."""
    return _build(EXPERTS, "scripted expert", task, spec, noise)


def build_player(task: str, spec: EmbodimentSpec, noise: float = 0.0) -> Agent:
    """The play generator of ``task`` for this embodiment."""
    return _build(PLAYERS, "play generator", task, spec, noise)


def play_condition(condition: Condition) -> Condition:
    """The same start for play: where a condition names wanted sub-goals, none is."""
    wanted = {n: (0.0,) * len(v) for n, v in condition.poses.items() if n == "goal/wanted"}
    return dataclasses.replace(condition, poses={**condition.poses, **wanted})


def _build(
    table: Mapping[str, str], what: str, task: str, spec: EmbodimentSpec, noise: float
) -> Agent:
    if task not in table:
        raise ConfigError(
            f"no {what} for task '{task}'.{did_you_mean(task, table)} Tasks with one:"
            f" {sorted(table)}"
        )
    if not 0.0 <= noise <= 1.0:
        raise ConfigError(f"the noise of an expert is 0 to 1, got {noise:g}")
    module, _, kind = table[task].partition(":")
    return getattr(importlib.import_module(module), kind)(spec, noise=noise)
