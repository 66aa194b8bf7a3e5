"""Draws the lists of starts that suites are made of, from the tasks' own reset distributions.

A distribution may hold starts that prove nothing (tool and block overlap, the goal is met): those
are drawn again. Push-T's is gym-pusht's, which holds such starts (gym-pusht 0.1.8, ``PushTEnv``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from robolearn.errors import ConfigError
from robolearn.pusht import (
    BLOCK,
    SUCCESS_COVERAGE,
    TABLE_SIZE_M,
    TOOL,
    TOOL_RADIUS_M,
    coverage,
    tee_polygons,
    transform_points,
)
from robolearn.seeding import child_seed
from robolearn.types import Condition

# Walls are segments of radius 2 px at 5 and 506 px (gym-pusht ``_setup``).
WALL_LOW_M = 0.007
WALL_HIGH_M = 0.504
# Six decimals read well and are far below what matters (a micrometre).
DECIMALS = 6
DRAWS = 1000

Poses = Mapping[str, tuple[float, ...]]


def draw_start(task: str, sample: Callable[[int], Condition], seed: int, index: int) -> Condition:
    """Start ``index`` of the endless list that belongs to ``seed``; depends on nothing else.

    ``sample``: the task's reset distribution (``sample_condition``).
    """
    episode_seed = child_seed(seed, task, index, "episode") % 2**31
    for attempt in range(DRAWS):
        # A task whose starts are all possible needs no number of the attempt.
        drawn = (index, attempt) if task in PROBLEMS else (index,)
        start = sample(child_seed(seed, task, *drawn))
        # Adding 0.0 turns -0.0 into 0.0, which YAML would write differently.
        poses = {
            k: tuple(round(float(v), DECIMALS) + 0.0 for v in p) for k, p in start.poses.items()
        }
        if not start_problem(task, poses):
            return Condition(id=f"{task}-{index:04d}", seed=episode_seed, poses=poses)
    raise ConfigError(f"no feasible start for seed {seed}, index {index} in {DRAWS} draws")


def start_problem(task: str, poses: Poses) -> str:
    """Why a start of ``task`` is no condition of a suite; empty if it may be one."""
    problem = PROBLEMS.get(task)
    return "" if problem is None else problem(poses)


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


PROBLEMS: Mapping[str, Callable[[Poses], str]] = {"pusht": pusht_problem}
