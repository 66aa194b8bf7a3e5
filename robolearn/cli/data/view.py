"""``robolearn data view`` shows an episode, in the rerun viewer or as one picture."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from numpy.typing import NDArray

from robolearn.cli.shared.parse import parse, say
from robolearn.errors import ConfigError


@dataclass(frozen=True)
class View:
    """Look at an episode: rerun's viewer, a file for it, or a picture strip."""

    # Store to read.
    store: tyro.conf.Positional[Path]
    # Id of an episode (left out: the newest).
    episode: Annotated[str | None, tyro.conf.Positional] = None
    # Write one PNG picture, frames above curves; needs no display.
    strip: Path | None = None
    # Write a file that 'rerun FILE' opens, here or elsewhere; needs no display.
    save: Path | None = None
    # Pictures per camera in the strip.
    frames: int = 8


def view(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    args = parse(View, argv, "data view", View.__doc__ or "")
    if args.frames < 1:
        raise ConfigError(f"--frames must be at least 1, got {args.frames}")
    if args.strip is None and args.save is None and not _has_display():
        raise ConfigError("there is no display; use --strip out.png or --save out.rrd")
    from robolearn.data.store.store import EpisodeStore

    store = EpisodeStore.open(args.store)
    ids = store.ids()
    if not ids:
        raise ConfigError(f"{args.store} has no episodes to look at")
    episode_id = args.episode or ids[-1]
    if args.strip is not None:
        from robolearn.data.view.contact_sheet import save_strip

        save_strip(store, episode_id, args.strip, frames=args.frames, drawing=_pusht)
        say(f"{episode_id}: {args.strip}")
    if args.save is not None or args.strip is None:
        from robolearn.data.view.rerun import show_episode

        show_episode(store, episode_id, args.save)
        say(f"{episode_id}: {args.save or 'rerun viewer'}")
    return 0


def _has_display() -> bool:
    if sys.platform != "linux":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _pusht(episode: object) -> Callable[[int], NDArray[np.uint8]] | None:
    """Push-T from above, for episodes without cameras."""
    from robolearn.data.episode import Episode
    from robolearn.operations.deploy.video import draw
    from robolearn.pusht import BLOCK, TOOL, recorded_goal

    if not isinstance(episode, Episode) or not {TOOL, BLOCK} <= set(episode.streams):
        return None
    tool, block = episode.observed(TOOL), episode.observed(BLOCK)
    target = episode.action.get(TOOL, tool)
    if block.shape[1:] != (3,) or tool.shape[1:] != (2,):
        return None
    goal = recorded_goal(episode.meta.provenance)
    return lambda k: draw(block[k], tool[k], target[k], float(episode.progress[k]), 320, goal)


VIEW_VERBS: dict[str, tuple[type, Callable[[list[str]], int]]] = {"view": (View, view)}
