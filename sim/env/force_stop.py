"""Stops a scene's robot as the supervisor of its cell would: for a force at the tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mujoco
import numpy as np

from robolearn.errors import SceneError
from robolearn.geometry import Vector
from robolearn.shapes import OwnFlags
from robolearn.timing.overrun import Overrun
from sim.env.contacts import geoms_behind
from sim.scene.config import SceneConfig, SupervisorConfig, require_name

# Force [3] [N] on geoms [ngeom], as an engine knows it.
ForceOn = Callable[[OwnFlags], Vector]


class ForceStop:
    """One limit for every tool of a scene, each with a patience of its own.

    ``every``: physics steps between two looks, as the cell's controller tells its force. A stop is
    latched until :meth:`reset`.
    """

    def __init__(self, limit: SupervisorConfig, tools: Sequence[OwnFlags], step_s: float) -> None:
        self.every = max(1, round(1.0 / (limit.rate_hz * step_s)))
        self.stopped = False
        self._tools = tuple(tools)
        self._over = [Overrun(limit.max_tool_force_n, limit.overload_s) for _ in tools]

    def reset(self) -> None:
        """A new episode."""
        self.stopped = False
        for over in self._over:
            over.reset()

    def look(self, force_on: ForceOn, now_ns: int) -> None:
        """At this time of the episode [ns]."""
        # All are looked at, so that all remember since when.
        found = [
            over.over(float(np.linalg.norm(force_on(tool))), now_ns)
            for tool, over in zip(self._tools, self._over, strict=True)
        ]
        self.stopped = self.stopped or any(found)


def force_stop(config: SceneConfig, model: mujoco.MjModel) -> ForceStop | None:
    """What the scene says of its supervisor; None where it says nothing.

    Raises :class:`SceneError` for figures that cannot be, and for a scene without an arm.
    """
    limit = config.supervisor
    if limit is None:
        return None
    where = f"scene '{config.name}': supervisor"
    wanted = {
        "max_tool_force_n": limit.max_tool_force_n > 0.0,
        "overload_s": 0.0 <= limit.overload_s < np.inf,
        "rate_hz": 0.0 < limit.rate_hz <= 1.0 / config.physics.timestep_s * (1 + 1e-9),
    }
    for name, good in wanted.items():
        if not good:
            raise SceneError(
                f"{where}.{name} is {getattr(limit, name):g}; expected a force above 0 N, a time of"
                f" 0 s or more, a rate above 0 and up to the physics'"
                f" {1.0 / config.physics.timestep_s:g} Hz"
            )
    joints = _last_joints(config.control)
    if not joints:
        raise SceneError(f"{where}: the scene has no arm whose tool could feel a force; remove it")
    ids = [require_name(model, mujoco.mjtObj.mjOBJ_JOINT, name, where) for name in joints]
    return ForceStop(limit, [geoms_behind(model, i) for i in ids], config.physics.timestep_s)


def _last_joints(control: dict[str, Any]) -> list[str]:
    """Of every arm, by what controllers call them."""
    arms: list[dict[str, Any]] = control.get("arms", [control])
    return [str(arm["joints"][-1]) for arm in arms if arm.get("joints")]
