"""Collects what the supervisor told: its interventions, and what slows the arm now."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import numpy as np

from hardware.cell.spec import EVENT
from hardware.streams.signal_buffer import SignalBuffer
from hardware.supervisor.client import SupervisorClient
from hardware.supervisor.link import Cause, Event
from robolearn.arms.slowing import Slowed

log = logging.getLogger(__name__)


class EventStream:
    """Since the start of an episode, which is told as a cause of its own."""

    def __init__(self, supervisor: SupervisorClient) -> None:
        self._supervisor = supervisor
        self.interventions: list[Event] = []
        # What slows the arm now.
        self.slowed = Slowed.OVER

    def restart(self, buffers: Mapping[str, SignalBuffer]) -> None:
        """An episode starts: what was told before does not count."""
        self.collect(buffers)
        buffers[EVENT.name].clear()
        self.interventions = []
        buffers[EVENT.name].add(time.monotonic_ns(), np.zeros(4))

    def collect(self, buffers: Mapping[str, SignalBuffer]) -> None:
        """What was told since the last call."""
        for event in self._supervisor.events():
            log.info("supervisor: %s", event.text())
            row = [float(event.cause), event.value, event.limit, float(event.seq)]
            buffers[EVENT.name].add(event.t_ns, row)
            if event.cause.slows:
                self.slowed = Slowed(event.cause)
            # That nothing slows the arm any more is told, and is no intervention.
            if event.cause is not Cause.SLOWED_OVER:
                self.interventions.append(event)
