"""Says anew what every step of a recorded episode was worth, and where its task ended.

    data:
      reward: {task: success, params: {discount: 0.99}}

Reward and end of the task belong to the data, not to the algorithm: what an episode was good for is
decided where episodes are read, every algorithm that learns from rewards sees the same numbers, and
they count in the identity of the run. A reward is that of the step that starts at a tick, so what
the step led to is seen at the tick after it. *Done* says that no value follows the step, whether or
not the recording goes on (:mod:`robolearn.data.reading.transitions`).

An installed package adds its own with an entry point of the group ``robolearn.rewards``.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from robolearn.config import from_dict
from robolearn.data.episode import Episode, take_overs
from robolearn.errors import ConfigError, DataError, did_you_mean
from robolearn.shapes import Flags, OwnFlags, OwnFloats
from robolearn.table import Table

# Of all steps, in the precision that training reads.
RowNumbers = Float[NDArray[Any], " n"]
# What single precision can hold.
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Rewarded:
    """Of every step of one episode: ``reward [T]``, and whether it ended the task, ``done [T]``."""

    reward: OwnFloats
    done: OwnFlags


@runtime_checkable
class Relabelling(Protocol):
    """What every entry of :data:`REWARDS` is: a frozen dataclass whose fields are the params."""

    # Whether the outcome of an episode counts, which may be annotated after it was recorded.
    judges: ClassVar[bool]

    @property
    def signals(self) -> tuple[str, ...]:
        """What it has to see of an episode, besides what the policy sees."""
        ...

    def relabel(self, episode: Episode, success: bool) -> Rewarded:
        """``success``: the outcome as annotated. Errors: :class:`DataError` where the recording
        does not say what is needed.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Affine:
    """A value of every step, times ``scale`` after ``shift`` was added."""

    shift: float = 0.0
    scale: float = 1.0
    judges: ClassVar[bool] = False
    signals: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not math.isfinite(self.shift) or not math.isfinite(self.scale) or self.scale == 0:
            raise ConfigError(
                f"expected finite shift and scale, scale not 0, got {self.shift} and {self.scale}"
            )

    def _rewarded(self, value: RowNumbers, episode: Episode) -> Rewarded:
        return Rewarded(self.scale * (value + self.shift), episode.terminal)


@dataclass(frozen=True, slots=True)
class Recorded(_Affine):
    """What was recorded, times ``scale`` after ``shift`` was added."""

    def relabel(self, episode: Episode, success: bool) -> Rewarded:  # noqa: ARG002
        """The recorded reward; the task ends where it was recorded to end."""
        return self._rewarded(episode.reward, episode)


@dataclass(frozen=True, slots=True)
class Progress(_Affine):
    """The task's progress in [0, 1] after the step, or with ``gain`` how much it rose in it; times
    ``scale`` after ``shift`` was added.
    """

    gain: bool = False

    def relabel(self, episode: Episode, success: bool) -> Rewarded:  # noqa: ARG002
        """The task ends where it was recorded to end."""
        value = episode.progress
        if self.gain:
            value = np.diff(value, prepend=value[:1])
        return self._rewarded(value, episode)


@dataclass(frozen=True, slots=True)
class Success:
    """``step`` for every step until the task is solved, 0 for a step that leaves it solved, which
    ends the task.

    With a ``discount`` g the step costs 1 - g instead: values then lie in [-1, 0], and ``s`` steps
    that are taken as one chunk cost 1 - g^s together.

    Solved is a tick whose progress reaches ``threshold``; in an episode that succeeded although its
    progress never says so, the last one. The annotated outcome decides: in an episode that failed
    nothing is solved.
    """

    step: float = -1.0
    discount: float | None = None
    threshold: float = 1.0
    judges: ClassVar[bool] = True
    signals: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not self.step < 0 or not math.isfinite(self.step):
            raise ConfigError(f"step must be below 0 (a step costs something), got {self.step}")
        if self.discount is not None and not 0.0 < self.discount < 1.0:
            raise ConfigError(f"discount must be in (0, 1), got {self.discount}")
        if not 0.0 < self.threshold <= 1.0:
            raise ConfigError(f"threshold must be in (0, 1], got {self.threshold}")

    def relabel(self, episode: Episode, success: bool) -> Rewarded:
        """What a step costs, until success."""
        solved = success & (episode.progress >= self.threshold)
        if success and not solved.any():
            solved = np.arange(episode.steps) == episode.steps - 1
        cost = self.step if self.discount is None else self.discount - 1.0
        return Rewarded(np.where(solved, 0.0, cost), solved)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a task: a signal is within ``tolerance`` (Euclidean) of a value, both in the
    signal's own unit. ``index``: which of its numbers count; empty: all of them.
    """

    signal: str
    value: tuple[float, ...]
    tolerance: float
    index: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.index and len(self.index) != len(self.value):
            raise ConfigError(
                f"{self.signal}: expected one value per index, got {len(self.value)} values and"
                f" {len(self.index)} indices"
            )
        if not self.value or not self.tolerance >= 0:
            raise ConfigError(f"{self.signal}: expected values, and a tolerance of at least 0")

    def holds(self, episode: Episode) -> Flags:
        """``[T]``: at which ticks it was seen to hold."""
        seen = episode.observed(self.signal).reshape(episode.steps, -1).astype(np.float64)
        chosen = self.index or tuple(range(seen.shape[1]))
        if len(chosen) != len(self.value) or max(chosen) >= seen.shape[1]:
            raise DataError(
                f"episode {episode.id}: '{self.signal}' has {seen.shape[1]} numbers, the goal names"
                f" {len(self.value)} with index {list(chosen)}"
            )
        apart = seen[:, list(chosen)] - np.array(self.value)
        return np.linalg.norm(apart, axis=1) <= self.tolerance


@dataclass(frozen=True, slots=True)
class Reached:
    """Minus the number of ``parts`` that do not hold after the step; 0 when all do, which ends the
    task, though play goes on.

    This is the reward of OGBench's single tasks (Park et al. 2025): what a step leads to is seen at
    the next tick; of the last step, at its own.
    """

    parts: tuple[Part, ...]
    judges: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.parts:
            raise ConfigError("parts: name at least one part of the task")

    @property
    def signals(self) -> tuple[str, ...]:
        """Those of all parts."""
        return tuple(dict.fromkeys(part.signal for part in self.parts))

    def relabel(self, episode: Episode, success: bool) -> Rewarded:  # noqa: ARG002
        """Judged by what was seen."""
        held = np.stack([part.holds(episode) for part in self.parts])
        after = np.concatenate([held[:, 1:], held[:, -1:]], axis=1)
        return Rewarded((after.sum(axis=0) - len(self.parts)).astype(np.float64), after.all(axis=0))


@dataclass(frozen=True, slots=True)
class TakenOver:
    """-1 (times ``penalty``) for the step after which a person took over from a policy, 0 for every
    other (RLIF, Luo et al. 2023): what a person would not let go on is bad, nothing else is said.

    ``at``: ``before`` blames the policy's own last step, as the paper does; ``first`` the person's
    first one, as its released code does.
    """

    penalty: float = 1.0
    at: Literal["before", "first"] = "before"
    judges: ClassVar[bool] = False
    signals: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.penalty) and self.penalty > 0):
            raise ConfigError(f"taken_over: penalty must be above 0, got {self.penalty}")

    def relabel(self, episode: Episode, success: bool) -> Rewarded:  # noqa: ARG002
        """Errors: :class:`DataError` where it was not recorded who drove."""
        nobody = [k for k, name in enumerate(episode.source) if not name]
        if nobody:
            raise DataError(
                f"episode {episode.id}: nothing says who drove step {nobody[0]} of {episode.steps},"
                " so nobody can tell where a person took over; leave the episode out, or choose"
                " another data.reward"
            )
        begins = take_overs(episode.source)
        if self.at == "before":
            begins = np.append(begins[1:], np.zeros(min(1, episode.steps), dtype=np.bool_))
        return Rewarded(np.where(begins, -self.penalty, 0.0), episode.terminal)


REWARDS = Table[type[Relabelling]](
    {
        "progress": "robolearn.data.reading.rewards:Progress",
        "reached": "robolearn.data.reading.rewards:Reached",
        "recorded": "robolearn.data.reading.rewards:Recorded",
        "success": "robolearn.data.reading.rewards:Success",
        "taken_over": "robolearn.data.reading.rewards:TakenOver",
    },
    what="reward",
    group="robolearn.rewards",
)


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """Which reward episodes are read with."""

    # recorded, progress, success, reached, taken_over, or what an installed package adds.
    task: str = "recorded"
    # Its settings.
    params: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        # A mistake in the file is said before any data is read.
        self.relabelling()

    @property
    def plain(self) -> bool:
        """Whether rewards are read as they were recorded."""
        return self.task == "recorded" and not self.params

    def relabelling(self) -> Relabelling:
        """What carries it out."""
        kind = REWARDS.find(self.task, where="data.reward")
        return from_dict(kind, self.params, f"data.reward: {self.task}")


def rewarded(episode: Episode, config: RewardConfig, success: bool) -> Rewarded:
    """The reward and the ends of one episode, checked: finite numbers, one per step."""
    found = config.relabelling().relabel(episode, success)
    for name, values in (("reward", found.reward), ("done", found.done)):
        if values.shape != (episode.steps,):
            raise DataError(
                f"episode {episode.id}: data.reward '{config.task}' gives {name} of shape"
                f" {values.shape}, expected ({episode.steps},)"
            )
    # Training reads them in single precision. Whatever is no number fails this, too.
    beyond = np.flatnonzero(~(np.abs(found.reward) <= LARGEST))
    if beyond.size:
        step = int(beyond[0])
        raise DataError(
            f"episode {episode.id}: data.reward '{config.task}' is {found.reward[step]:g} at step"
            f" {step}, expected finite numbers of at most {LARGEST:.3g}; correct what was recorded,"
            " or leave the episode out"
        )
    return found


def require_signals(
    option: str, task: str, signals: tuple[str, ...], known: tuple[str, ...], where: str
) -> tuple[str, ...]:
    """``signals``, which ``task`` of ``option`` (``data.reward``, ``data.cost``) has to see;
    :class:`DataError` for one that is not recorded.
    """
    for name in signals:
        if name not in known:
            raise DataError(
                f"{option} '{task}' looks at '{name}', which {where} does not have."
                f"{did_you_mean(name, known)} It has: {sorted(known)}"
            )
    return signals


def informative(reward: RowNumbers, done: Flags) -> bool:
    """Whether rewards tell anything: they differ, or something ends the task."""
    return bool(done.any()) or bool(reward.size and reward.min() != reward.max())


def require_informative(reward: RowNumbers, done: Flags, config: RewardConfig) -> None:
    """Errors: :class:`DataError` where rewards tell nothing: all are 0, or all alike and nothing
    ever ends.
    """
    if informative(reward, done) and reward.any():
        return
    value = float(reward[0]) if reward.size else 0.0
    what = "no success" if value < 0 else "no reward"
    endless = "" if done.any() else " and none ends the task"
    raise DataError(
        f"there is {what} in these {len(reward)} steps: by data.reward '{config.task}' each is"
        f" worth {value:g}{endless}, so every policy is as good as any other; take in episodes that"
        f" succeed, or choose another reward of {sorted(REWARDS)}"
    )
