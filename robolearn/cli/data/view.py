"""``robolearn data view`` shows an episode: in the rerun viewer, as one picture, or as text."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from robolearn.cli.shared.page import serve_page
from robolearn.cli.shared.parse import parse, say
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from robolearn.data.store.store import EpisodeStore
    from robolearn.operations.studio.library import Library


@dataclass(frozen=True)
class View:
    """Look at an episode: rerun's viewer, a file for it, a picture strip, text, or a page."""

    # Store to read.
    store: tyro.conf.Positional[Path]
    # Id of an episode (left out: the newest).
    episode: Annotated[str | None, tyro.conf.Positional] = None
    # Write one PNG picture, frames above curves; needs no display.
    strip: Path | None = None
    # Write a file that 'rerun FILE' opens, here or elsewhere; needs no display.
    save: Path | None = None
    # Print curves, who drove, and what is wrong with it; needs no display.
    text: bool = False
    # Serve the studio's page of it until Ctrl-C: cameras, signals, who drove, events; keys say its
    # outcome, labels and notes.
    page: bool = False
    # Pictures per camera in the strip.
    frames: int = 8


def view(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    args = parse(View, argv, "data view", View.__doc__ or "")
    alone = args.strip is None and args.save is None and not args.text and not args.page
    if alone and not _has_display():
        raise ConfigError(
            "there is no display; use --page, --text, --strip out.png or --save out.rrd"
        )
    from robolearn.data.store.store import EpisodeStore
    from robolearn.data.view.rerun import show_episode
    from robolearn.operations.pictures.strip import draw_strip, newest_episode

    store = EpisodeStore.open(args.store)
    episode = args.episode or newest_episode(store)
    if args.text:
        _say_text(store, episode)
    if args.strip is not None:
        draw_strip(args.store, args.strip, episode=episode, frames=args.frames)
        say(f"{episode}: {args.strip}")
    if args.save is not None or alone:
        show_episode(store, episode, args.save)
        say(f"{episode}: {args.save or 'rerun viewer'}")
    if args.page:
        from robolearn.web.address import LOOPBACK

        # Refused here, where there is none of that id.
        store.manifest(episode)
        serve_page([args.store], LOOPBACK, 0, view=lambda library: _page_of(library, episode))
    return 0


def _page_of(library: Library, episode_id: str) -> str:
    """The part of the studio's page that shows it."""
    from robolearn.data.store.manifest import episode_number

    (store,) = (thing for thing in library.things() if thing.kind == "store")
    return f"#/store/{store.id}/episode/{episode_number(episode_id)}"


def _say_text(store: EpisodeStore, episode_id: str) -> None:
    """What a person looks at between two recordings."""
    from robolearn.cli.data.quality import verdict_lines
    from robolearn.data.view.cameras import read_without_pictures
    from robolearn.data.view.curves import ASCII, BLOCKS, episode_curves
    from robolearn.operations.stores.quality import judge_quality

    said = store.annotated(episode_id)
    for line in verdict_lines(judge_quality(store.path, episodes=(episode_id,)).verdicts[0]):
        say(line)
    about = [said.split, *said.labels, *(f'"{note}"' for note in said.notes)]
    if any(about):
        say(f"  said of it: {', '.join(a for a in about if a)}")
    levels = BLOCKS if (sys.stdout.encoding or "").lower().startswith("utf") else ASCII
    episode = read_without_pictures(store, episode_id)
    for line in episode_curves(episode, said, levels=levels):
        say(line)
    say(f"say something about it: robolearn data note {store.path} {episode_id} --outcome failure")


def _has_display() -> bool:
    if sys.platform != "linux":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


VIEW_VERBS: dict[str, tuple[type, Callable[[list[str]], int]]] = {"view": (View, view)}
