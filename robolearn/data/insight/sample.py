"""Draws rows of a store's episodes, few enough to look at all of them at once."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray

from robolearn.data.episode import Episode, EpisodeInfo
from robolearn.data.insight.verdict import USUAL, measure_for
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from robolearn.spec import ActionSpec

# Rows of the sampled episodes, one after the other.
Numbers = Float[NDArray[Any], "rows k"]
Commands = Float[NDArray[Any], "rows a"]
Edges = Int64[NDArray[np.int64], " edges"]


@dataclass(frozen=True, slots=True)
class SampledEpisode:
    """How an episode ended: as annotated (``info``), and as its flags and outcome recorded it."""

    info: EpisodeInfo
    recorded_success: bool
    terminal: bool
    truncated: bool
    outcome_terminal: bool
    return_: float
    rewarded: bool
    # Share of the time in which nothing was commanded to move.
    idle: float = 0.0


@dataclass(frozen=True, slots=True)
class StoreSample:
    """Whole episodes of one task space: ``states [N, k]`` and ``actions [N, a]`` at control ticks,
    episode e in rows ``starts[e]:starts[e + 1]``; the names of their numbers. ``specs``: of the
    actions. ``infos``: of all episodes, ``left_out`` those of another task space.
    """

    infos: tuple[EpisodeInfo, ...]
    episodes: tuple[SampledEpisode, ...]
    states: Numbers
    actions: Commands
    starts: Edges
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    specs: tuple[ActionSpec, ...]
    rate_hz: float
    left_out: int

    @property
    def whole(self) -> bool:
        """Whether every episode of the store was looked at."""
        return len(self.episodes) + self.left_out == len(self.infos)


def sample_store(store: EpisodeStore, rows: int, seed: int = 0) -> StoreSample:
    """Episodes in random order until ``rows`` rows are reached; at least one.

    Pictures are not looked at. Errors: :class:`DataError` for a store without episodes.
    """
    if rows < 1:
        raise DataError(f"rows must be at least 1, got {rows}")
    infos = store.list()
    if not infos:
        raise DataError(
            f"'{store.path}' has no episodes; 'robolearn collect' or 'data import' adds"
        )
    order = np.random.default_rng(seed).permutation(len(infos))
    first = store.meta(infos[int(order[0])].id).embodiment
    names = tuple(s.name for s in first.signals if not s.is_image)
    shapes = {s.name: s.shape for s in first.signals if not s.is_image}
    kept: list[tuple[int, SampledEpisode, Numbers, Commands]] = []
    left_out = total = 0
    for number in order:
        info = infos[int(number)]
        own = store.meta(info.id).embodiment
        same = {s.name: s.shape for s in own.signals if not s.is_image} == shapes
        if not same or own.actions != first.actions:
            left_out += 1
            continue
        episode = store.read(info.id, names)
        recorded = store.manifest(info.id).info.success
        kept.append((int(number), _ended(episode, info, recorded), *_rows(episode, names)))
        total += episode.steps
        if total >= rows:
            break
    kept.sort(key=lambda k: k[0])
    lengths = [len(actions) for _, _, _, actions in kept]
    return StoreSample(
        infos=infos,
        episodes=tuple(ended for _, ended, _, _ in kept),
        states=np.concatenate([states for _, _, states, _ in kept]),
        actions=np.concatenate([actions for _, _, _, actions in kept]),
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        state_names=tuple(
            f"{s.name}[{k}]"
            for s in first.signals
            if s.name in shapes
            for k in range(int(np.prod(s.shape)))
        ),
        action_names=tuple(f"{a.name}[{k}]" for a in first.actions for k in range(a.size)),
        specs=first.actions,
        rate_hz=first.rate_hz,
        left_out=left_out,
    )


def _ended(episode: Episode, info: EpisodeInfo, recorded: bool) -> SampledEpisode:
    return SampledEpisode(
        info=info,
        recorded_success=recorded,
        terminal=bool(episode.terminal[-1]),
        truncated=bool(episode.truncated[-1]),
        outcome_terminal=episode.meta.outcome.terminal,
        return_=float(episode.reward.sum()),
        rewarded=bool(episode.reward.any()),
        idle=measure_for(episode, USUAL).idle,
    )


def _rows(episode: Episode, names: tuple[str, ...]) -> tuple[Numbers, Commands]:
    """What was seen and commanded at every tick; what was missing counts as 0."""
    steps = episode.steps
    seen = [episode.observed(n).reshape(steps, -1).astype(np.float64) for n in names]
    specs = episode.meta.embodiment.actions
    acted = [episode.action[a.name].reshape(steps, -1).astype(np.float64) for a in specs]
    states = np.concatenate([np.zeros((steps, 0)), *seen], axis=1)
    return np.nan_to_num(states), np.concatenate(acted, axis=1)
