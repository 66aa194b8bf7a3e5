"""Finds the scripted experts and play generators of tasks, and builds them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

from robolearn.contracts import Agent
from robolearn.errors import ConfigError
from robolearn.spec import EmbodimentSpec
from robolearn.table import CALLABLE, Table
from robolearn.types import Condition

NO_PARAMS: Mapping[str, Any] = MappingProxyType({})


class ExpertMaker(Protocol):
    """What an entry of the tables is: a class of agents or a function that makes one."""

    def __call__(self, spec: EmbodimentSpec, *, noise: float, **params: Any) -> Agent:
        """The agent for an embodiment."""
        ...


# Task -> class or function, called with the embodiment and ``noise`` in [0, 1]: 0 is as good
# as the expert can, 1 is useless.
EXPERTS = Table[ExpertMaker](
    {
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
    },
    what="scripted expert for task",
    group="robolearn.experts",
    wanted=CALLABLE,
)

# Task -> agents that play: many goals, none of them the task's. Built alike.
PLAYERS = Table[ExpertMaker](
    {
        "pusht": "sim.experts.pusht.play:PushTPlay",
        "play_table": "sim.experts.play_table:player",
        "reach": "sim.experts.reach:ReachPlay",
    },
    what="play generator for task",
    group="robolearn.players",
    wanted=CALLABLE,
)


def build_expert(
    task: str, spec: EmbodimentSpec, noise: float = 0.0, params: Mapping[str, Any] = NO_PARAMS
) -> Agent:
    """The expert of ``task`` for this embodiment; :class:`ConfigError` says which tasks exist.

    ``params``: those of the world's task, of which Push-T's expert must know the goal.
    """
    known = {"goal": params["goal"]} if task == "pusht" and "goal" in params else {}
    return _build(EXPERTS, task, spec, noise, known)


def build_player(task: str, spec: EmbodimentSpec, noise: float = 0.0) -> Agent:
    """The play generator of ``task`` for this embodiment."""
    return _build(PLAYERS, task, spec, noise, {})


def play_condition(condition: Condition) -> Condition:
    """The same start for play: where a condition names wanted sub-goals, none is."""
    wanted = {n: (0.0,) * len(v) for n, v in condition.poses.items() if n == "goal/wanted"}
    return dataclasses.replace(condition, poses={**condition.poses, **wanted})


def _build(
    table: Table[ExpertMaker],
    task: str,
    spec: EmbodimentSpec,
    noise: float,
    params: Mapping[str, Any],
) -> Agent:
    maker = table.find(task)
    if not 0.0 <= noise <= 1.0:
        raise ConfigError(f"the noise of an expert is 0 to 1, got {noise:g}")
    return maker(spec, noise=noise, **params)
