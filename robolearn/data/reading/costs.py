"""Says what every step of a recorded episode cost, of what must not happen.

    data:
      cost: {task: region, params: {signal: tool/xy_table, low: [0.2, 0.1], high: [0.3, 0.4]}}

Costs lie beside rewards (:mod:`robolearn.data.reading.rewards`) and are decided in the same way,
where episodes are read: they count in the identity of the run, and every algorithm that asks for
them (part ``cost``) sees the same numbers. A cost is that of the step that starts at a tick: at
least 0, and above it where something happened that must not. What a step leads to is seen at the
tick after it; of the last step, at its own.

An installed package adds its own with an entry point of the group ``robolearn.costs``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from robolearn.config import from_dict
from robolearn.data.episode import Episode
from robolearn.data.reading.rewards import RowNumbers
from robolearn.errors import ConfigError, DataError
from robolearn.region import Region
from robolearn.shapes import OwnFloats
from robolearn.table import Table


@runtime_checkable
class Costing(Protocol):
    """What every entry of :data:`COSTS` is: a frozen dataclass whose fields are the params."""

    @property
    def signals(self) -> tuple[str, ...]:
        """What it has to see of an episode, besides what the policy sees."""
        ...

    def cost(self, episode: Episode) -> OwnFloats:
        """Of every step ``[T]``."""
        ...


@runtime_checkable
class Judging(Protocol):
    """What an entry may have beside, as every reward has it."""

    # Whether the outcome of an episode counts, which may be annotated after it was recorded.
    judges: ClassVar[bool]


@dataclass(frozen=True, slots=True)
class Entered:
    """1 for a step that leads into a region, or stays there: a box or a ball of a signal."""

    signal: str
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    centre: tuple[float, ...] = ()
    radius: float | None = None
    index: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        # A mistake in the file is said before any data is read.
        self.region()

    @property
    def signals(self) -> tuple[str, ...]:
        """The one that is looked at."""
        return (self.signal,)

    def region(self) -> Region:
        """The place."""
        return Region(self.signal, self.low, self.high, self.centre, self.radius, self.index)

    def cost(self, episode: Episode) -> OwnFloats:
        """What the tick after the step shows."""
        inside = self.region().holds(episode.observed(self.signal))
        return np.append(inside[1:], inside[-1:]).astype(np.float64)


@dataclass(frozen=True, slots=True)
class RecordedCost:
    """A number that was recorded with every step, as a signal: what a world or a sensor says."""

    signal: str
    # Which of the signal's numbers.
    index: int = 0

    @property
    def signals(self) -> tuple[str, ...]:
        """The one that is the cost."""
        return (self.signal,)

    def cost(self, episode: Episode) -> OwnFloats:
        """As it was seen at the step's tick. Errors: :class:`DataError` for a lower one than 0."""
        values = episode.observed(self.signal).reshape(episode.steps, -1).astype(np.float64)
        if not 0 <= self.index < values.shape[1]:
            raise DataError(
                f"episode {episode.id}: '{self.signal}' has {values.shape[1]} numbers, data.cost"
                f" asks for number {self.index}"
            )
        return values[:, self.index]


@dataclass(frozen=True, slots=True)
class Failed:
    """1 for the last steps of an episode that failed for one of ``reasons``, as the supervisor
    (``safety_stop``) or a person afterwards says (``robolearn data note STORE EPISODE --outcome
    failure --reason spilled``). Of others nothing is known: they cost nothing.
    """

    reasons: tuple[str, ...]
    # How long before its end that begins [s]; at least the last step.
    before_s: float = 0.0
    judges: ClassVar[bool] = True
    # What was said of an episode counts.
    signals: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not self.reasons or not all(r.strip() for r in self.reasons):
            raise ConfigError("reasons: name at least one, such as [safety_stop, spilled]")
        if not (math.isfinite(self.before_s) and self.before_s >= 0):
            raise ConfigError(f"before_s must be at least 0 s, got {self.before_s}")

    def cost(self, episode: Episode) -> OwnFloats:
        """Of its end."""
        found, outcome = np.zeros(episode.steps), episode.meta.outcome
        if not outcome.success and outcome.reason in self.reasons:
            found[-max(1, round(self.before_s * episode.meta.embodiment.rate_hz)) :] = 1.0
        return found


COSTS = Table[type[Costing]](
    {
        "failure": "robolearn.data.reading.costs:Failed",
        "recorded": "robolearn.data.reading.costs:RecordedCost",
        "region": "robolearn.data.reading.costs:Entered",
    },
    what="cost",
    group="robolearn.costs",
)


@dataclass(frozen=True, slots=True)
class CostConfig:
    """Which cost episodes are read with."""

    # failure, region, recorded, or what an installed package adds.
    task: str
    # Its settings.
    params: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.costing()

    def costing(self) -> Costing:
        """What carries it out."""
        kind = COSTS.find(self.task, where="data.cost")
        return from_dict(kind, self.params, f"data.cost: {self.task}")


def costs(episode: Episode, config: CostConfig) -> OwnFloats:
    """The cost of every step of one episode, checked: finite numbers of at least 0."""
    found = config.costing().cost(episode)
    if found.shape != (episode.steps,):
        raise DataError(
            f"episode {episode.id}: data.cost '{config.task}' is of shape {found.shape}, expected"
            f" ({episode.steps},)"
        )
    if not np.isfinite(found).all() or bool((found < 0).any()):
        raise DataError(
            f"episode {episode.id}: data.cost '{config.task}' must be finite and at least 0 (above"
            f" 0: what must not happen); its least is {float(found.min()):g}"
        )
    return found


def require_costs(cost: RowNumbers, config: CostConfig | None) -> None:
    """Errors: :class:`ConfigError` where nothing says what steps cost, :class:`DataError` where all
    cost the same: nothing tells what must not happen from what may.
    """
    happens = cost > 0
    if happens.any() and not happens.all():
        return
    if config is None and not happens.any():
        raise ConfigError(
            "this algorithm learns what must not happen, and nothing says what a step costs: set"
            " data.cost, e.g. {task: region, params: {signal: tool/xy_table, low: [0.2, 0.1],"
            f" high: [0.3, 0.4]}}}}; there are {sorted(COSTS)}"
        )
    how = "every step" if happens.any() else "no step"
    said = "as recorded" if config is None else f"by data.cost '{config.task}'"
    raise DataError(
        f"{said} {how} of these {len(cost)} costs something, so nothing tells"
        " what must not happen from what may; take in episodes that differ in it, or look at the"
        " params (unit, index)"
    )
