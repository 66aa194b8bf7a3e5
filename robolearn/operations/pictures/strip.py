"""Draws a stored episode as one picture: its frames above its curves."""

from __future__ import annotations

from pathlib import Path

from robolearn.data.episode import Episode
from robolearn.data.store.store import EpisodeStore
from robolearn.data.view.contact_sheet import FRAMES, Drawing, save_strip
from robolearn.errors import ConfigError
from robolearn.operations.deploy.video import draw
from robolearn.pusht import BLOCK, TOOL, recorded_goal

_SIZE_PX = 320


def draw_strip(store: Path, out: Path, *, episode: str = "", frames: int = FRAMES) -> str:
    """Write ``out`` (PNG), ``frames`` per camera, and return the id of the episode that it shows:
    ``episode``, or the newest. Push-T without cameras is drawn from its poses.

    Errors: :class:`ConfigError`, :class:`DataError` for an episode that is not there.
    """
    if frames < 1:
        raise ConfigError(f"frames must be at least 1, got {frames}")
    opened = EpisodeStore.open(store)
    chosen = episode or newest_episode(opened)
    save_strip(opened, chosen, out, frames=frames, drawing=_from_poses)
    return chosen


def newest_episode(store: EpisodeStore) -> str:
    """Id of the last episode; ConfigError for an empty store."""
    ids = store.ids()
    if not ids:
        raise ConfigError(f"{store.path} has no episodes to look at")
    return ids[-1]


def _from_poses(episode: Episode) -> Drawing | None:
    """Push-T from above, for episodes without cameras."""
    if not {TOOL, BLOCK} <= set(episode.streams):
        return None
    tool, block = episode.observed(TOOL), episode.observed(BLOCK)
    target = episode.action.get(TOOL, tool)
    if block.shape[1:] != (3,) or tool.shape[1:] != (2,):
        return None
    goal = recorded_goal(episode.meta.provenance)
    return lambda k: draw(block[k], tool[k], target[k], float(episode.progress[k]), _SIZE_PX, goal)
