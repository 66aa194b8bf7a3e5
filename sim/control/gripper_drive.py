"""Moves a gripper's opening as its own drive does: some time after the command, at one speed.

A gripper's motor is not the arm's: its commands go another way (a socket beside the controller, a
register), and no law of the tool's path holds them back.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

# Longer waits are no gripper's [s]; faster ones are none's that carries anything [m/s].
LONGEST_S, FASTEST_M_S = 1.0, 2.0
# Nearer to its set-point [m] a slide is only late.
_HELD_OFF_M = 0.002


@dataclass(frozen=True, slots=True)
class GripperDrive:
    """What was identified of a gripper: a command moves the fingers ``delay_s`` [s] later, at
    ``speed`` [m/s] of the opening. ``pulls_on``: while something is between them its set-point goes
    on inwards, and has to come all that way back before they open; without, they open at once.
    """

    delay_s: float
    speed: float
    pulls_on: bool = False

    def __post_init__(self) -> None:
        if not (0.0 <= self.delay_s <= LONGEST_S and 0.0 < self.speed <= FASTEST_M_S):
            raise ValueError(
                f"a gripper's drive needs delay_s in [0, {LONGEST_S:g}] s and speed in"
                f" (0, {FASTEST_M_S:g}] m/s, got {self.delay_s} and {self.speed}"
            )


class DrivenFingers:
    """The set-points of one gripper's slide, one per ``period_s`` [s]; ``ratio``: its opening over
    the slide's way. Not thread-safe.
    """

    def __init__(self, drive: GripperDrive, ratio: float, period_s: float) -> None:
        self._step, self._period_s = drive.speed / ratio * period_s, period_s
        self._pulls_on = drive.pulls_on
        # The way is the same as with late commands; in between two set-points it is straight.
        late = drive.delay_s / period_s
        self._share = late - math.floor(late)
        self._past: deque[float] = deque(maxlen=math.floor(late) + 2)
        self._at = self._last = 0.0

    def reset(self, q: float) -> None:
        """At rest at ``q`` [m]."""
        self._at = self._last = q
        self._past.extend([q] * (self._past.maxlen or 0))

    def seen(self, q: float, goal: float) -> None:
        """Where the slide is [m]: held off from its set-point, it comes back from there."""
        if not self._pulls_on and min(goal, q) - self._at > _HELD_OFF_M:
            self._at = q

    def advance(self, goal: float) -> tuple[float, float]:
        """The next set-point [m] towards ``goal``, and its speed [m/s]."""
        self._at += max(-self._step, min(self._step, goal - self._at))
        self._past.append(self._at)
        older, newer = self._past[0], self._past[1]
        q = newer + self._share * (older - newer)
        speed, self._last = (q - self._last) / self._period_s, q
        return q, speed
