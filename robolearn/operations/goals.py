"""Puts Push-T's goal where policies learned it to be, where worlds and cells say nothing of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robolearn.errors import ConfigError
from robolearn.operations.reality.worlds import said_goal
from robolearn.pusht import GOAL, TASK_PARAMS, Pose, goal_pose
from sim.tasks.pusht import PushT
from sim.world_name import WorldName

# Goals that differ by less are the same one, written with fewer digits [m, rad].
_SAME = 1e-4


def trained_goal(run: Path) -> Pose | None:
    """Where the goal of Push-T was in the recordings of a run; None where that is not known: of
    another task, of an earlier version, of several goals.
    """
    # Imported here because it imports torch, which an expert alone does not need.
    from robolearn.training.run_directory import PROVENANCE, run_provenance

    if not (run / PROVENANCE).is_file():
        return None  # whoever loads the run says what is wrong with it
    params: Mapping[str, Any] = run_provenance(run).get(TASK_PARAMS) or {}
    return goal_pose(params["goal"], f"{run}: {TASK_PARAMS}.goal") if "goal" in params else None


def common_goal(runs: Sequence[Path]) -> Pose | None:
    """The goal that all of ``runs`` learned, as far as they say; :class:`ConfigError` if there are
    several.
    """
    goals = {run: goal for run in runs if (goal := trained_goal(run)) is not None}
    first = next(iter(goals.values()), None)
    if first is not None and not all(_same(goal, first) for goal in goals.values()):
        told = "; ".join(f"'{run}' {_words(goal)}" for run, goal in goals.items())
        raise ConfigError(f"the runs learned different goals: {told}; try them apart")
    return first


def goal_run(runs: Sequence[Path], task: str) -> Path | None:
    """The run whose recordings say where the goal is for all of ``runs``: the first that says one,
    else the first; :class:`ConfigError` if they learned several.
    """
    if task == PushT.name and common_goal(runs) is not None:
        return next(run for run in runs if trained_goal(run) is not None)
    return runs[0] if runs else None


def world_for(world: str, task: str, runs: Sequence[Path]) -> str:
    """``world`` with the goal that ``runs`` learned, where it says none itself.

    A world that says another one is a :class:`ConfigError`; worlds of other tasks stay as they are.
    """
    goal = common_goal(runs) if task == PushT.name else None
    if goal is None:
        return world
    said = said_goal(world)
    if said is None:
        return world if _same(goal, GOAL) else str(WorldName.parse(world).with_goal(goal))
    if not _same(said, goal):
        raise ConfigError(
            f"'{world}' has its goal at {_words(said)}, but the recordings of"
            f" '{runs[0]}' have it at {_words(goal)}; name a world that says no goal, or that one"
        )
    return world


def params_for(
    params: Mapping[str, Any], task: str, run: Path | None, where: str
) -> dict[str, Any]:
    """Parameters of a task on a cell, with the goal that ``run`` learned where they say none;
    :class:`ConfigError` where ``where`` says another one.
    """
    goal = trained_goal(run) if run is not None and task == PushT.name else None
    if goal is None:
        return dict(params)
    if "goal" not in params:
        return dict(params) if _same(goal, GOAL) else {**params, "goal": list(goal)}
    said = goal_pose(params["goal"], where)
    if not _same(said, goal):
        raise ConfigError(
            f"{where} has the goal at {_words(said)}, but the recordings of '{run}' have it at"
            f" {_words(goal)}; leave it out, or take a policy that learned this goal"
        )
    return dict(params)


def _same(one: Pose, other: Pose) -> bool:
    return all(abs(a - b) < _SAME for a, b in zip(one, other, strict=True))


def _words(goal: Pose) -> str:
    x, y, yaw = goal
    return f"x {x:.3f} m, y {y:.3f} m, {yaw:.3f} rad"
