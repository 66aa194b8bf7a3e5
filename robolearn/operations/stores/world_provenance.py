"""Says of a world what every episode keeps that is recorded in it, and of episodes which it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robolearn.data.episode import EpisodeStart
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError
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


def recorded_world(source: EpisodeStore, ids: Sequence[str]) -> str:
    """The one world that episodes were recorded in; :class:`ConfigError` where it is not one."""
    worlds = {EpisodeStart.of(source.meta(i)).world for i in ids}
    if len(worlds) == 1 and "" not in worlds:
        return worlds.pop()
    raise ConfigError(
        f"these episodes were recorded in {sorted(worlds - {''}) or 'a world that is not said'};"
        " name the one world to replay them in"
    )
