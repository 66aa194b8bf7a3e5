"""``robolearn video STORE``: videos of stored episodes that browsers play."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, progress, say
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from robolearn.data.episode import Episode


@dataclass(frozen=True, slots=True)
class Args:
    """Write a video (H.264, MP4) per episode: its recorded pictures, cameras side by side."""

    # Episode store.
    store: Annotated[Path, tyro.conf.Positional]
    # Folder for <episode>.mp4.
    out: Path = Path("videos")
    # The first N episodes; default every one.
    episodes: int | None = None
    # Image signals, for instance top/image,wrist/image; default all.
    cameras: str = ""
    # Height of the video in pixels; default that of the tallest picture.
    height: int | None = None
    # Do the recorded actions again in this world and film what its cameras see, for instance
    # pick_place,camera=agent+wrist.
    world: str = ""
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Read, draw, write."""
    args = parse(Args, argv, "video", Args.__doc__ or "")
    for option, value in (("--episodes", args.episodes), ("--height", args.height)):
        if value is not None and value < 1:
            raise ConfigError(f"{option} must be at least 1, got {value}")
    from robolearn.data.store.store import EpisodeStore
    from sim.rendering.video import write_mp4

    output_folder(args.out, "--out", "videos")
    store = EpisodeStore.open(args.store)
    ids = [info.id for info in store.list()][: args.episodes]
    if not ids:
        raise ConfigError(f"'{args.store}' holds no episodes; collect or import some first")
    written: list[dict[str, Any]] = []
    with progress("video", len(ids), quiet=args.json) as advance:
        for name in ids:
            episode = store.read(name)
            path = args.out / f"{name}.mp4"
            rate_hz = episode.meta.embodiment.rate_hz
            frames = write_mp4(path, _frames(args, episode), rate_hz)
            written.append({"episode": name, "video": str(path), "frames": frames})
            advance()
    if args.json:
        print_json({"videos": written})
    else:
        say(f"{len(written)} video(s) in {args.out}")
    return 0


def _frames(args: Args, episode: Episode) -> Iterable[Any]:
    from sim.rendering.video import episode_frames, image_signals

    cameras = [c.strip() for c in args.cameras.split(",") if c.strip()]
    if not args.world:
        if not image_signals(episode.meta.embodiment):
            raise ConfigError(
                "these episodes have no pictures; --world WORLD does its actions again"
                " and films them, for instance --world pusht_reference,camera=top"
            )
        return episode_frames(episode, cameras, args.height)
    return _again(args, episode, cameras)


def _again(args: Args, episode: Episode, cameras: list[str]) -> Iterable[Any]:
    import contextlib

    from robolearn.agents.replay import ReplayAgent
    from robolearn.operations.builders import env_builder
    from robolearn.runtime import run_episode
    from sim.rendering.video import Film, image_signals
    from sim.worlds import make_world

    world = env_builder(args.world).world
    with contextlib.closing(make_world(world)) as env:
        for name in cameras:
            env.spec.signal(name)
        if not image_signals(env.spec):
            raise ConfigError(
                f"--world '{args.world}' observes no camera; name some: '{args.world},camera=top'"
            )
        film = Film(cameras or image_signals(env.spec), args.height)
        run_episode(
            env,
            ReplayAgent(episode.action, env.spec.actions),
            None,
            [film],
            episode.meta.condition,
            max_steps=episode.steps,
            task=env.task,
            env_name=env.spec.name,
        )
    return film.frames
