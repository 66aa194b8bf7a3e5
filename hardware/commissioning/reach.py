"""Chooses poses of the flange that an arm reaches, clear of everything on the way there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hardware.cell.config import CellConfig
from robolearn.arms.collision import Capsule, CollisionModel
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.models import named_arm
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import Pose, Vector, inverse, pose, rotation_from_rotvec

# Kept from everything on the way [m], and how finely the way is looked at [rad].
_MARGIN_M, _STEP_RAD = 0.04, 0.05
# From the ends of the joints [rad].
_INSIDE_RAD = 0.02


@dataclass(frozen=True, slots=True)
class Reach:
    """Where an arm that is commanded in joint space may go: joints ``low .. high [j]`` [rad], by
    straight lines between joint positions that keep 4 cm from everything in ``model``. ``tool_m``:
    from the flange to the tool's tip [m].
    """

    arm: SerialArm
    low: Joints
    high: Joints
    model: CollisionModel | None
    tool_m: float = 0.0

    @classmethod
    def of(cls, cell: CellConfig) -> Reach:
        """Of a cell in joint space; ConfigError for another."""
        space = cell.joints
        if space is None:
            raise ConfigError(f"cell '{cell.name}' is not commanded in joint space")
        guard = cell.follower().guard(500.0)
        return cls(
            named_arm(cell.arm),
            np.array(space.limits.low) + _INSIDE_RAD,
            np.array(space.limits.high) - _INSIDE_RAD,
            None if guard is None else guard.model,
            space.tool_length_m,
        )

    def beside(self, things: Sequence[Capsule]) -> Reach:
        """The same, clear of ``things`` in the base's frame, too; of an arm whose shape is not
        known nothing is kept clear.
        """
        return self if self.model is None else replace(self, model=self.model.beside(things))

    def joints(self, T_base_flange: Pose, start: Joints) -> Joints | None:
        """Joints near ``start`` that bring the flange there, and to which the way from ``start`` is
        clear; None: there are none.
        """
        try:
            q = self.arm.ik(T_base_flange, start)
        except DataError:
            return None
        inside = bool(((q >= self.low) & (q <= self.high)).all())
        return q if inside and self.clear(start, q) else None

    def clear(self, start: Joints, end: Joints) -> bool:
        """Whether the straight way between two joint positions is."""
        if self.model is None:
            return True
        steps = max(2, int(np.abs(end - start).max() / _STEP_RAD))
        rows = [start + (end - start) * s for s in np.linspace(0.0, 1.0, steps)]
        # What is near from the start (a tool over its table) may stay as near.
        least = np.minimum(_MARGIN_M, self.model.distances(start) - 0.002)
        return bool((self.model.distances_rows(rows) >= least).all())


def around(
    T_base_flange: Pose,
    pivot_m: float,
    rng: np.random.Generator,
    *,
    tilt_deg: float,
    shift_m: float,
) -> Iterator[Pose]:
    """Poses of the flange, turned about the point ``pivot_m`` before it (along its z) by up to
    about ``tilt_deg`` to all sides, twice that about z, and moved by up to ``shift_m``: for ever.
    """
    to_pivot = pose(None, (0.0, 0.0, pivot_m))
    while True:
        turn = rng.uniform(-1.0, 1.0, 3) * np.radians([tilt_deg, tilt_deg, 2.0 * tilt_deg])
        move = pose(rotation_from_rotvec(turn), rng.uniform(-shift_m, shift_m, 3))
        yield T_base_flange @ to_pivot @ move @ inverse(to_pivot)


def looking_at(target: Vector, rng: np.random.Generator) -> Iterator[Pose]:
    """Poses of a camera (+z ahead) that looks at a point from above, from all sides, 0.3 to 0.5 m
    away: for ever.
    """
    for k in range(1_000_000):
        round_rad = 2.0 * np.pi * (k * 0.618034 % 1.0)
        up = np.radians((40.0, 58.0, 75.0)[k % 3])
        away = np.array(
            [np.cos(up) * np.cos(round_rad), np.cos(up) * np.sin(round_rad), np.sin(up)]
        )
        roll = rng.uniform(-np.pi, np.pi)
        yield looking_from(target + rng.uniform(0.3, 0.5) * away, target, roll)


def looking_from(eye: Vector, target: Vector, roll_rad: float) -> Pose:
    """The pose of a camera (+z ahead) at ``eye`` that looks at ``target``, not straight down; it is
    turned about its axis from where its x is level.
    """
    z = (target - eye) / np.linalg.norm(target - eye)
    x = np.cross(z, [0.0, 0.0, 1.0])
    x /= np.linalg.norm(x)
    R = np.column_stack([x, np.cross(z, x), z])
    return pose(R @ rotation_from_rotvec(np.array([0.0, 0.0, roll_rad])), eye)
