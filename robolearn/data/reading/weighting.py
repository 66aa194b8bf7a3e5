"""Weighs windows: by the store they come from, how good their episode was, who acted, and whether
anything moves at all.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from robolearn.data.reading.cache import FlatEpisodes
from robolearn.errors import ConfigError, DataError
from robolearn.shapes import Flags, Floats


@dataclass(frozen=True, slots=True)
class QualityConfig:
    """How often windows of good episodes are drawn; by default all alike."""

    # Weight of an episode that succeeded, relative to one that did not.
    success: float = 1.0
    # Floats are multiplied by the episode's score to this power; 0: scores do not count.
    score_power: float = 0.0
    # Weight of steps at which a person had taken over from a policy, relative to the others.
    intervention: float = 1.0

    def __post_init__(self) -> None:
        for name in ("success", "score_power", "intervention"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"quality: {name} must be at least 0, got {value}")

    @property
    def plain(self) -> bool:
        """Whether all windows are alike."""
        return self == QualityConfig()

    @property
    def of_episodes(self) -> bool:
        """Whether the outcome of an episode counts."""
        return self.success != 1.0 or self.score_power != 0.0


@dataclass(frozen=True, slots=True)
class IdleConfig:
    """Which windows are left out because nothing is commanded to move in them."""

    # Largest change of any commanded number per step that still counts as standing, in its own
    # unit; negative: nothing is left out.
    threshold: float = -1.0
    # Steps in a row that must stand; shorter pauses are kept.
    steps: int = 10

    def __post_init__(self) -> None:
        if self.steps < 1 or not math.isfinite(self.threshold):
            raise ConfigError(
                f"idle: expected a finite threshold and steps >= 1, got {self.threshold} and"
                f" {self.steps}"
            )

    @property
    def plain(self) -> bool:
        """Whether nothing is left out."""
        return self.threshold < 0


@dataclass(frozen=True, slots=True)
class EpisodeQuality:
    """How an episode ended, as annotated."""

    success: bool
    score: float


def idle_rows(flat: FlatEpisodes, config: IdleConfig) -> Flags:
    """Rows ``[N]`` inside a stretch of at least ``config.steps`` steps without motion.

    A relative action stands if it is small itself, an absolute one if it repeats the one before.
    """
    rows = len(flat.actions)
    if config.plain:
        return np.zeros(rows, dtype=np.bool_)
    actions = np.asarray(flat.actions, dtype=np.float64)
    moved = np.diff(actions, axis=0, prepend=actions[:1])
    first = 0
    for action in flat.task_space.actions:
        part = slice(first, first + action.size)
        if action.mode == "relative":
            moved[:, part] = actions[:, part]
        first += action.size
    stands = (np.abs(moved) <= config.threshold).all(axis=1)
    # The first step of an episode follows nothing; it moves, so that every episode keeps a start.
    stands[flat.starts[:-1]] = False
    edges = np.flatnonzero(np.diff(stands.astype(np.int8), prepend=0, append=0))
    idle = np.zeros(rows, dtype=np.bool_)
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        if end - begin >= config.steps:
            idle[begin:end] = True
    return idle


def episode_weights(config: QualityConfig, qualities: Sequence[EpisodeQuality]) -> Floats:
    """One weight per episode from its outcome."""
    success = np.array([config.success if q.success else 1.0 for q in qualities])
    score = np.array([q.score for q in qualities])
    return success * np.clip(score, 0.0, None) ** config.score_power


def row_weights(
    flat: FlatEpisodes,
    windows: Int64[NDArray[np.int64], " windows"],
    *,
    stores: Floats | None,
    quality: QualityConfig,
    qualities: Sequence[EpisodeQuality],
    idle: IdleConfig,
) -> Floats | None:
    """Floats of rows ``[N]`` for :class:`~robolearn.data.reading.dataset.EpisodeDataset`; None:
    all alike.

    ``stores``: weights that give each store its share (``mixture.window_weights``), which the rest
    does not change.
    """
    if quality.plain and idle.plain:
        return stores
    weights = np.ones(len(flat.actions))
    if quality.of_episodes:
        if len(qualities) != len(flat.ids):
            raise DataError("quality: this source does not say how its episodes ended")
        weights *= flat.per_row(episode_weights(quality, qualities))
    weights[flat.intervention] *= quality.intervention
    weights[idle_rows(flat, idle)] = 0.0
    if not weights[windows].any():
        raise DataError(
            "no window is left: every episode has the weight 0 by data.quality, or stands still by"
            f" data.idle (threshold {idle.threshold:g})"
        )
    if stores is None:
        return weights
    return _shares_kept(flat, windows, stores, weights)


def _shares_kept(
    flat: FlatEpisodes,
    windows: Int64[NDArray[np.int64], " windows"],
    stores: Floats,
    weights: Floats,
) -> Floats:
    """``weights`` within each store, whose sum stays what ``stores`` gives it."""
    number = flat.per_row(np.array([int(i.split("/", 1)[0]) for i in flat.ids], dtype=np.int64))
    combined = stores * weights
    for store in np.unique(number):
        mine = windows[number[windows] == store]
        left = combined[mine].sum()
        if mine.size and not left:
            raise DataError(f"store {store}: data.quality and data.idle leave no window of it")
        combined[number == store] *= stores[mine].sum() / left if left else 0.0
    return combined
