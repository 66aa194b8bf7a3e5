"""Shows the other signals as of a camera's newest picture, as a cell with ``align`` does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from hardware.streams.signal_buffer import SignalBuffer
from robolearn.spec import SignalSpec
from robolearn.types import Observation, SampleBatch


class Aligned:
    """Keeps the samples of ``signals``; ``picture``: the signal whose time counts."""

    def __init__(self, signals: Iterable[SignalSpec], picture: str) -> None:
        self._buffers = {s.name: SignalBuffer(s) for s in signals}
        self._picture = picture

    def clear(self) -> None:
        """An episode begins."""
        for buffer in self._buffers.values():
            buffer.clear()

    def add(self, t_ns: int, values: Mapping[str, Any]) -> None:
        """Samples of one time; of other signals none is kept."""
        for name, value in values.items():
            if name in self._buffers:
                self._buffers[name].add(t_ns, value)

    def shown(self, observation: Observation) -> Observation:
        """The same picture, and the others as they were then."""
        t_ns = observation.samples[self._picture].t_ns
        then = {name: buffer.at(t_ns) for name, buffer in self._buffers.items()}
        return dataclasses.replace(observation, samples={**observation.samples, **then})

    def drained(self, batch: SampleBatch) -> SampleBatch:
        """The same batch with what was shown in it."""
        blocks = {name: buffer.drain() for name, buffer in self._buffers.items()}
        return dataclasses.replace(batch, signals={**batch.signals, **blocks})
