"""Small task spaces, episodes and sources for the tests of data, training and policies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from robolearn.data.episode import EpisodeStart
from robolearn.data.reading.cache import FlatEpisodes, flatten
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.data.reading.weighting import EpisodeQuality
from robolearn.data.store.decoded import FramePart
from robolearn.learning import Batch
from robolearn.spec import ActionSpec, SignalSpec, TaskSpace
from robolearn.timing.latencies import Latencies
from robolearn.types import PolicyInput

TOOL, BLOCK = "tool/xy_table", "block/pose"

SPACE = TaskSpace(
    observations=(
        SignalSpec(TOOL, (2,), "m", 10.0, frame="table"),
        SignalSpec(BLOCK, (3,), "m, m, rad", 10.0, angular=(2,), frame="table"),
    ),
    actions=(
        ActionSpec(TOOL, (2,), "m", 10.0, frame="table", low=(0.0, 0.0), high=(0.512, 0.512)),
    ),
    rate_hz=10.0,
)


@dataclass(frozen=True)
class ArraySource:
    """Episodes in memory."""

    items: tuple[EpisodeArrays, ...]
    content_hash: str = "mock"
    task_space: TaskSpace = field(default=SPACE)
    qualities: tuple[EpisodeQuality, ...] = ()
    annotated: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    latencies: Latencies = field(default_factory=Latencies)
    goals: tuple[tuple[float, float, float], ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(e.id for e in self.items)

    @property
    def starts(self) -> tuple[EpisodeStart, ...]:
        return tuple(EpisodeStart("mock", k, {}) for k in range(len(self.items)))

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(len(e.actions) for e in self.items)

    def episodes(self, images: bool = True) -> Iterable[EpisodeArrays]:
        return self.items

    def frames(self, name: str) -> Sequence[FramePart]:
        raise KeyError(name)


def random_episode(name: str, steps: int, seed: int, terminal: bool = False) -> EpisodeArrays:
    """The tool walks; the action is the tool's next place; the reward counts the steps."""
    rng = np.random.default_rng(seed)
    tool = np.clip(0.25 + np.cumsum(rng.normal(0, 0.01, (steps + 1, 2)), axis=0), 0.05, 0.45)
    block = np.concatenate(
        [rng.uniform(0.1, 0.4, (steps, 2)), rng.uniform(-np.pi, np.pi, (steps, 1))], axis=1
    )
    return EpisodeArrays(
        id=name,
        observations={TOOL: tool[:-1], BLOCK: block},
        actions=tool[1:],
        reward=np.linspace(0, 1, steps),
        done=np.arange(steps) == (steps - 1 if terminal else -1),
    )


def random_source(lengths: tuple[int, ...] = (7, 12, 9, 20), seed: int = 0) -> ArraySource:
    """Episodes of the given lengths; every second one ends the task."""
    return ArraySource(
        tuple(
            random_episode(f"e{i}", n, seed + i, terminal=i % 2 == 1) for i, n in enumerate(lengths)
        )
    )


def random_flat(lengths: tuple[int, ...] = (7, 12, 9, 20), seed: int = 0) -> FlatEpisodes:
    return flatten(random_source(lengths, seed))


def rows_shown(flat: FlatEpisodes, batch: Batch) -> list[int]:
    """Where each window of a batch begins, by its first action (all are different)."""
    firsts = batch.actions[:, :1].numpy()
    same = (flat.actions[None] == firsts).all(axis=2)
    assert (same.sum(axis=1) == 1).all()
    return same.argmax(axis=1).tolist()


def random_request(batch: int, n_obs: int = 2, seed: int = 0) -> PolicyInput:
    rng = np.random.default_rng(seed)
    pose = np.concatenate(
        [rng.uniform(0.1, 0.4, (batch, n_obs, 2)), rng.uniform(-3, 3, (batch, n_obs, 1))], axis=-1
    )
    return PolicyInput(
        observations={TOOL: rng.uniform(0.1, 0.4, (batch, n_obs, 2)), BLOCK: pose},
        t_ns=np.arange(batch, dtype=np.int64),
        seed=rng.integers(0, 2**62, batch),
    )
