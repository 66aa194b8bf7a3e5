"""Tells when a value has been above its limit for too long."""

from __future__ import annotations


class Overrun:
    """How long a value has been above ``limit``: at most ``patience_s`` [s]."""

    def __init__(self, limit: float, patience_s: float) -> None:
        self.limit, self._patience_ns = limit, round(patience_s * 1e9)
        self._since_ns: int | None = None

    def over(self, value: float, now_ns: int) -> bool:
        """True once ``value`` has been above the limit for the patience; NaN is not above."""
        if not value > self.limit:
            self._since_ns = None
            return False
        if self._since_ns is None:
            self._since_ns = now_ns
        return now_ns - self._since_ns >= self._patience_ns

    def reset(self) -> None:
        """Begin anew."""
        self._since_ns = None
