"""Decides which of the open pages drives, and what its hand does now.

nobody --(a page opens, or claims)--> one page drives, the others watch
       <--(it closes)--
one page --(another claims, and this one has not moved for a while)--> the other

After a change of hands, and after a message without sense, nobody holds anything for longer than a
control period: the mapping sees that the hold was lost, and takes none that would make a jump.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hardware.teleop.device import DeviceReading, Rate
from hardware.teleop.page.messages import Hand

# A page whose hand did nothing for so long may be relieved by another [s].
IDLE_S = 3.0
# Nobody holds the arm for so long after a change of hands [s]; control periods are .1 s at most.
QUIET_S = 0.3
# Lateness is told from the fastest message of this long, as two clocks drift apart [s].
WINDOW_S = 10.0
NOBODY = DeviceReading(0, present=False, clutch=False)


class Lateness:
    """How late a message is [ns], by the page's own clock: those that waited in a stalled network
    arrive in one bunch, and tell what a hand did long ago.
    """

    def __init__(self) -> None:
        self._began_ns = 0
        self._before: float | None = None
        self._fastest: float | None = None

    def __call__(self, now_ns: int, t_ms: float) -> int:
        """Of a message that was sent at ``t_ms`` of the page's clock and came now."""
        took = now_ns - 1e6 * t_ms
        if self._fastest is None or now_ns - self._began_ns > 1e9 * WINDOW_S:
            self._before, self._fastest, self._began_ns = self._fastest, took, now_ns
        self._fastest = min(self._fastest, took)
        fastest = self._fastest if self._before is None else min(self._fastest, self._before)
        return round(took - fastest)


class Allowance:
    """So many messages a second, and so many at once; more is a flood."""

    def __init__(self, rate_hz: float, burst: int) -> None:
        self._rate_hz, self._burst = rate_hz, float(burst)
        self._left, self._then_ns = float(burst), 0

    def take(self, now_ns: int) -> bool:
        """Whether one more is allowed."""
        gained = 1e-9 * (now_ns - self._then_ns) * self._rate_hz
        self._left, self._then_ns = min(self._burst, self._left + gained), now_ns
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


@dataclass(slots=True)
class _Seat:
    """The page that drives."""

    page: int
    lateness: Lateness
    seq: int = -1
    moved_ns: int = 0
    quiet_until_ns: int = 0


class Driver:
    """Pages are known by numbers; whoever calls holds a lock and tells the time [ns]."""

    def __init__(self) -> None:
        self._seat: _Seat | None = None
        self._reading = NOBODY

    @property
    def page(self) -> int | None:
        """The page that drives."""
        return None if self._seat is None else self._seat.page

    @property
    def reading(self) -> DeviceReading:
        """What its hand does."""
        return self._reading

    def claim(self, page: int, now_ns: int) -> str:
        """``page`` wants to drive; why it may not, or ""."""
        seat = self._seat
        if seat is not None and seat.page == page:
            return ""
        if seat is not None and now_ns - seat.moved_ns < 1e9 * IDLE_S:
            return "Somebody drives from another page. Try again when nothing moved for 3 s."
        quiet = 0 if seat is None else round(1e9 * QUIET_S)
        self._seat = _Seat(page, Lateness(), moved_ns=now_ns, quiet_until_ns=now_ns + quiet)
        self._reading = NOBODY
        return ""

    def leave(self, page: int) -> None:
        """The page was closed."""
        if self.page == page:
            self._seat, self._reading = None, NOBODY

    def touched(self, page: int, now_ns: int) -> bool:
        """A key or a button was pressed; whether it counts, which it does for who drives."""
        if self._seat is None or self._seat.page != page:
            return False
        self._seat.moved_ns = now_ns
        return True

    def hear(self, page: int, hand: Hand, now_ns: int) -> None:
        """What the hand at a page does; it counts where the page drives, and in order."""
        seat = self._seat
        if seat is None or seat.page != page or hand.seq <= seat.seq:
            return
        seat.seq = hand.seq
        t_ns = now_ns - seat.lateness(now_ns, hand.t_ms)
        held = hand.held and not hand.away and now_ns >= seat.quiet_until_ns
        if held and self._moves(hand):
            seat.moved_ns = now_ns
        motion = hand.motion if held else None
        self._reading = DeviceReading(t_ns, present=not hand.away, clutch=held, motion=motion)

    def nonsense(self, page: int, now_ns: int) -> None:
        """The page says what no page says: it has let go."""
        seat = self._seat
        if seat is not None and seat.page == page:
            seat.quiet_until_ns = now_ns + round(1e9 * QUIET_S)
            self._reading = DeviceReading(self._reading.t_ns, present=True, clutch=False)

    def _moves(self, hand: Hand) -> bool:
        # A pointer on the table holds the tool, wherever it stands.
        return not isinstance(hand.motion, Rate) or bool(np.any(hand.motion.twist))
