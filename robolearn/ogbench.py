"""Holds what OGBench's manipulation worlds and recordings share: names, sizes, actions in SI units.

    observation = [ arm 19 | per cube 9 | per button 4 | per sliding thing 2 ]
    arm         = joints 6, their speeds 6, 10 (x y z - middle), cos sin yaw, 3 closure, contact
    cube        = 10 (x y z - middle), quaternion w x y z, cos sin yaw

Source: ogbench 1.2.2 (``manipspace/envs``; Park et al. 2025).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Shaped
from numpy.typing import NDArray

from robolearn.geometry import POSE_COMPONENTS
from robolearn.spec import ActionSpec, SignalSpec

Rows = Shaped[NDArray[Any], "rows _"]
SIRows = Float64[NDArray[np.float64], "rows _"]

RATE_HZ = 20.0
TOOL, GRIPPER = "tool/delta_xyz_yaw", "gripper/delta_closure"
# Largest step of one command, OGBench's 1: three times metres, radians, share of the closure.
LIMITS = np.array([0.05, 0.05, 0.05, 0.3, 1.0])
# What is observed, and what is wanted to be: OGBench's own vectors.
STATE, GOAL = "obs/state", "goal/state"
_ARM, _CUBE, _BUTTON, _SLIDE = 19, 9, 4, 2
_MIDDLE, _SCALE = np.array([0.425, 0.0, 0.0]), 10.0


@dataclass(frozen=True, slots=True)
class Things:
    """What is on the table of a world."""

    cubes: int = 0
    buttons: int = 0
    slides: int = 0

    @property
    def observed(self) -> int:
        """Length of OGBench's observation."""
        return _ARM + _CUBE * self.cubes + _BUTTON * self.buttons + _SLIDE * self.slides


WORLDS: Mapping[str, Things] = {
    "cube-single": Things(cubes=1),
    "cube-double": Things(cubes=2),
    "cube-triple": Things(cubes=3),
    "cube-quadruple": Things(cubes=4),
    "scene": Things(cubes=1, buttons=2, slides=2),
    "puzzle-3x3": Things(buttons=9),
    "puzzle-4x4": Things(buttons=16),
    "puzzle-4x5": Things(buttons=20),
    "puzzle-4x6": Things(buttons=24),
}


def embodiment_name(world: str) -> str:
    """Of the arm in ``world``."""
    return f"ogbench_{world.replace('-', '_')}"


def action_specs(rate_hz: float = RATE_HZ) -> tuple[ActionSpec, ActionSpec]:
    """A step of the downward gripper, and one of its closure; relative to what is measured."""

    def spec(name: str, limit: NDArray[np.float64], unit: str, frame: str) -> ActionSpec:
        high = tuple(limit.tolist())
        low = tuple(-v for v in high)
        return ActionSpec(
            name, (len(high),), unit, rate_hz, mode="relative", frame=frame, low=low, high=high
        )

    return (
        spec(TOOL, LIMITS[:4], "m, m, m, rad", "world"),
        spec(GRIPPER, LIMITS[4:], "1", ""),
    )


def pose_signal(name: str, rate_hz: float = RATE_HZ, dtype: str = "float64") -> SignalSpec:
    """Where a thing is: x, y, z [m] and its quaternion w, x, y, z in the world's frame."""
    unit = "m, m, m, 1, 1, 1, 1"
    return SignalSpec(
        name,
        (7,),
        unit=unit,
        rate_hz=rate_hz,
        dtype=dtype,
        components=POSE_COMPONENTS,
        frame="world",
    )


def si_actions(actions: Rows) -> dict[str, SIRows]:
    """OGBench's actions ``[rows, 5]`` in [-1, 1] by the names of :func:`action_specs`."""
    values = actions.astype(np.float64) * LIMITS
    return {TOOL: values[:, :4], GRIPPER: values[:, 4:]}


def cube_poses(world: str, observations: Rows) -> dict[str, SIRows]:
    """Poses ``block_k/pose [rows, 7]`` in SI units, of OGBench's observations; qw >= 0."""
    found: dict[str, SIRows] = {}
    for k in range(WORLDS[world].cubes):
        seen = observations[:, _ARM + _CUBE * k :][:, :7].astype(np.float64)
        sign = np.where(seen[:, 3:4] < 0, -1.0, 1.0)
        place = seen[:, :3] / _SCALE + _MIDDLE
        found[f"block_{k}/pose"] = np.concatenate([place, seen[:, 3:] * sign], axis=1)
    return found


def world_of(file_name: str) -> str | None:
    """The manipulation world that a data set is named after (``cube-single-play-v0.npz``, with
    pictures ``visual-cube-single-...``); None: another family.
    """
    name = file_name.removeprefix("visual-")
    return next((world for world in WORLDS if name.startswith(f"{world}-")), None)
