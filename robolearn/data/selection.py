"""Which episodes and signals of a store enter training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.config import config_hash
from robolearn.data.cache import EpisodeArrays, Rows
from robolearn.data.chunks import read_array
from robolearn.data.decoded import FramePart, FrameRows, open_frames
from robolearn.data.episode import Episode, EpisodeInfo, EpisodeKind
from robolearn.data.store import EpisodeStore
from robolearn.errors import ConfigError, DataError, SpecMismatchError
from robolearn.spec import TaskSpace, diff_task_spaces

BUILD_BYTES = 32 * 2**20
"""Decoded chunks in memory while pictures are copied into a cache."""


@dataclass(frozen=True, slots=True)
class DataConfig:
    """The data filter of an experiment."""

    # Signals that the policy sees, in this order.
    observations: tuple[str, ...]
    # Action signals that it commands; empty: all of the embodiment.
    actions: tuple[str, ...] = ()
    # Kinds of episodes. Unattended and deployed episodes are left out unless named.
    kinds: tuple[EpisodeKind, ...] = ("demonstration",)
    # Tasks to take; empty: all.
    tasks: tuple[str, ...] = ()
    # Share of the episodes kept away from training, chosen by seed.
    held_out: float = 0.0

    def __post_init__(self) -> None:
        if not self.observations:
            raise ConfigError("observations: name at least one signal")
        if not self.kinds:
            raise ConfigError("kinds: name at least one kind of episode, e.g. demonstration")
        if not 0.0 <= self.held_out < 1.0:
            raise ConfigError(f"held_out must be in [0, 1), got {self.held_out}")


class StoreSource:
    """The chosen episodes of a store, as arrays at control ticks (what the agent saw)."""

    def __init__(self, store: EpisodeStore, config: DataConfig) -> None:
        self._store, self._config = store, config
        everything = store.list()
        self._infos = tuple(i for i in everything if _wanted(i, config))
        if not self._infos:
            raise DataError(_nothing(store, everything, config))
        embodiment = store.meta(self._infos[0].id).embodiment
        manifests = [self._store.manifest(i) for i in self.ids]
        self._hash = config_hash([sorted((f.path, f.sha256) for f in m.files) for m in manifests])
        self._space = embodiment.task_space(config.observations, config.actions or None)

    @property
    def ids(self) -> tuple[str, ...]:
        """Episodes in the order in which they were recorded."""
        return tuple(i.id for i in self._infos)

    @property
    def task_space(self) -> TaskSpace:
        """The chosen signals, as the first episode declares them."""
        return self._space

    @property
    def content_hash(self) -> str:
        """Of the chosen episodes alone: collecting unattended ones does not change it."""
        return self._hash

    @property
    def steps(self) -> tuple[int, ...]:
        """Ticks of every chosen episode, from the manifests."""
        return tuple(i.steps for i in self._infos)

    def episodes(self, images: bool = True) -> Iterable[EpisodeArrays]:
        """Read the chosen episodes one by one; pictures are decoded in blocks, when asked for."""
        pictures = [s.name for s in self._space.observations if s.is_image]
        small = [n for n in self._config.observations if n not in pictures]
        for info in self._infos:
            episode = self._store.read(info.id, small)
            lines = diff_task_spaces(self._space, episode.meta.embodiment)
            if lines:
                raise SpecMismatchError(
                    f"episode {info.id} ('{episode.meta.embodiment.name}') does not fit the"
                    " others:\n" + "\n".join(lines)
                )
            frames: dict[str, Rows] = {}
            if images:
                parts = {n: [self._part(info.id, n)] for n in pictures}
                frames = {n: FrameRows(p, kept_bytes=BUILD_BYTES) for n, p in parts.items()}
            seen = [self._seen(info.id, n) for n in pictures]
            yield episode_arrays(episode, self._space, frames, seen)

    def frames(self, name: str) -> Sequence[FramePart]:
        """The pictures of signal ``name`` in every chosen episode, still in the store."""
        return tuple(self._part(i.id, name) for i in self._infos)

    def _seen(self, episode_id: str, name: str) -> NDArray[np.bool_]:
        """Whether the picture that a tick showed is there ``[T]``."""
        root, base = self._store.folder(episode_id), f"signals/{name}"
        files = self._store.manifest(episode_id).by_path()
        valid, view = (read_array(root, f"{base}/{part}", files)[0] for part in ("valid", "view"))
        return valid[view]

    def _part(self, episode_id: str, name: str) -> FramePart:
        root = self._store.folder(episode_id)
        base = f"signals/{name}"
        files = self._store.manifest(episode_id).by_path()
        # A data set keeps one of these per episode and camera: only its own files.
        own = {path: entry for path, entry in files.items() if path.startswith(f"{base}/")}
        view = read_array(root, f"{base}/view", own)[0]
        return FramePart(open_frames(root, base, own), view)


def episode_arrays(
    episode: Episode,
    space: TaskSpace,
    frames: Mapping[str, Rows] | None = None,
    frames_seen: Sequence[NDArray[np.bool_]] = (),
) -> EpisodeArrays:
    """The chosen signals of one episode at its ticks; pictures are those given in ``frames``
    (``frames_seen [T]``: whether they are there), or those that the episode holds.
    """
    lazy = frames or {}
    here = [s.name for s in space.observations if s.name in episode.view]
    seen = [episode.streams[n].valid[episode.view[n]] for n in here]
    if episode.terminal[:-1].any():
        raise DataError(f"episode {episode.id} goes on after a terminal step")
    return EpisodeArrays(
        id=episode.id,
        observations=dict(lazy) | {name: episode.observed(name) for name in here},
        actions=np.concatenate(
            [episode.action[a.name].reshape(episode.steps, -1) for a in space.actions], axis=1
        ),
        reward=episode.reward,
        terminal=bool(episode.terminal[-1:].any()),
        source=episode.source,
        seen=np.logical_and.reduce([np.ones(episode.steps, np.bool_), *seen, *frames_seen]),
    )


def _wanted(info: EpisodeInfo, config: DataConfig) -> bool:
    return info.kind in config.kinds and (not config.tasks or info.task in config.tasks)


def _nothing(store: EpisodeStore, everything: tuple[EpisodeInfo, ...], config: DataConfig) -> str:
    have = sorted({f"{i.kind} of task '{i.task}'" for i in everything})
    tasks = f" of tasks {list(config.tasks)}" if config.tasks else ""
    return (
        f"'{store.path}' has no episodes of kinds {list(config.kinds)}{tasks} to train on;"
        f" it has {len(everything)} episodes: {have or 'none'}"
    )
