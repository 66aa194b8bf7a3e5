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
    finds its sample in the drain of its own tick.
    """

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name, self._shape = name, shape
        self._t_ns: list[int] = []
        self._value: list[NDArray[np.float64]] = []
        self._last: Sample | None = None
        self._shown_ns = -1

    def clear(self) -> None:
        """Forget everything (an episode starts)."""
        self._t_ns, self._value, self._last, self._shown_ns = [], [], None, -1

    def add(self, t_ns: int, value: Any) -> None:
        """One sample; one that is not newer than the last is ignored."""
        if self._last is not None and t_ns <= self._last.t_ns:
            return
        array = np.asarray(value, dtype=np.float64)
        self._last = Sample(t_ns, array)
        self._t_ns.append(t_ns)
        self._value.append(array)

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
        return SampleBlock(
            t_ns=np.array(t_ns, dtype=np.int64),
            value=np.array(value, dtype=np.float64).reshape(take, *self._shape),
            valid=np.ones(take, dtype=np.bool_),
        )
