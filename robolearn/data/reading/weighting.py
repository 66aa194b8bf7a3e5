"""Weighs windows: by the store they come from, how good their episode was, who acted, and whether
anything moves at all.

Who drove a window's first step, where a person corrected a policy:

    demonstration   a person or an expert, before any policy drove in the episode
    policy          a policy, or nobody
    lead            the policy, shortly before a person took over
    person          a person who had taken over

    shares of the batches   person   lead   demonstration            policy
    iwr                     1/2      as many as there are among the rest
    sirius                  1/2      .002   as many as there are     the rest, at least 0
    people                  as many  0      as there are             0

Sources: Human-in-the-Loop Imitation Learning using Remote Teleoperation (Mandlekar et al. 2020,
IWR); Robot Learning on the Job (Liu et al. 2023, Sirius); HG-DAgger (Kelly et al. 2019). As
published, Sirius's weight of the policy's own steps is below 0 where more than 49.8 % of all are
demonstrations: here these have what there is then, and the policy's own steps nothing.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int8, Int64
from numpy.typing import NDArray

from robolearn.data.episode import drivers, leading_up, taken_over
from robolearn.data.reading.cache import FlatEpisodes
from robolearn.data.reading.trajectories import trajectory_weights
from robolearn.data.standing import commanded_change, stretches
from robolearn.errors import ConfigError, DataError
from robolearn.shapes import Flags, Floats

Rule = Literal["iwr", "sirius", "people"]
Class = Literal["demonstration", "policy", "lead", "person"]
CLASSES: tuple[Class, ...] = ("demonstration", "policy", "lead", "person")
PERSON_SHARE = 0.5
LEAD_SHARE = 0.002
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
    # Divides batches by who drove where a person corrected a policy: iwr and sirius as published,
    # people: nothing of what the policy did itself (HG-DAgger).
    drivers: Literal["alike", "iwr", "sirius", "people"] = "alike"
    # With sirius: so long before a take-over the policy was on its way to what it was for [s].
    before_s: float = 0.75
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
        if self.drivers != "alike" and (self.intervention != 1.0 or self.success_share is not None):
            other = "intervention" if self.intervention != 1.0 else "success_share"
            raise ConfigError(
                f"quality: drivers and {other} both say how batches are divided; leave one out"
            )
        for name in ("success", "score_power", "intervention", "before_s"):
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
    if quality.drivers != "alike":
        return weights * driver_weights(
            flat,
            windows,
            weights,
            quality.drivers,
            round(quality.before_s * flat.task_space.rate_hz),
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


def driver_classes(flat: FlatEpisodes, lead_ticks: int) -> Int8[NDArray[np.int8], " n"]:
    """Of every row ``[N]`` its number in :data:`CLASSES`; ``lead_ticks``: how long before a
    take-over the policy's steps led up to it.
    """
    found = np.zeros(len(flat.source), dtype=np.int8)
    edges: list[int] = flat.starts.tolist()
    for begin, end in itertools.pairwise(edges):
        codes: list[int] = flat.source[begin:end].tolist()
        source = [flat.labels[code] for code in codes]
        rows = found[begin:end]
        by_policy = np.array([name.split(":", 1)[0] == "policy" for name in source], dtype=np.bool_)
        if not by_policy.any():
            continue
        first = int(by_policy.argmax())
        rows[:] = CLASSES.index("policy")
        # A person may have shown something before the policy drove; who waits for it shows nothing.
        rows[:first] = [0 if who in ("human", "script") else 1 for who in drivers(source[:first])]
        rows[leading_up(source, lead_ticks) & (rows == CLASSES.index("policy"))] = 2
        rows[taken_over(source)] = CLASSES.index("person")
    return found


def driver_weights(
    flat: FlatEpisodes,
    windows: Int64[NDArray[np.int64], " windows"],
    weights: Floats,
    rule: Rule,
    lead_ticks: int,
) -> Floats:
    """Factors of rows ``[N]`` with which ``weights`` of ``windows`` have the shares of ``rule``.

    Errors: :class:`DataError` where no window begins with a step of a person who had taken over.
    """
    classes = driver_classes(flat, lead_ticks if rule == "sirius" else 0)
    totals = np.zeros(len(CLASSES))
    np.add.at(totals, classes[windows], weights[windows])
    if not totals[3]:
        raise DataError(
            f"data.quality.drivers '{rule}': in none of these {len(flat.ids)} episodes did a person"
            " take over from a policy; record some with 'robolearn collect --policy RUN"
            " --corrected-by ...' and take their kind in, or leave data.quality.drivers out"
        )
    share = shares(totals, rule)
    return np.divide(share, totals, out=np.zeros(len(CLASSES)), where=totals > 0)[classes]


def shares(totals: Floats, rule: Rule) -> Floats:
    """Of the batches ``[4]``, by class; ``totals [4]``: the weight that each has by itself. They
    are at least 0 and their sum is 1; a class without windows has none.
    """
    own = totals / totals.sum()
    demonstration, policy, lead, person = own.tolist()
    if rule == "people":
        found = np.array([demonstration, 0.0, 0.0, person])
    elif rule == "iwr":
        rest = float(totals[:3].sum())
        found = np.array([0.0, 0.0, 0.0, PERSON_SHARE])
        found[:3] = (1.0 - PERSON_SHARE) * (totals[:3] / rest if rest else 0.0)
    else:
        some = LEAD_SHARE if lead else 0.0
        left = 1.0 - PERSON_SHARE - some
        # Where the policy has no windows the demonstrations have all that is left.
        demonstrations = min(demonstration, left) if policy else left * (demonstration > 0)
        policies = (left - demonstrations) * (policy > 0)
        found = np.array([demonstrations, policies, some, PERSON_SHARE])
    return found / found.sum()
