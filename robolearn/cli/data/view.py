"""``robolearn data view`` shows an episode, in the rerun viewer or as one picture."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

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
    if args.strip is None and args.save is None and not _has_display():
        raise ConfigError("there is no display; use --strip out.png or --save out.rrd")
    from robolearn.data.store.store import EpisodeStore
    from robolearn.data.view.rerun import show_episode
    from robolearn.operations.pictures.strip import draw_strip, newest_episode

    store = EpisodeStore.open(args.store)
    episode = args.episode or newest_episode(store)
    if args.strip is not None:
        draw_strip(args.store, args.strip, episode=episode, frames=args.frames)
        say(f"{episode}: {args.strip}")
    if args.save is not None or args.strip is None:
        show_episode(store, episode, args.save)
        say(f"{episode}: {args.save or 'rerun viewer'}")
    return 0


def _has_display() -> bool:
    if sys.platform != "linux":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


VIEW_VERBS: dict[str, tuple[type, Callable[[list[str]], int]]] = {"view": (View, view)}
