"""Defines episodes as training sees them: arrays by name, and where they come from."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Num
from numpy.typing import NDArray

from robolearn.data.store.decoded import FramePart
from robolearn.errors import DataError
from robolearn.shapes import AnyArray, OwnFlags
from robolearn.spec import SignalSpec, TaskSpace


@runtime_checkable
class Rows(Protocol):
    """Rows ``[N, *shape]`` that a whole batch is gathered from: an array, a memory map, or
    pictures that are decoded when asked for.
    """

    @property
    def shape(self) -> Any:
        """``(N, *shape)``."""
        ...

    @property
    def dtype(self) -> Any:
        """Of the elements."""
        ...

    def __getitem__(self, rows: Any, /) -> Any:
        """``[*rows.shape, *shape]`` for an integer array of row numbers."""
        ...


@dataclass(frozen=True, slots=True)
class EpisodeArrays:
    """One episode as training sees it: ``observations[name] [T, *shape]``, ``actions [T, a]``,
    ``reward [T]`` (of the step that starts at the tick), ``done [T]`` (that step ended the task: no
    value follows it, whether or not the recording goes on; None: none did), ``source [T]`` (who
    decided each step; empty: unknown), ``seen [T]`` (everything shown at the tick was there; None:
    always), ``cost [T]`` (like the reward, of what must not happen; None: nothing is said of it).
    """

    id: str
    observations: Mapping[str, Rows]
    # Lengths are compared by ``flatten``, which says which episode is wrong.
    actions: Num[NDArray[Any], "_ a"]
    reward: Num[NDArray[Any], " _"]
    done: OwnFlags | None = None
    source: tuple[str, ...] = ()
    seen: OwnFlags | None = None
    cost: Num[NDArray[Any], " _"] | None = None


@runtime_checkable
class EpisodeSource(Protocol):
    """Where episodes come from: a store, or arrays in memory."""

    @property
    def content_hash(self) -> str:
        """Changes when any episode, or the choice of episodes, changes."""
        ...

    @property
    def task_space(self) -> TaskSpace:
        """The signals that :meth:`episodes` delivers."""
        ...

    @property
    def steps(self) -> tuple[int, ...]:
        """Ticks of every episode, in order, without reading them."""
        ...

    def episodes(self, images: bool = True) -> Iterable[EpisodeArrays]:
        """All episodes in a fixed order, one at a time; without ``images`` no pictures."""
        ...

    def frames(self, name: str) -> Sequence[FramePart]:
        """The pictures of signal ``name``, per episode, for decoding on demand."""
        ...


def check_finite(episode: str, name: str, block: AnyArray, at: int, steps: int) -> None:
    """Errors: :class:`DataError` for no number in ``block``, which begins at step ``at``."""
    if block.dtype.kind != "f":
        return
    finite = np.isfinite(block)
    if not finite.all():
        bad = at + int(np.argwhere(~finite)[0][0])
        raise DataError(
            f"episode {episode}: '{name}' is not finite at step {bad} of {steps};"
            " leave the episode out or repair it"
        )


def check_arrays(episode: EpisodeArrays, kept: Sequence[SignalSpec], space: TaskSpace) -> None:
    """Errors: :class:`DataError` for an array that is missing or of another shape than is said."""
    steps = len(episode.actions)
    if steps == 0:
        raise DataError(f"episode {episode.id} has no steps")
    if episode.actions.shape != (steps, space.action_size):
        raise DataError(
            f"episode {episode.id}: expected actions ({steps}, {space.action_size}),"
            f" got {episode.actions.shape}"
        )
    if len(episode.source) not in (0, steps):
        raise DataError(
            f"episode {episode.id}: expected {steps} sources, got {len(episode.source)}"
        )
    rows = (("seen", episode.seen), ("reward", episode.reward), ("done", episode.done),
            ("cost", episode.cost))  # fmt: skip
    for name, values in rows:
        if values is not None and values.shape != (steps,):
            raise DataError(f"episode {episode.id}: expected {name} ({steps},), got {values.shape}")
    for signal in kept:
        if signal.name not in episode.observations:
            raise DataError(
                f"episode {episode.id} lacks '{signal.name}'; it has {sorted(episode.observations)}"
            )
        values = episode.observations[signal.name]
        if tuple(values.shape) != (steps, *signal.shape):
            raise DataError(
                f"episode {episode.id}: '{signal.name}' should be {(steps, *signal.shape)},"
                f" is {tuple(values.shape)}"
            )
        if (values.dtype == np.uint8) != (signal.dtype == "uint8"):
            raise DataError(
                f"episode {episode.id}: '{signal.name}' should be {signal.dtype}, is {values.dtype}"
            )
