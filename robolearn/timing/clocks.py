"""Keeps absolute deadlines on the monotonic clock, and tells other clocks on it."""

from __future__ import annotations

import math
import time

from robolearn.errors import ClockError


class Rate:
    """Wakes at ``start + k / rate_hz``; late ticks are skipped, never burst, and counted."""

    def __init__(self, rate_hz: float) -> None:
        self.period_ns = round(1e9 / rate_hz)
        self.missed = 0
        self.max_late_ns = 0
        self.deadline_ns = time.monotonic_ns() + self.period_ns

    def restart(self) -> None:
        """The next deadline is one period from now."""
        self.deadline_ns = time.monotonic_ns() + self.period_ns

    def wait(self) -> int:
        """Sleep until the deadline; return how late the wake-up was [ns]."""
        remaining = self.deadline_ns - time.monotonic_ns()
        if remaining > 0:
            time.sleep(remaining * 1e-9)
        now = time.monotonic_ns()
        late = now - self.deadline_ns
        self.max_late_ns = max(self.max_late_ns, late)
        self.deadline_ns += self.period_ns
        if now > self.deadline_ns:
            skipped = (now - self.deadline_ns) // self.period_ns + 1
            self.missed += int(skipped)
            self.deadline_ns += int(skipped) * self.period_ns
        return late


class ClockAnchor:
    """Another clock's times on this machine's monotonic clock, without the jitter of the way here.

    The offset is that of the fastest arrival among those of the last ``window_s`` to ``2
    window_s``: what everything is late by at least stays in it (a latency to calibrate), and clocks
    may drift apart by some milliseconds per window. Restart it when the other clock may have been
    set anew.
    """

    def __init__(self, what: str, *, window_s: float = 10.0, jump_s: float = 0.25) -> None:
        self.what = what
        self._window_ns, self._jump_s = round(window_s * 1e9), jump_s
        self.restart()

    def restart(self) -> None:
        """Forget the offset and the last time."""
        self._last_t_s = -math.inf
        self._before_s = self._now_s = math.inf
        self._turn_ns = 0

    def require_forward(self, device_t_s: float) -> None:
        """Raise ClockError when the other clock ran backwards."""
        if device_t_s < self._last_t_s:
            raise ClockError(
                f"{self.what}: its clock went backwards, from {self._last_t_s:.3f} to"
                f" {device_t_s:.3f} s; find out what sets it (NTP, a restart), then connect again"
            )
        self._last_t_s = device_t_s

    def monotonic_ns(self, device_t_s: float, received_ns: int) -> int:
        """When ``device_t_s`` was, at most ``received_ns``; raises ClockError for a clock that ran
        backwards or jumped ahead.
        """
        self.require_forward(device_t_s)
        behind_s, offset_s = received_ns * 1e-9 - device_t_s, min(self._before_s, self._now_s)
        # Only a jump makes something arrive much sooner after its stamp than the fastest did.
        if behind_s < offset_s - self._jump_s and math.isfinite(offset_s):
            raise ClockError(
                f"{self.what}: its clock jumped {offset_s - behind_s:.3f} s ahead;"
                " find out what sets it (NTP, a restart), then connect again"
            )
        if received_ns >= self._turn_ns:
            self._turn_ns = received_ns + self._window_ns
            self._before_s, self._now_s = self._now_s, math.inf
        self._now_s = min(self._now_s, behind_s)
        offset_s = min(self._before_s, self._now_s)
        return min(received_ns, round((device_t_s + offset_s) * 1e9))
