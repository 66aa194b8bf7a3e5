"""Where evaluation episodes start: draws from a task's reset distribution, checked feasible.

Push-T. Source: gym-pusht 0.1.8, ``PushTEnv.reset`` and ``_set_state``. The block's position is set
at angle 0 and then turned about its centre of gravity, 45 px along the stem, so the recorded pose
(the body's origin) is not the drawn one; the conditions hold the pose that results. Draws in which
tool and block overlap, the block reaches into a wall, or the goal is already met are drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from robolearn.errors import ConfigError, did_you_mean
from robolearn.pusht import (
    BLOCK,
    SUCCESS_COVERAGE,
    TABLE_SIZE_M,
    TOOL,
    TOOL_RADIUS_M,
    coverage,
    pose_from_px,
    table_from_px,
    tee_polygons,
    transform_points,
)
from robolearn.seeding import child_seed
from robolearn.types import Condition

# Walls are segments of radius 2 px at 5 and 506 px (gym-pusht ``_setup``).
WALL_LOW_M = 0.007
WALL_HIGH_M = 0.504
CENTRE_OF_GRAVITY_PX = 45.0
DECIMALS = 6
# Six decimals in a file leave this much of a unit quaternion's norm.
QUATERNION_SLACK = 1e-4

Poses = Mapping[str, tuple[float, ...]]


def pusht_start(seed: int, index: int) -> Condition:
    """Condition ``index`` of the endless list that belongs to ``seed``; depends on nothing else."""
    for attempt in range(1000):
        rng = np.random.default_rng(child_seed(seed, "pusht", index, attempt))
        tool_px = rng.integers(50, 450, 2)
        x, y = (float(v) for v in rng.integers(100, 400, 2))
        angle = float(rng.uniform(-np.pi, np.pi))
        poses = {
            TOOL: _rounded(table_from_px(tool_px)),
            BLOCK: _rounded(pose_from_px(achieved_pose_px(x, y, angle))),
        }
        if not pusht_problem(poses):
            episode_seed = child_seed(seed, "pusht", index, "episode") % 2**31
            return Condition(id=f"pusht-{index:04d}", seed=episode_seed, poses=poses)
    raise ConfigError(f"no feasible start for seed {seed}, index {index} in 1000 draws")


def achieved_pose_px(x: float, y: float, angle: float) -> tuple[float, float, float]:
    """Where the block's origin really is after gym-pusht set ``(x, y)`` and then ``angle``."""
    cog = CENTRE_OF_GRAVITY_PX
    return (x + cog * np.sin(angle), y + cog - cog * np.cos(angle), angle)


def pusht_problem(poses: Poses) -> str:
    """Why a Push-T start is not feasible; empty if it is."""
    from shapely.geometry import Point, Polygon

    missing = [name for name in (TOOL, BLOCK) if name not in poses]
    if missing:
        return f"lacks {missing}"
    tool, block = poses[TOOL], poses[BLOCK]
    if len(tool) != 2 or len(block) != 3:
        return f"expected 2 values of {TOOL} and 3 of {BLOCK}, got {len(tool)} and {len(block)}"
    if not np.isfinite((*tool, *block)).all():
        return f"{TOOL} {tool} and {BLOCK} {block} must be finite"
    if not 0 <= min(tool) <= max(tool) <= TABLE_SIZE_M:
        return f"tool {tool} is off the table (0 to {TABLE_SIZE_M} m)"
    for corners in tee_polygons():
        placed = transform_points(corners, block)
        if placed.min() < WALL_LOW_M or placed.max() > WALL_HIGH_M:
            return "the block reaches into a wall"
        if Polygon(placed).distance(Point(tool)) < TOOL_RADIUS_M:
            return "tool and block overlap"
    if coverage(block) > SUCCESS_COVERAGE:
        return "the goal is already met"
    return ""


def placed_problem(poses: Poses) -> str:
    """Why no start in space can be as named; empty if one can. The world's task says the rest."""
    for name, pose in poses.items():
        if not np.isfinite(pose).all():
            return f"{name} {pose} must be finite"
        if in_space(name, pose) and abs(float(np.linalg.norm(pose[3:])) - 1.0) > QUATERNION_SLACK:
            return f"{name}: the quaternion (qw, qx, qy, qz) = {pose[3:]} must have norm 1"
    return ""


def in_space(name: str, pose: tuple[float, ...]) -> bool:
    """Whether a signal is a pose in space; seven joint angles are none."""
    return len(pose) == 7 and name.partition("#")[0].endswith("/pose")


Generator = Callable[[int, int], Condition]
Check = Callable[[Poses], str]

GENERATORS: Mapping[str, Generator] = {"pusht": pusht_start}
CHECKS: Mapping[str, Check] = {
    "pusht": pusht_problem,
    "pick_place": placed_problem,
    "stacking": placed_problem,
    "drawer": placed_problem,
    "insertion": placed_problem,
    "play_table": placed_problem,
}


def look_up(table: Mapping[str, Any], name: str, what: str) -> Any:
    """An entry of a table of task functions; the error lists what exists."""
    if name not in table:
        raise ConfigError(
            f"no {what} for task '{name}'.{did_you_mean(name, table)} There are: {sorted(table)}"
        )
    return table[name]


def _rounded(values: Any) -> tuple[float, ...]:
    # Adding 0.0 turns -0.0 into 0.0, which YAML would write differently.
    return tuple(round(float(v), DECIMALS) + 0.0 for v in values)
