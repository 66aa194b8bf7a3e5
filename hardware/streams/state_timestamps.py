"""Tells when an arm measured what it says about itself."""

from __future__ import annotations

from typing import Literal

import numpy as np

from robolearn.shapes import Floats, Times
from robolearn.timing.clocks import ClockAnchor

StateClock = Literal["arrival", "device"]


class StateTimes:
    """Capture times of an arm's states: their arrival, or the controller's stamps on this machine's
    clock, less the calibrated latency.
    """

    def __init__(self, cell: str, clock: StateClock, latency_s: float) -> None:
        self._anchor = ClockAnchor(f"the controller of '{cell}'")
        self._by_device, self._latency_ns = clock == "device", round(1e9 * latency_s)

    def restart(self) -> None:
        """The controller may have been switched off and on."""
        self._anchor.restart()

    def measured_ns(self, device_t_s: Floats, received_ns: Times) -> Times:
        """Capture times ``[n]`` of states with the controller's stamps [s], ascending.

        Raises ClockError when the controller's clock ran backwards or jumped ahead.
        """
        pairs = zip(device_t_s.tolist(), received_ns.tolist(), strict=True)
        mapped = np.array([self._anchor.monotonic_ns(d, r) for d, r in pairs], dtype=np.int64)
        if self._by_device:
            # A faster arrival than ever moves the clocks together, perhaps past the last sample.
            received_ns = np.maximum.accumulate(mapped)
        return received_ns - self._latency_ns
