"""Absolute deadlines on the monotonic clock."""

from __future__ import annotations

import time


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
