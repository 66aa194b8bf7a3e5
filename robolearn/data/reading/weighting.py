"""Weighs windows: by the store they come from, how good their episode was, who acted, and whether
anything moves at all.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from robolearn.data.reading.cache import FlatEpisodes
from robolearn.data.reading.trajectories import trajectory_weights
from robolearn.data.standing import commanded_change, stretches
from robolearn.errors import ConfigError, DataError
from robolearn.shapes import Flags, Floats

SHARPEST = 0.01
"""Lowest temperature: below it one episode is all that is drawn, and the others' weights vanish."""


@dataclass(frozen=True, slots=True)
class QualityConfig:
    """How often windows of good episodes are drawn; by default all alike."""

    # Weight of an episode that succeeded, relative to one that did not.
    success: float = 1.0
    # Floats are multiplied by the episode's score to this power; 0: scores do not count.
    score_power: float = 0.0
    # Weight of steps at which a person had taken over from a policy, relative to the others.
    intervention: float = 1.0
    # Share of the batches that comes from episodes that succeeded, the rest from those that failed,
    # however many there are of either; .5: balanced. Left out: as many as there are.
    success_share: float | None = None
    # Weighs episodes by their return, or by their advantage, the return beyond what their start
    # promises (trajectory weighting, Hong et al. 2023); rewards are those of data.reward.
    by: Literal["alike", "return", "advantage"] = "alike"
    # The smaller, the more the best episodes count: e^(1/temperature) times the worst (paper: .1).
    temperature: float = 0.1

    def __post_init__(self) -> None:
        if self.success_share is not None:
            if not 0.0 < self.success_share < 1.0:
                raise ConfigError(
                    "quality: success_share must be in (0, 1); to take only episodes that"
                    f" succeeded set data.success to true; got {self.success_share}"
                )
            if self.success != 1.0:
                raise ConfigError(
                    "quality: success and success_share both say how often successes are drawn;"
                    " leave one out"
                )
        if not (math.isfinite(self.temperature) and self.temperature >= SHARPEST):
            raise ConfigError(
                f"quality: temperature must be at least {SHARPEST}, got {self.temperature}"
            )
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
        return self.success != 1.0 or self.score_power != 0.0 or self.success_share is not None


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
    """How an episode ended, as annotated; ``recorded``: whether it was a success as recorded; None:
    nobody can have annotated it.
    """

    success: bool
    score: float
    recorded: bool | None = None


def idle_rows(flat: FlatEpisodes, config: IdleConfig) -> Flags:
    """Rows ``[N]`` inside a stretch of at least ``config.steps`` steps without motion.

    A relative action stands if it is small itself, an absolute one if it repeats the one before.
    """
    rows = len(flat.actions)
    if config.plain:
        return np.zeros(rows, dtype=np.bool_)
    actions = np.asarray(flat.actions, dtype=np.float64)
    moved = commanded_change(actions, flat.task_space.actions)
    stands = (np.abs(moved) <= config.threshold).all(axis=1)
    # The first step of an episode follows nothing; it moves, so that every episode keeps a start.
    stands[flat.starts[:-1]] = False
    idle = np.zeros(rows, dtype=np.bool_)
    for begin, end in stretches(stands, config.steps):
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
    if quality.by != "alike":
        weights *= _by_worth(flat, windows, quality)
    weights[flat.intervention] *= quality.intervention
    weights[idle_rows(flat, idle)] = 0.0
    if not weights[windows].any():
        raise DataError(
            "no window is left: every episode has the weight 0 by data.quality, or stands still by"
            f" data.idle (threshold {idle.threshold:g})"
        )
    if quality.success_share is not None:
        return _balanced(flat, windows, weights, qualities, quality.success_share)
    if stores is None:
        return weights
    return _shares_kept(flat, windows, stores, weights)


def _by_worth(
    flat: FlatEpisodes, windows: Int64[NDArray[np.int64], " windows"], quality: QualityConfig
) -> Floats:
    """Weights of rows ``[N]`` by the return of their episode, among those that have windows."""
    episode = flat.per_row(np.arange(len(flat.ids), dtype=np.int64))
    chosen = np.unique(episode[windows])
    weights = np.zeros(len(flat.ids))
    weights[chosen] = trajectory_weights(
        flat, chosen, by_advantage=quality.by == "advantage", temperature=quality.temperature
    )
    return weights[episode]


def _balanced(
    flat: FlatEpisodes,
    windows: Int64[NDArray[np.int64], " windows"],
    weights: Floats,
    qualities: Sequence[EpisodeQuality],
    share: float,
) -> Floats:
    """``weights`` among successes and among failures, whose sums stand as ``share`` says."""
    succeeded = flat.per_row(np.array([q.success for q in qualities], dtype=np.bool_))
    total = {which: float(weights[windows[succeeded[windows] == which]].sum())
             for which in (True, False)}  # fmt: skip
    missing = [name for which, name in ((True, "succeeded"), (False, "failed")) if not total[which]]
    if missing:
        raise DataError(
            f"data.quality.success_share {share:g}: no window is left of an episode that"
            f" {missing[0]}; take in such episodes (kinds, tasks, success of data), or leave"
            " success_share out"
        )
    factor = np.where(succeeded, share / total[True], (1.0 - share) / total[False])
    return weights * factor


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
