"""Makes a dataset out of several stores, each with its own filter and share of the batches."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from robolearn.config import config_hash
from robolearn.data.episode import EpisodeStart
from robolearn.data.reading.cache import FlatEpisodes
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.data.reading.selection import DataConfig, StoreChoice, StoreSource
from robolearn.data.reading.weighting import EpisodeQuality
from robolearn.data.store.decoded import FramePart
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError, SpecMismatchError
from robolearn.pusht import Pose
from robolearn.shapes import Floats
from robolearn.spec import TaskSpace
from robolearn.timing.latencies import Latencies, trained_with

Index = NDArray[np.int64]


class MixtureSource:
    """The episodes of all stores of ``config.stores``, one store after the other.

    An episode is called ``<number of the store>/<id>``. Weights are no part of the content: how
    often a window is drawn is decided by :func:`window_weights`, so changing them needs no new
    cache.
    """

    def __init__(self, config: DataConfig) -> None:
        if not config.stores:
            raise DataError("stores: name at least one store")
        self.parts = tuple(
            StoreSource(EpisodeStore.open(choice.path), config, choice) for choice in config.stores
        )
        first = self.parts[0].task_space
        for choice, part in zip(config.stores[1:], self.parts[1:], strict=True):
            if part.task_space != first:
                raise SpecMismatchError(
                    f"store {choice.path} does not fit {config.stores[0].path}: its signals are"
                    f" {part.task_space}, those of the first {first}"
                )

    @property
    def ids(self) -> tuple[str, ...]:
        """Episodes, store by store."""
        return tuple(f"{k}/{i}" for k, part in enumerate(self.parts) for i in part.ids)

    @property
    def task_space(self) -> TaskSpace:
        """The chosen signals, the same in every store."""
        return self.parts[0].task_space

    @property
    def qualities(self) -> tuple[EpisodeQuality, ...]:
        """How every chosen episode ended, as annotated."""
        return tuple(q for part in self.parts for q in part.qualities)

    @property
    def annotated(self) -> tuple[str, ...]:
        """Why outcomes of chosen episodes were annotated, one phrase per such episode."""
        return tuple(why for part in self.parts for why in part.annotated)

    @property
    def texts(self) -> tuple[str, ...]:
        """The instruction of every chosen episode."""
        return tuple(text for part in self.parts for text in part.texts)

    @property
    def latencies(self) -> Latencies:
        """What a run on these episodes is trained with."""
        return trained_with((part.latencies for part in self.parts), {})

    @property
    def goals(self) -> tuple[Pose, ...]:
        """Where the goal of Push-T was in the chosen episodes, each pose once."""
        return tuple(dict.fromkeys(goal for part in self.parts for goal in part.goals))

    @property
    def starts(self) -> tuple[EpisodeStart, ...]:
        """Where every chosen episode began."""
        return tuple(start for part in self.parts for start in part.starts)

    @property
    def content_hash(self) -> str:
        """Of the chosen episodes of all stores, in order."""
        return config_hash([part.content_hash for part in self.parts])

    @property
    def steps(self) -> tuple[int, ...]:
        """Ticks of every chosen episode."""
        return tuple(n for part in self.parts for n in part.steps)

    def episodes(self, images: bool = True) -> Iterable[EpisodeArrays]:
        """Read the chosen episodes one by one."""
        for k, part in enumerate(self.parts):
            for episode in part.episodes(images):
                yield replace(episode, id=f"{k}/{episode.id}")

    def frames(self, name: str) -> Sequence[FramePart]:
        """The pictures of signal ``name`` in every chosen episode, still in their stores."""
        return tuple(frame for part in self.parts for frame in part.frames(name))


def window_weights(
    stores: Sequence[StoreChoice], flat: FlatEpisodes, windows: Int64[NDArray[np.int64], " windows"]
) -> Floats | None:
    """Weights of rows ``[N]`` that give each store its share of the batches; None: all alike.

    ``windows``: the rows that are drawn. Each store's weight is divided evenly among its windows.
    A store that has a weight but no window is a :class:`DataError`.
    """
    if not any(choice.weight is not None for choice in stores):
        return None
    number = np.array([int(i.split("/", 1)[0]) for i in flat.ids], dtype=np.int64)
    of_row = flat.per_row(number)
    counts = np.bincount(of_row[windows], minlength=len(stores))
    weights = np.array([choice.weight or 0.0 for choice in stores])
    empty = [c.path for c, n in zip(stores, counts, strict=True) if c.weight and not n]
    if empty:
        raise DataError(
            f"no window is left for {', '.join(empty)} after the split; lower held_out, or give"
            " the store more episodes"
        )
    return (weights / np.maximum(counts, 1))[of_row]
