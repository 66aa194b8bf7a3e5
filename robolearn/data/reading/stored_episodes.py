"""Reads episodes of a store one by one, as training sees them: as chosen, relabelled, and late."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode, EpisodeInfo, EpisodeMeta
from robolearn.data.reading.consistency import require_one_end
from robolearn.data.reading.costs import CostConfig, costs
from robolearn.data.reading.episode_arrays import EpisodeArrays, Rows
from robolearn.data.reading.rewards import RewardConfig, Rewarded, require_signals, rewarded
from robolearn.data.store.chunks import read_array
from robolearn.data.store.decoded import FramePart, FrameRows, open_frames
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import SpecMismatchError
from robolearn.history import sample_index
from robolearn.shapes import Flags
from robolearn.spec import EmbodimentSpec, TaskSpace, diff_task_spaces, refuse_depth
from robolearn.timing.latencies import Latencies, in_effect

Rows64 = NDArray[np.int64]

BUILD_BYTES = 32 * 2**20
"""Decoded chunks in memory while pictures are copied into a cache."""


@runtime_checkable
class Reading(Protocol):
    """What ``DataConfig`` says of how an episode is read."""

    @property
    def observations(self) -> tuple[str, ...]:
        """Signals that the policy sees."""
        ...

    @property
    def actions(self) -> tuple[str, ...]:
        """Action signals; empty: all."""
        ...

    @property
    def latency_s(self) -> dict[str, float]:
        """Least age of signals [s]."""
        ...

    @property
    def reward(self) -> RewardConfig:
        """What steps are worth."""
        ...

    @property
    def cost(self) -> CostConfig | None:
        """What they cost."""
        ...


class StoredEpisodes:
    """Episodes of ``store`` as ``config`` says, if they fit ``embodiment``."""

    def __init__(self, store: EpisodeStore, config: Reading, embodiment: EmbodimentSpec) -> None:
        self._store, self._config = store, config
        # The chosen signals, as the embodiment declares them.
        self.space = embodiment.task_space(config.observations, config.actions or None)
        refuse_depth(self.space)
        known = tuple(s.name for s in embodiment.signals if not s.is_image)
        asked = {"data.reward": (config.reward.task, config.reward.relabelling().signals)}
        if config.cost is not None:
            asked["data.cost"] = (config.cost.task, config.cost.costing().signals)
        judged = [
            name
            for option, (task, signals) in asked.items()
            for name in require_signals(option, task, signals, known, embodiment.name)
        ]
        self._pictures = [s.name for s in self.space.observations if s.is_image]
        small = [n for n in config.observations if n not in self._pictures]
        self._small = [*small, *(n for n in dict.fromkeys(judged) if n not in small)]

    def read(self, info: EpisodeInfo, images: bool) -> tuple[EpisodeMeta, EpisodeArrays]:
        """One episode; pictures are decoded in blocks, when asked for with ``images``.

        Errors: :class:`SpecMismatchError` for an episode of another embodiment.
        """
        episode = self._store.read(info.id, self._small)
        lines = diff_task_spaces(self.space, episode.meta.embodiment)
        if lines:
            raise SpecMismatchError(
                f"episode {info.id} ('{episode.meta.embodiment.name}') does not fit the"
                " others:\n" + "\n".join(lines)
            )
        # By what was seen when it was recorded, whatever a policy will see late.
        reward, worth = self._config.reward, None
        if not reward.plain:
            worth = rewarded(episode, reward, info.success)
        cost = None if self._config.cost is None else costs(episode, self._config.cost)
        episode = dataclasses.replace(
            episode,
            action=dict(episode.action) | self._in_effect(episode),
            view=dict(episode.view)
            | {
                name: self._late(name, view, episode.streams[name].t_ns, episode.tick_t_ns)
                for name, view in episode.view.items()
            },
        )
        frames: dict[str, Rows] = {}
        if images:
            parts = {n: [self.part(info.id, n)] for n in self._pictures}
            frames = {n: FrameRows(p, kept_bytes=BUILD_BYTES) for n, p in parts.items()}
        seen = [self._seen(info.id, n) for n in self._pictures]
        arrays = episode_arrays(episode, self.space, frames, seen, worth)
        return episode.meta, dataclasses.replace(arrays, cost=cost)

    def part(self, episode_id: str, name: str) -> FramePart:
        """The pictures of signal ``name`` in one episode, still in the store."""
        root = self._store.folder(episode_id)
        base = f"signals/{name}"
        files = self._store.manifest(episode_id).by_path()
        # A data set keeps one of these per episode and camera: only its own files.
        own = {path: entry for path, entry in files.items() if path.startswith(f"{base}/")}
        return FramePart(open_frames(root, base, own), self._view(episode_id, name))

    def _in_effect(self, episode: Episode) -> dict[str, NDArray[Any]]:
        """Commands when they took effect: sending them ahead is the cell's affair."""
        late_ns = round(1e9 * Latencies.of(episode.meta.provenance).command_s)
        return {
            a.name: in_effect(episode.action[a.name], episode.tick_t_ns, a, late_ns)
            for a in self.space.actions
        }

    def _late(self, name: str, view: Rows64, stream_ns: Rows64, tick_ns: Rows64) -> Rows64:
        """The rows that ticks would have shown, had the signal taken its latency to arrive."""
        latency_ns = round(1e9 * self._config.latency_s.get(name, 0.0))
        if not latency_ns:
            return view
        return np.minimum(view, sample_index(stream_ns, tick_ns - latency_ns, name))

    def _view(self, episode_id: str, name: str) -> Rows64:
        """Rows of the stream of pictures ``name`` that the ticks show."""
        root, base = self._store.folder(episode_id), f"signals/{name}"
        files = self._store.manifest(episode_id).by_path()
        view = read_array(root, f"{base}/view", files)[0]
        if not self._config.latency_s.get(name, 0.0):
            return view
        times = (read_array(root, path, files)[0] for path in (f"{base}/t_ns", "ticks/t_ns"))
        return self._late(name, view, *times)

    def _seen(self, episode_id: str, name: str) -> NDArray[np.bool_]:
        """Whether the picture that a tick showed is there ``[T]``."""
        root, base = self._store.folder(episode_id), f"signals/{name}"
        files = self._store.manifest(episode_id).by_path()
        valid = read_array(root, f"{base}/valid", files)[0]
        return valid[self._view(episode_id, name)]


def episode_arrays(
    episode: Episode,
    space: TaskSpace,
    frames: Mapping[str, Rows] | None = None,
    frames_seen: Sequence[Flags] = (),
    worth: Rewarded | None = None,
) -> EpisodeArrays:
    """The chosen signals of one episode at its ticks; pictures are those given in ``frames``
    (``frames_seen [T]``: whether they are there), or those that the episode holds. ``worth``: what
    its steps are worth; None: what was recorded.
    """
    lazy = frames or {}
    here = [s.name for s in space.observations if s.name in episode.view]
    seen = [episode.streams[n].valid[episode.view[n]] for n in here]
    require_one_end(episode)
    return EpisodeArrays(
        id=episode.id,
        observations=dict(lazy) | {name: episode.observed(name) for name in here},
        actions=np.concatenate(
            [episode.action[a.name].reshape(episode.steps, -1) for a in space.actions], axis=1
        ),
        reward=episode.reward if worth is None else worth.reward,
        done=episode.terminal if worth is None else worth.done,
        source=episode.source,
        seen=np.logical_and.reduce([np.ones(episode.steps, np.bool_), *seen, *frames_seen]),
    )
