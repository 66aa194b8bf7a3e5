"""Chooses which episodes and signals of a store enter training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.config import config_hash, to_dict
from robolearn.contracts import Normalization
from robolearn.data.episode import Episode, EpisodeInfo, EpisodeKind, EpisodeStart
from robolearn.data.reading.consistency import require_one_end
from robolearn.data.reading.corruption import CorruptConfig
from robolearn.data.reading.costs import CostConfig, costs
from robolearn.data.reading.episode_arrays import EpisodeArrays, Rows
from robolearn.data.reading.pictures import PictureConfig
from robolearn.data.reading.rewards import RewardConfig, Rewarded, require_signals, rewarded
from robolearn.data.reading.weighting import EpisodeQuality, IdleConfig, QualityConfig
from robolearn.data.store.chunks import read_array
from robolearn.data.store.decoded import FramePart, FrameRows, open_frames
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError, SpecMismatchError
from robolearn.history import sample_index
from robolearn.pusht import Pose, recorded_goal
from robolearn.representation import RepresentationConfig
from robolearn.shapes import Flags
from robolearn.spec import TaskSpace, diff_task_spaces
from robolearn.timing.latencies import Latencies, in_effect, trained_with

Rows64 = NDArray[np.int64]

BUILD_BYTES = 32 * 2**20
"""Decoded chunks in memory while pictures are copied into a cache."""


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """One store of a dataset. Outcome, labels and split count as annotated."""

    # Folder, or a URL such as s3://bucket/prefix.
    path: str
    # Share of the batches, relative to the other stores' weights; left out for all stores: every
    # window is drawn equally often.
    weight: float | None = None
    # Kinds of episodes; empty: those of the experiment.
    kinds: tuple[EpisodeKind, ...] = ()
    # Tasks to take; empty: those of the experiment.
    tasks: tuple[str, ...] = ()
    # Labels that an episode must have.
    labels: tuple[str, ...] = ()
    # Labels that it must not have.
    without_labels: tuple[str, ...] = ()
    # Split that it must belong to.
    split: str | None = None
    # Outcome that it must have; left out: that of the experiment.
    success: bool | None = None
    # Lowest score in [0, 1].
    min_score: float | None = None

    def __post_init__(self) -> None:
        if self.weight is not None and not (math.isfinite(self.weight) and self.weight > 0):
            raise ConfigError(f"weight of {self.path} must be above 0, got {self.weight}")

    def takes(self, info: EpisodeInfo, config: DataConfig) -> bool:
        """Whether an episode enters training."""
        kinds, tasks = self.kinds or config.kinds, self.tasks or config.tasks
        success = config.success if self.success is None else self.success
        return (
            info.kind in kinds
            and (not tasks or info.task in tasks)
            and set(self.labels) <= set(info.labels)
            and not set(self.without_labels) & set(info.labels)
            and (self.split is None or info.split == self.split)
            and (success is None or info.success == success)
            and (self.min_score is None or info.score >= self.min_score)
        )


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
    # Outcome that episodes must have; left out: any.
    success: bool | None = None
    # Share of the episodes kept away from training, chosen by seed.
    held_out: float = 0.0
    # Stores to train from, instead of --store.
    stores: tuple[StoreChoice, ...] = ()
    # Age that a signal has at least when it is seen [s]: what a slower sensor, or the way from it,
    # takes longer in deployment than it did while recording.
    latency_s: dict[str, float] = field(default_factory=dict[str, float])
    # Scaling of a signal (minmax, quantile, meanstd, none), observed and commanded alike; others
    # are scaled as the algorithm says.
    normalization: dict[str, Normalization] = field(default_factory=dict[str, Normalization])
    # What the network sees of actions and rotations.
    representation: RepresentationConfig = field(default_factory=RepresentationConfig)
    # How often windows of good episodes are drawn.
    quality: QualityConfig = field(default_factory=QualityConfig)
    # Which windows are left out because nothing moves.
    idle: IdleConfig = field(default_factory=IdleConfig)
    # Whether the policy is told the episode's instruction (its task_text, else its task's name).
    text: bool = False
    # How pictures are varied in training.
    pictures: PictureConfig = field(default_factory=PictureConfig)
    # What steps are worth and where the task ends; for algorithms that learn from rewards.
    reward: RewardConfig = field(default_factory=RewardConfig)
    # What is spoilt at random, to see what an algorithm makes of it.
    corrupt: CorruptConfig = field(default_factory=CorruptConfig)
    # What steps cost, of what must not happen; for algorithms that keep away from it.
    cost: CostConfig | None = None

    def __post_init__(self) -> None:
        if not self.observations:
            raise ConfigError("observations: name at least one signal")
        if not self.kinds:
            raise ConfigError("kinds: name at least one kind of episode, e.g. demonstration")
        if not 0.0 <= self.held_out < 1.0:
            raise ConfigError(f"held_out must be in [0, 1), got {self.held_out}")
        names = {*self.observations}
        for name, latency in self.latency_s.items():
            if name not in names or not (math.isfinite(latency) and latency >= 0):
                raise ConfigError(
                    f"latency_s: expected an observation and at least 0 s, got {name}: {latency};"
                    f" observations: {sorted(names)}"
                )
        given = sum(choice.weight is not None for choice in self.stores)
        if given not in (0, len(self.stores)):
            raise ConfigError("stores: give every store a weight, or none")
        if given and self.quality.success_share is not None:
            raise ConfigError(
                "stores: weights and quality.success_share both say how batches are divided; leave"
                " one out"
            )


class StoreSource:
    """The chosen episodes of a store, as arrays at control ticks (what the agent saw)."""

    def __init__(
        self, store: EpisodeStore, config: DataConfig, choice: StoreChoice | None = None
    ) -> None:
        self._store, self._config = store, config
        wanted = choice or StoreChoice(str(store.path))
        everything = store.list()
        self._infos = tuple(i for i in everything if wanted.takes(i, config))
        if not self._infos:
            raise DataError(_nothing(store, everything, config, wanted))
        embodiment = store.meta(self._infos[0].id).embodiment
        manifests = [self._store.manifest(i) for i in self.ids]
        self._recorded = tuple(m.info.success for m in manifests)
        content = [sorted((f.path, f.sha256) for f in m.files) for m in manifests]
        late = {k: v for k, v in sorted(config.latency_s.items()) if v}
        identity = (*self._reward_identity(), *self._cost_identity())
        self._hash = config_hash(content, *([late] if late else []), *identity)
        self._space = embodiment.task_space(config.observations, config.actions or None)
        known = tuple(s.name for s in embodiment.signals if not s.is_image)
        asked = {"data.reward": (config.reward.task, config.reward.relabelling().signals)}
        if config.cost is not None:
            asked["data.cost"] = (config.cost.task, config.cost.costing().signals)
        self._judged = tuple(
            name
            for option, (task, signals) in asked.items()
            for name in require_signals(option, task, signals, known, embodiment.name)
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """Episodes in the order in which they were recorded."""
        return tuple(i.id for i in self._infos)

    @property
    def task_space(self) -> TaskSpace:
        """The chosen signals, as the first episode declares them."""
        return self._space

    @property
    def qualities(self) -> tuple[EpisodeQuality, ...]:
        """How every chosen episode ended, as annotated."""
        found = zip(self._infos, self._recorded, strict=True)
        return tuple(EpisodeQuality(i.success, i.score, recorded) for i, recorded in found)

    @property
    def annotated(self) -> tuple[str, ...]:
        """Why the outcome of a chosen episode was annotated, one phrase per such episode."""
        said = (self._store.annotated(i) for i in self.ids)
        given = (s for s in said if s.success is not None)
        return tuple("; ".join(filter(None, (s.reason, *s.notes))) or "no reason" for s in given)

    @property
    def texts(self) -> tuple[str, ...]:
        """What every chosen episode was told to be: its instruction, else its task's name."""
        return tuple(self._store.meta(i.id).task_text or i.task for i in self._infos)

    @property
    def latencies(self) -> Latencies:
        """What a run on these episodes is trained with (reads the metadata of all)."""
        recorded = (Latencies.of(self._store.meta(i).provenance) for i in self.ids)
        return trained_with(recorded, self._config.latency_s)

    @property
    def goals(self) -> tuple[Pose, ...]:
        """Where the goal of Push-T was in the chosen episodes, each pose once."""
        pusht = [i.id for i in self._infos if i.task == "pusht"]
        recorded = (recorded_goal(self._store.meta(i).provenance) for i in pusht)
        return tuple(dict.fromkeys(recorded))

    @property
    def starts(self) -> tuple[EpisodeStart, ...]:
        """Where every chosen episode began."""
        return tuple(EpisodeStart.of(self._store.meta(i)) for i in self.ids)

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
        small += [n for n in dict.fromkeys(self._judged) if n not in small]
        for info in self._infos:
            episode = self._store.read(info.id, small)
            lines = diff_task_spaces(self._space, episode.meta.embodiment)
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
                parts = {n: [self._part(info.id, n)] for n in pictures}
                frames = {n: FrameRows(p, kept_bytes=BUILD_BYTES) for n, p in parts.items()}
            seen = [self._seen(info.id, n) for n in pictures]
            arrays = episode_arrays(episode, self._space, frames, seen, worth)
            yield dataclasses.replace(arrays, cost=cost)

    def frames(self, name: str) -> Sequence[FramePart]:
        """The pictures of signal ``name`` in every chosen episode, still in the store."""
        return tuple(self._part(i.id, name) for i in self._infos)

    def _reward_identity(self) -> list[Any]:
        """What decides rewards besides the recordings; nothing where they are read as recorded."""
        reward = self._config.reward
        if reward.plain:
            return []
        judged = [i.success for i in self._infos] if reward.relabelling().judges else []
        return [{"reward": to_dict(reward), "success": judged}]

    def _cost_identity(self) -> list[Any]:
        """What decides costs; nothing where nothing is said of them."""
        return [] if self._config.cost is None else [{"cost": to_dict(self._config.cost)}]

    def _in_effect(self, episode: Episode) -> dict[str, NDArray[Any]]:
        """Commands when they took effect: sending them ahead is the cell's affair."""
        late_ns = round(1e9 * Latencies.of(episode.meta.provenance).command_s)
        return {
            a.name: in_effect(episode.action[a.name], episode.tick_t_ns, a, late_ns)
            for a in self._space.actions
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

    def _part(self, episode_id: str, name: str) -> FramePart:
        root = self._store.folder(episode_id)
        base = f"signals/{name}"
        files = self._store.manifest(episode_id).by_path()
        # A data set keeps one of these per episode and camera: only its own files.
        own = {path: entry for path, entry in files.items() if path.startswith(f"{base}/")}
        return FramePart(open_frames(root, base, own), self._view(episode_id, name))


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


def _nothing(
    store: EpisodeStore,
    everything: tuple[EpisodeInfo, ...],
    config: DataConfig,
    choice: StoreChoice,
) -> str:
    have = sorted({f"{i.kind} of task '{i.task}'" for i in everything})
    names = choice.tasks or config.tasks
    tasks = f" of tasks {list(names)}" if names else ""
    asked = dataclasses.replace(choice, path="", weight=None, kinds=(), tasks=())
    if asked != StoreChoice("") or config.success is not None:
        tasks += " with the labels, split, outcome and score asked for"
    return (
        f"'{store.path}' has no episodes of kinds {list(choice.kinds or config.kinds)}{tasks}"
        " to train on;"
        f" it has {len(everything)} episodes: {have or 'none'}"
    )
