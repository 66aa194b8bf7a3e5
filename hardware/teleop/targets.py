"""Knows what is commanded: a pose of the tool or joint angles, and their value as an action.

state (pose [4, 4] | angles [j])  --action(state, before)-->  value in the action's range
and the state that it stands for
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from hardware.teleop.shapes import State
from robolearn.agents.actions import clip_action
from robolearn.arms.shapes import Values
from robolearn.arms.tool_commands import TOOL_COMMANDS, ToolCommand, pose_from_values
from robolearn.errors import SpecMismatchError
from robolearn.geometry import Pose, pose, rotvec_from_rotation
from robolearn.spec import ActionSpec, EmbodimentSpec
from robolearn.types import Observation, Signals

XY_TABLE, JOINTS, WIDTH = "tool/xy_table", "arm/joint_position", "gripper/width"
POSE = "tool/pose"
# What a hand may move of the tool: along x, y, z, and about them.
_FREE = {"xy_table": (1, 1, 0, 0, 0, 0), "xyz_yaw": (1, 1, 1, 0, 0, 1)}


def _flat(values: Values, last: Pose) -> Pose:
    del last
    return pose(position=(float(values[0]), float(values[1]), 0.0))


COMMANDS: dict[str, ToolCommand] = {
    **{f"tool/{kind}": command for kind, command in TOOL_COMMANDS.items()},
    XY_TABLE: ToolCommand(2, _flat, lambda T: T[:2, 3].copy()),
}


@runtime_checkable
class Target(Protocol):
    """What is commanded, and how it is measured and written."""

    @property
    def spec(self) -> ActionSpec:
        """The action."""
        ...

    def measured(self, observation: Observation) -> State:
        """Where it is."""
        ...

    def action(self, state: State, before: State) -> tuple[Values, State]:
        """The action's value for a state, within its range, and the state that the value stands
        for; ``before`` was commanded last.
        """
        ...


@dataclass(frozen=True, slots=True)
class ToolTarget:
    """The tool, as a pose in the action's frame."""

    spec: ActionSpec

    @property
    def free(self) -> Values:
        """1 for what a hand may move, 0 for the others ``[6]``."""
        kind = self.spec.name.partition("/")[2]
        return np.array(_FREE.get(kind, (1,) * 6), dtype=np.float64)

    def measured(self, observation: Observation) -> Pose:
        """From ``tool/pose``, or ``tool/xy_table``."""
        if self.spec.name == XY_TABLE:
            xy = np.asarray(observation.value(XY_TABLE), dtype=np.float64)
            return _flat(xy, np.eye(4))
        values = np.asarray(observation.value(POSE), dtype=np.float64)
        return pose_from_values(values, POSE)

    def action(self, state: State, before: State) -> tuple[Values, Pose]:
        """See :class:`Target`; of a tool that can only turn about z, the rest of a turn is lost."""
        command = COMMANDS[self.spec.name]
        if command.report is None:
            turn = rotvec_from_rotation(state[:3, :3] @ before[:3, :3].T)
            wanted = np.concatenate([state[:3, 3] - before[:3, 3], turn])
        else:
            wanted = command.report(state)
        value = _within(self.spec, wanted)
        return value, command.target(value, before)


@dataclass(frozen=True, slots=True)
class JointTarget:
    """The joints of an arm."""

    spec: ActionSpec

    def measured(self, observation: Observation) -> Values:
        """From ``arm/joint_position``."""
        return np.asarray(observation.value(JOINTS), dtype=np.float64)

    def action(self, state: State, before: State) -> tuple[Values, Values]:
        """See :class:`Target`."""
        value = _within(self.spec, state - before if self.spec.mode == "relative" else state)
        return value, before + value if self.spec.mode == "relative" else value


def _within(spec: ActionSpec, value: Values) -> Values:
    clipped: Signals = clip_action((spec,), {spec.name: value})
    return np.asarray(clipped[spec.name], dtype=np.float64)


def find_target(embodiment: EmbodimentSpec) -> tuple[ToolTarget | JointTarget, ActionSpec | None]:
    """What a person commands of an embodiment, and its gripper if it has one.

    Raises :class:`SpecMismatchError` unless there is one arm, commanded by what a hand can give.
    """
    actions = {a.name: a for a in embodiment.actions}
    grip = actions.pop(WIDTH, None)
    spec = next(iter(actions.values())) if len(actions) == 1 else None
    if spec is not None and spec.name == JOINTS and spec.low:
        _observed(embodiment, JOINTS)
        return JointTarget(spec), grip
    if spec is not None and _fits(spec):
        _observed(embodiment, XY_TABLE if spec.name == XY_TABLE else POSE)
        return ToolTarget(spec), grip
    raise SpecMismatchError(
        f"no person can drive '{embodiment.name}', which is commanded by"
        f" {[(a.name, a.mode) for a in embodiment.actions]}: hands give one of"
        f" {sorted([*COMMANDS, JOINTS])} (absolute, but for tool/delta_pose) and, beside it,"
        f" {WIDTH}. Use --agent scripted (or play) here"
    )


def _fits(spec: ActionSpec) -> bool:
    command = COMMANDS.get(spec.name)
    if command is None or spec.size != command.size:
        return False
    return spec.mode == ("relative" if command.report is None else "absolute")


def _observed(embodiment: EmbodimentSpec, name: str) -> None:
    """A hand takes hold of what is measured."""
    embodiment.signal(name)
