"""Statistics of signals: streaming, mergeable, and what a checkpoint keeps of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import DataError


@dataclass(frozen=True, slots=True)
class SignalStats:
    """Per component of one flattened signal, in its own unit; tuples so that they compare."""

    count: int
    minimum: tuple[float, ...]
    maximum: tuple[float, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


class RunningStats:
    """Welford's sums over blocks; :meth:`merge` combines parts (Chan, Golub and LeVeque 1983)."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self.minimum = np.full(size, np.inf)
        self.maximum = np.full(size, -np.inf)
        self._mean = np.zeros(size)
        self._m2 = np.zeros(size)

    def update(self, values: NDArray[Any]) -> None:
        """Add ``values [n, *shape]``; all must be finite."""
        size = int(np.prod(values.shape[1:], dtype=np.int64))
        flat = np.asarray(values, dtype=np.float64).reshape(len(values), size)
        if flat.shape[1] != self._mean.size:
            raise DataError(f"expected {self._mean.size} components, got {flat.shape[1]}")
        if not np.isfinite(flat).all():
            raise DataError("cannot take statistics of values that are not finite (NaN or inf)")
        if not len(flat):
            return
        part = RunningStats(self._mean.size)
        part.count = len(flat)
        part.minimum, part.maximum = flat.min(axis=0), flat.max(axis=0)
        part._mean = flat.mean(axis=0)
        part._m2 = ((flat - part._mean) ** 2).sum(axis=0)
        self.merge(part)

    def merge(self, other: RunningStats) -> None:
        """Add what another instance has seen."""
        total = self.count + other.count
        if total == 0:
            return
        delta = other._mean - self._mean
        self._m2 = self._m2 + other._m2 + delta**2 * (self.count * other.count / total)
        self._mean = self._mean + delta * (other.count / total)
        self.minimum = np.minimum(self.minimum, other.minimum)
        self.maximum = np.maximum(self.maximum, other.maximum)
        self.count = total

    def finish(self) -> SignalStats:
        """The statistics so far."""
        if self.count == 0:
            raise DataError("no values: statistics need at least one")
        return SignalStats(
            count=self.count,
            minimum=tuple(self.minimum.tolist()),
            maximum=tuple(self.maximum.tolist()),
            mean=tuple(self._mean.tolist()),
            std=tuple(np.sqrt(self._m2 / self.count).tolist()),
        )


@dataclass(frozen=True, slots=True)
class DatasetStats:
    """Statistics by signal name, of the training episodes only."""

    observations: Mapping[str, SignalStats]
    actions: Mapping[str, SignalStats]


def signal_stats(values: NDArray[Any]) -> SignalStats:
    """Statistics of one array ``[n, *shape]``."""
    running = RunningStats(int(np.prod(values.shape[1:], dtype=np.int64)))
    running.update(values)
    return running.finish()


def stats_to_json(stats: DatasetStats) -> dict[str, Any]:
    """Plain JSON values."""
    return {
        "observations": {k: dataclasses.asdict(v) for k, v in stats.observations.items()},
        "actions": {k: dataclasses.asdict(v) for k, v in stats.actions.items()},
    }


def stats_from_json(raw: Mapping[str, Any]) -> DatasetStats:
    """Inverse of :func:`stats_to_json`."""
    try:
        return DatasetStats(
            observations={k: _signal(v) for k, v in raw["observations"].items()},
            actions={k: _signal(v) for k, v in raw["actions"].items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"not the statistics of a dataset: {error!r}") from error


def _signal(raw: Mapping[str, Any]) -> SignalStats:
    return SignalStats(
        count=int(raw["count"]),
        minimum=tuple(raw["minimum"]),
        maximum=tuple(raw["maximum"]),
        mean=tuple(raw["mean"]),
        std=tuple(raw["std"]),
    )
