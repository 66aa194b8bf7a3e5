"""Adds to a cell what a deployment needs: who places objects, who scores, the hold at the end."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from hardware.cell.config import CellConfig
from hardware.devices.tracker import object_of
from hardware.emulators.lab.admin import LabClient
from hardware.env.real_env import Scorer, cell_spec
from robolearn.agents.replay import WrappedAgent
from robolearn.contracts import Agent
from robolearn.errors import ConfigError, RobotError
from robolearn.geometry import quat_heading
from robolearn.operations.deploy.operator import Attendant, Verdicts
from robolearn.types import (
    Command,
    Condition,
    EpisodeHeader,
    Observation,
    Outcome,
    PolicyOutput,
    Signals,
    Tick,
)

log = logging.getLogger(__name__)


@runtime_checkable
class Holding(Protocol):
    """An env that can brake and stand still."""

    def hold(self) -> None:
        """Brake and hold."""
        ...


class KeyScorer:
    """The operator's verdict (keys s, f, q) over that of ``scorer``; without one, the only one."""

    def __init__(self, scorer: Scorer | None, keys: Verdicts) -> None:
        self._scorer, self._keys = scorer, keys

    def reset(self) -> None:
        """Forget the last episode and its keys."""
        self._keys.forget()
        if self._scorer is not None:
            self._scorer.reset()

    def judge(self, values: Signals) -> Outcome:
        """The key if one was pressed, else the scorer's verdict."""
        now = Outcome(success=False, progress=0.0, reward=0.0)
        if self._scorer is not None:
            now = self._scorer.judge(values)
        key = self._keys.verdict()
        if key == "s":
            return Outcome(True, 1.0, 1.0, terminal=True, reason="success", metrics=now.metrics)
        if key in ("f", "q"):
            return Outcome(
                success=now.success if key == "q" else False,
                progress=now.progress,
                reward=now.reward,
                truncated=True,
                reason="operator" if key == "q" else "failure",
                metrics=now.metrics,
            )
        return now


class LabScorer:
    """Scores by the lab's true poses of the tracked objects; the policy never sees them.

    ``objects``: the lab's name of each, by signal.
    """

    def __init__(self, lab: LabClient, task: Scorer, objects: Mapping[str, str]) -> None:
        self._lab, self._task, self._objects = lab, task, objects

    def reset(self) -> None:
        """Forget the last episode."""
        self._task.reset()

    def judge(self, values: Signals) -> Outcome:
        """Judge the true poses instead of the tracked ones."""
        poses = self._lab.truth().poses
        true = {s: poses[n] for s, n in self._objects.items() if n in poses and s in values}
        return self._task.judge({**values, **true})


def objects_of(condition: Condition) -> dict[str, tuple[float, ...]]:
    """The objects that a condition places, by signal: x, y [m], yaw [rad] on the table, or x, y, z
    and a quaternion.
    """
    placed: dict[str, tuple[float, ...]] = {}
    for signal, pose in condition.poses.items():
        name, _, what = signal.partition("/")
        if what == "pose" and len(pose) in (3, 7) and not name.endswith("tool"):
            placed[signal] = pose
    return placed


@dataclass(frozen=True, slots=True)
class LabPlacement:
    """Places the objects through the lab's side door, as a person's hand would.

    ``objects``: what the lab calls those whose signal has another name, by signal.
    """

    lab: LabClient
    objects: Mapping[str, str]

    def __call__(self, condition: Condition) -> str:
        """Put everything where the condition wants it."""
        placed = objects_of(condition)
        for signal, pose in placed.items():
            self._place(self.objects.get(signal, object_of(signal)), pose)
        return "placed by the lab" if placed else "nothing to place"

    def _place(self, name: str, pose: tuple[float, ...]) -> None:
        deadline = time.monotonic() + 5.0
        while True:
            try:
                self.lab.place(name, pose)
            except RobotError:
                # The lab refuses a hand in the cell until the arm has come to rest.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return


@dataclass(frozen=True, slots=True)
class PromptPlacement:
    """Asks the operator to place the objects."""

    operator: Attendant

    def __call__(self, condition: Condition) -> str:
        """Wait for the operator, if there is anything to place."""
        placed = objects_of(condition)
        if not placed:
            return "nothing to place"
        if not self.operator.places:
            return "taken as it lies, nobody is asked"
        text = "; ".join(
            f"place the {object_of(signal)} at {_spoken(pose)}" for signal, pose in placed.items()
        )
        self.operator.place(f"{text}, step back")
        return "placed by the operator"


def _spoken(pose: tuple[float, ...]) -> str:
    """Where a person should put an object."""
    x, y, *rest = pose
    text = f"x {x:.3f} m, y {y:.3f} m"
    if len(pose) == 3:
        return f"{text}, {np.degrees(rest[0]):.0f} deg"
    heading = quat_heading(np.array([pose[3:]])).item()
    return f"{text}, z {pose[2]:.3f} m, {np.degrees(heading):.0f} deg"


def require_starts(conditions: Sequence[Condition], cell: CellConfig, suite: Path) -> None:
    """Raise ConfigError unless the cell can tell everything that the suite's starts name."""
    sizes = {s.name: math.prod(s.shape) for s in cell_spec(cell).signals}
    signals = set(sizes)
    for condition in conditions:
        unknown = sorted(set(condition.poses) - signals)
        if unknown:
            raise ConfigError(
                f"{suite}: condition '{condition.id}' names {unknown}, which cell '{cell.name}'"
                f" does not have (its signals: {sorted(signals)}); give a suite of this cell's task"
            )
        for name, value in condition.poses.items():
            if len(value) != sizes[name]:
                raise ConfigError(
                    f"{suite}: condition '{condition.id}' gives {len(value)} values for '{name}',"
                    f" of which cell '{cell.name}' tells {sizes[name]}; give a suite of this cell's"
                    " task"
                )
        for goal in cell.goals:
            if goal.name not in condition.poses:
                raise ConfigError(
                    f"{suite}: condition '{condition.id}' names no '{goal.name}', which cell"
                    f" '{cell.name}' has as a goal; give a suite that does"
                )
            goal.value(condition)


def limits_text(cell: CellConfig) -> str:
    """The limits of a cell in words."""
    if cell.joints is not None:
        own = cell.joints.limits
        return (
            f"joints {own.low} to {own.high} rad, at most {own.speed} rad/s and {own.acceleration}"
            " rad/s^2"
        )
    if cell.tool is not None:
        own = cell.tool.limits
        return (
            f"tool {own.max_speed} m/s, {own.max_acceleration} m/s^2, {own.max_rotation_speed}"
            f" rad/s, joints {own.max_joint_speed} rad/s, workspace {own.workspace_low} to"
            f" {own.workspace_high} m"
        )
    limits = cell.limits
    return (
        f"tool {limits.max_tool_speed} m/s, {limits.max_tool_acceleration} m/s^2, joints"
        f" {limits.max_joint_speed} rad/s, table {limits.workspace_low} to"
        f" {limits.workspace_high} m"
    )


class WholeCommand(WrappedAgent):
    """An agent whose commands name every action of the cell: what it leaves out is recorded as it
    stands (``standing()``: the gripper of a policy that knows of none).
    """

    def __init__(self, inner: Agent, standing: Callable[[], Signals]) -> None:
        super().__init__(inner)
        self._standing = standing

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The wrapped agent's command over what stands."""
        command = super().decide(observation, reply)
        return dataclasses.replace(command, action={**self._standing(), **command.action})


class HoldAtEnd:
    """A subscriber that lets the arm rest before anything slow (saving, plotting) happens."""

    def __init__(self, env: Holding) -> None:
        self._env = env

    def on_start(self, episode: EpisodeHeader) -> None:
        """Nothing."""

    def on_tick(self, tick: Tick) -> None:
        """Nothing."""

    def on_end(self, outcome: Outcome) -> None:
        """Brake and hold."""
        del outcome
        self._env.hold()

    def on_abort(self, error: BaseException) -> None:
        """Brake and hold, unless a stop is latched already."""
        try:
            self._env.hold()
        except RobotError as second:
            log.info("no hold after '%s': %s", error, second)
