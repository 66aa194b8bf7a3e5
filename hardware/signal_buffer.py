"""Samples of one signal between two drains, at their own rate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import StaleSignalError
from robolearn.types import Sample, SampleBlock


class SignalBuffer:
    """Collects samples; :meth:`newest` is what an observation shows, :meth:`drain` hands out.

    A sample newer than the one last shown waits for the next drain, so that every observation
    finds its sample in the drain of its own tick. Whole blocks go in and out: the work of a tick
    hardly grows when the loop was late.
    """

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name, self._shape = name, shape
        self.clear()

    def clear(self) -> None:
        """Forget everything (an episode starts)."""
        self._t_ns = np.zeros(0, dtype=np.int64)
        self._value = np.zeros((0, *self._shape))
        self._last: Sample | None = None
        self._shown_ns = -1

    def add(self, t_ns: int, value: Any) -> None:
        """One sample; one that is not newer than the last is ignored."""
        self.extend(np.array([t_ns], dtype=np.int64), np.asarray(value, dtype=np.float64)[None])

    def extend(self, t_ns: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        """Samples ``t_ns [n]`` ascending, ``value [n, *shape]``; old ones are ignored."""
        if self._last is not None:
            new = t_ns > self._last.t_ns
            t_ns, value = t_ns[new], value[new]
        if len(t_ns):
            self._last = Sample(int(t_ns[-1]), value[-1])
            self._t_ns = np.concatenate([self._t_ns, t_ns])
            self._value = np.concatenate([self._value, value])

    @property
    def last(self) -> Sample | None:
        """The newest sample, without counting it as shown."""
        return self._last

    def newest(self) -> Sample:
        """What an observation shows now; raises StaleSignalError when there never was a sample."""
        if self._last is None:
            raise StaleSignalError(f"{self.name}: no sample has arrived yet")
        self._shown_ns = self._last.t_ns
        return self._last

    def drain(self) -> SampleBlock:
        """Everything up to the last sample but one, and at least what was shown."""
        count = len(self._t_ns)
        take = count - 1 if count and self._t_ns[-1] > self._shown_ns else count
        t_ns, value = self._t_ns[:take], self._value[:take]
        self._t_ns, self._value = self._t_ns[take:], self._value[take:]
        return SampleBlock(t_ns=t_ns, value=value, valid=np.ones(take, dtype=np.bool_))
