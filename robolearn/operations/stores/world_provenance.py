"""Says of a world what every episode keeps that is recorded in it."""

from __future__ import annotations

from typing import Any

from robolearn.pusht import TASK_PARAMS
from sim.contract import World


def world_provenance(env: World) -> dict[str, Any]:
    """Hash and engine of the world, the task's parameters where it has some, its cameras."""
    return {
        "scene_hash": env.scene_hash,
        "engine": env.engine,
        **({TASK_PARAMS: env.task_params} if env.task_params else {}),
        "cameras": {name: c.to_json() for name, c in env.calibrations().items()},
    }
