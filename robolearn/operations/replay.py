"""Replays recordings in a simulated world, open loop, and measures how far it is from them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from robolearn.data.episode import Episode
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.operations.reality.worlds import make_world
from sim.adapters.robosuite.env import RobosuiteEnv
from sim.adapters.robosuite.replay import StateReplay, replay_recording
from sim.identification.replay import (
    ErrorSummary,
    ReplayError,
    replay_episode,
    summarize_after,
    summarize_final,
)

T = TypeVar("T")
# Told (0, of) before the first episode, then (done, of) after each.
OnReplayed = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Replayed:
    """How far the moved object is from every recording, when its actions are commanded again."""

    scene: str
    scene_hash: str
    engine: str
    errors: tuple[ReplayError, ...]

    def final(self) -> ErrorSummary:
        """Errors at the last recorded state."""
        return summarize_final(self.errors)

    def after(self, seconds: float) -> ErrorSummary:
        """Errors so long after the start, over the episodes that are long enough."""
        return summarize_after(self.errors, seconds)

    @property
    def diverged(self) -> tuple[str, ...]:
        """Episodes in which the physics diverged."""
        return tuple(e.episode for e in self.errors if e.reason)


@dataclass(frozen=True, slots=True)
class StatesReplayed:
    """Recordings whose states were set and whose actions were commanded, in a robosuite world."""

    scene: str
    engine: str
    replays: tuple[StateReplay, ...]


def sets_states(scene: str) -> bool:
    """Whether recordings of this world hold its states: :func:`replay_states` is for it."""
    return scene.startswith("robosuite/")


def replay(
    store: Path,
    scene: str,
    *,
    episodes: int | None = None,
    on_replayed: OnReplayed | None = None,
) -> Replayed:
    """Command the recorded actions of the first ``episodes`` episodes (all: None) in ``scene``.

    Errors: :class:`ConfigError` for a world that is not there, :class:`DataError` for a store
    without episodes and for episodes that the world cannot replay.
    """
    ids, opened = first_episodes(store, episodes)
    with contextlib.closing(make_world(scene)) as env:
        errors = _each(opened, ids, partial(replay_episode, env), on_replayed)
        return Replayed(scene, env.scene_hash, env.engine, errors)


def replay_states(
    store: Path,
    scene: str,
    *,
    episodes: int | None = None,
    on_replayed: OnReplayed | None = None,
) -> StatesReplayed:
    """Set the recorded states in the robosuite world ``scene``, and command the same recordings'
    actions. Arguments and errors are those of :func:`replay`.
    """
    ids, opened = first_episodes(store, episodes)
    with contextlib.closing(make_world(scene)) as env:
        if not isinstance(env, RobosuiteEnv):
            raise ConfigError(f"'{scene}' is not a robosuite world")
        replays = _each(opened, ids, partial(replay_recording, env), on_replayed)
        return StatesReplayed(scene, env.engine, replays)


def first_episodes(store: Path, count: int | None) -> tuple[list[str], EpisodeStore]:
    """Ids of the first ``count`` episodes (all: None), and the store; DataError where none is."""
    if count is not None and count < 1:
        raise ConfigError(f"episodes must be at least 1, got {count}")
    opened = EpisodeStore.open(store)
    ids = [info.id for info in opened.list()][:count]
    if not ids:
        raise DataError(f"'{store}' holds no episodes; collect or import some first")
    return ids, opened


def _each(
    store: EpisodeStore,
    ids: Sequence[str],
    one: Callable[[Episode], T],
    on_replayed: OnReplayed | None,
) -> tuple[T, ...]:
    """What ``one`` makes of every episode."""
    found: list[T] = []

    def tell() -> None:
        if on_replayed is not None:
            on_replayed(len(found), len(ids))

    tell()
    for name in ids:
        found.append(one(store.read(name)))
        tell()
    return tuple(found)
