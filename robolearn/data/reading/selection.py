"""Chooses which episodes and signals of a store enter training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from robolearn.config import config_hash, to_dict
from robolearn.contracts import Normalization
from robolearn.data.episode import EpisodeInfo, EpisodeKind, EpisodeStart
from robolearn.data.reading.corruption import CorruptConfig
from robolearn.data.reading.costs import CostConfig, Judging
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.data.reading.pictures import PictureConfig
from robolearn.data.reading.rewards import RewardConfig
from robolearn.data.reading.stored_episodes import StoredEpisodes
from robolearn.data.reading.weighting import EpisodeQuality, IdleConfig, QualityConfig
from robolearn.data.store.decoded import FramePart
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.pusht import Pose, recorded_goal
from robolearn.representation import RepresentationConfig
from robolearn.spec import TaskSpace
from robolearn.timing.latencies import Latencies, trained_with


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
        dividing = "success_share" if self.quality.success_share is not None else ""
        dividing = "drivers" if self.quality.drivers != "alike" else dividing
        if given and dividing:
            raise ConfigError(
                f"stores: weights and quality.{dividing} both say how batches are divided; leave"
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
        self._reader = StoredEpisodes(store, config, embodiment)

    @property
    def ids(self) -> tuple[str, ...]:
        """Episodes in the order in which they were recorded."""
        return tuple(i.id for i in self._infos)

    @property
    def task_space(self) -> TaskSpace:
        """The chosen signals, as the first episode declares them."""
        return self._reader.space

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
        for info in self._infos:
            yield self._reader.read(info, images)[1]

    def frames(self, name: str) -> Sequence[FramePart]:
        """The pictures of signal ``name`` in every chosen episode, still in the store."""
        return tuple(self._reader.part(i.id, name) for i in self._infos)

    def _reward_identity(self) -> list[Any]:
        """What decides rewards besides the recordings; nothing where they are read as recorded."""
        reward = self._config.reward
        if reward.plain:
            return []
        judged = [i.success for i in self._infos] if reward.relabelling().judges else []
        return [{"reward": to_dict(reward), "success": judged}]

    def _cost_identity(self) -> list[Any]:
        """What decides costs; nothing where nothing is said of them."""
        cost = self._config.cost
        if cost is None:
            return []
        told: dict[str, Any] = {"cost": to_dict(cost)}
        costing = cost.costing()
        if isinstance(costing, Judging) and costing.judges:
            said = ((i.success, self._store.annotated(i.id).reason) for i in self._infos)
            told |= {"outcomes": [list(words) for words in said]}
        return [told]


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
