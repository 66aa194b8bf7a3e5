"""Films stored episodes: what their cameras saw, or what those of a world see when the recorded
actions are done again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from robolearn.agents.replay import ReplayAgent
from robolearn.data.episode import Episode
from robolearn.errors import ConfigError
from robolearn.operations.builders import env_builder
from robolearn.operations.reality.worlds import make_world
from robolearn.operations.replay import first_episodes
from robolearn.runtime import run_episode
from sim.contract import World
from sim.rendering.video import Film, episode_frames, image_signals, write_mp4
from sim.shapes import AnyPicture


@dataclass(frozen=True, slots=True)
class Filmed:
    """The video of an episode (H.264, MP4), and of how many frames it is."""

    episode: str
    video: Path
    frames: int


def film_episodes(
    store: Path,
    out: Path,
    *,
    episodes: int | None = None,
    cameras: Sequence[str] = (),
    height: int | None = None,
    world: str = "",
    on_filmed: Callable[[int, int], None] | None = None,
) -> tuple[Filmed, ...]:
    """Write ``out/EPISODE.mp4`` for the first ``episodes`` episodes (all: None), cameras side by
    side.

    ``cameras``: image signals (empty: all); ``height`` [px] (None: that of the tallest picture);
    ``world``: do the actions again there and film what its cameras see; ``on_filmed``: told (0, of)
    before the first video, then (done, of) after each.

    Errors: :class:`ConfigError`, :class:`SpecMismatchError`, :class:`DataError` for what cannot be
    filmed.
    """
    if height is not None and height < 1:
        raise ConfigError(f"height must be at least 1, got {height}")
    ids, opened = first_episodes(store, episodes)
    done: list[Filmed] = []

    def tell() -> None:
        if on_filmed is not None:
            on_filmed(len(done), len(ids))

    with contextlib.ExitStack() as stack:
        env = None
        if world:
            env = stack.enter_context(contextlib.closing(make_world(env_builder(world).world)))
            _require_cameras(env, world, cameras)
        tell()
        for name in ids:
            episode, path = opened.read(name), out / f"{name}.mp4"
            if env is None:
                pictures = _as_recorded(episode, cameras, height)
            else:
                pictures = _again(episode, env, cameras, height)
            frames = write_mp4(path, pictures, episode.meta.embodiment.rate_hz)
            done.append(Filmed(name, path, frames))
            tell()
    return tuple(done)


def _as_recorded(
    episode: Episode, cameras: Sequence[str], height: int | None
) -> Iterable[AnyPicture]:
    if not image_signals(episode.meta.embodiment):
        raise ConfigError(
            "these episodes have no pictures; give a world that does their actions again and films"
            " them, for instance pusht_reference,camera=top"
        )
    return episode_frames(episode, cameras, height)


def _require_cameras(env: World, world: str, cameras: Sequence[str]) -> None:
    for name in cameras:
        env.spec.signal(name)
    if not image_signals(env.spec):
        raise ConfigError(f"world '{world}' observes no camera; name some: '{world},camera=top'")


def _again(
    episode: Episode, env: World, cameras: Sequence[str], height: int | None
) -> Iterable[AnyPicture]:
    film = Film(cameras or image_signals(env.spec), height)
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
