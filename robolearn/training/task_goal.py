"""Puts the goal of the recordings where an experiment refers to it by the word ``goal``.

    focus: {signal: block/pose, centre: goal}            the goal's pose
    mirror: {point: goal, axis_deg: goal, ...}           a point and the axis of the T at the goal

What a run stores are the numbers. Recordings with another goal are trained on with the same file.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from robolearn.config import from_dict, to_dict
from robolearn.errors import ConfigError
from robolearn.pusht import TABLE_SIZE_M, Pose

WORD = "goal"
# How far a mirror line may be from one that maps the table onto itself.
_CLOSE_M, _CLOSE_DEG = 1e-3, 0.1
_log = logging.getLogger(__name__)

T = TypeVar("T")


def at_goal(algorithm: T, recorded: Callable[[], Sequence[Pose]]) -> T:
    """``algorithm`` (a policy's configuration) with numbers where it says ``goal``.

    ``recorded`` gives the goals of the recordings, each once; it is asked only if the configuration
    refers to them, and other than one is a :class:`ConfigError`. A mirror line that does not map
    the table onto itself is left out, with a warning: the mirrored tool would be off the table.
    """
    raw: dict[str, Any] = to_dict(algorithm)
    focus: dict[str, Any] = raw.get("focus") or {}
    mirror: dict[str, Any] = raw.get("mirror") or {}
    if WORD not in (focus.get("centre"), mirror.get("point"), mirror.get("axis_deg")):
        return algorithm
    goals = recorded()
    if len(goals) != 1:
        raise ConfigError(
            f"the configuration refers to the goal, the recordings have {len(goals)}:"
            f" {list(goals)}; choose episodes with one goal (data.stores), or give numbers for"
            " focus and mirror"
        )
    (goal,) = goals
    if focus.get("centre") == WORD:
        raw["focus"] = focus | {"centre": list(goal)}
    if WORD in (mirror.get("point"), mirror.get("axis_deg")):
        raw["mirror"] = _mirror(mirror, goal)
    return from_dict(type(algorithm), raw, "algorithm")


def _mirror(mirror: dict[str, Any], goal: Pose) -> dict[str, Any] | None:
    axis = mirror["axis_deg"]
    if axis == WORD:
        axis = round((math.degrees(goal[2]) + float(mirror["body_axis_deg"])) % 180.0, 9)
    point = list(goal[:2]) if mirror["point"] == WORD else mirror["point"]
    middle = TABLE_SIZE_M / 2
    across = (math.sin(math.radians(axis)), -math.cos(math.radians(axis)))
    off_m = abs((point[0] - middle) * across[0] + (point[1] - middle) * across[1])
    off_deg = abs((axis + 22.5) % 45.0 - 22.5)
    if off_m > _CLOSE_M or off_deg > _CLOSE_DEG:
        _log.warning(
            "mirror left out: the T's axis at the goal (%.3f, %.3f, %.1f deg) does not map the"
            " table onto itself",
            goal[0],
            goal[1],
            math.degrees(goal[2]),
        )
        return None
    return mirror | {"point": point, "axis_deg": axis}
