"""Replays recordings in a simulated world, open loop, and measures how far it is from them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from sim.adapters.robosuite.env import RobosuiteEnv
from sim.adapters.robosuite.replay import StateReplay, replay_recording
from sim.identification.replay import (
    ErrorSummary,
    ReplayError,
    replay_episode,
    summarize_after,
    summarize_final,
)
from sim.worlds import make_world

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
    ids, opened = _episodes(store, episodes)
    with contextlib.closing(make_world(scene)) as env:
        tell = on_replayed or _nobody
        tell(0, len(ids))
        errors: list[ReplayError] = []
        for name in ids:
            errors.append(replay_episode(env, opened.read(name)))
            tell(len(errors), len(ids))
        return Replayed(scene, env.scene_hash, env.engine, tuple(errors))


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
    ids, opened = _episodes(store, episodes)
    with contextlib.closing(make_world(scene)) as env:
        if not isinstance(env, RobosuiteEnv):
            raise ConfigError(f"'{scene}' is not a robosuite world")
        tell = on_replayed or _nobody
        tell(0, len(ids))
        replays: list[StateReplay] = []
        for name in ids:
            replays.append(replay_recording(env, opened.read(name)))
            tell(len(replays), len(ids))
        return StatesReplayed(scene, env.engine, tuple(replays))


def _episodes(store: Path, count: int | None) -> tuple[list[str], EpisodeStore]:
    if count is not None and count < 1:
        raise ConfigError(f"episodes must be at least 1, got {count}")
    opened = EpisodeStore.open(store)
    ids = [info.id for info in opened.list()][:count]
    if not ids:
        raise DataError(f"'{store}' holds no episodes; collect or import some first")
    return ids, opened


def _nobody(done: int, of: int) -> None:
    """Told where nobody wants to know."""
