"""Turns a time budget into a number of steps, and corrects it by the speed that is measured; says
when time is used up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

LOOKS = 20
"""Looks at the clock within what is left, so that they become denser towards the end."""
TOLERANCE = 0.02
"""Share of the steps left below which the number stays, so that the learning rate runs smoothly."""


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """What something may take from when it is begun: by the clock, and of the computing of the
    process that does it [s].
    """

    seconds: float = math.inf
    cpu_seconds: float = math.inf

    def begun(self) -> Callable[[], bool]:
        """From now on; says whether either is used up."""
        end = time.perf_counter() + self.seconds
        end_cpu = time.process_time() + self.cpu_seconds
        return lambda: time.perf_counter() >= end or time.process_time() >= end_cpu


UNLIMITED = TimeLeft()
"""As long as it takes."""


class Budget:
    """At most ``most`` steps in ``limit_s`` seconds, of which ``calibration`` are timed first.

    The number of steps is found again and again, upwards and downwards, because a machine is often
    busy for a while; what counts is the time of the newer half of the run, pauses included. Which
    steps are looked at follows from the number alone, so that several processes that share it look
    at the same ones. ``step`` and ``seconds``: where it begins.
    """

    def __init__(
        self, limit_s: float, most: int, calibration: int, step: int, seconds: float
    ) -> None:
        self._limit_s, self._most, self._calibration = limit_s, most, calibration
        # The first steps pay for allocation.
        self._first = step + calibration // 4
        self._next = step + calibration
        # Step and time [s] of looks; the first is the oldest that still counts.
        self._marks = [(step, seconds)]

    def due(self, step: int, seconds: float) -> bool:
        """Whether to look after ``step`` steps, ``seconds`` since training began."""
        if step == self._first:
            self._marks = [(step, seconds)]
        return step >= self._next

    def total(self, step: int, seconds: float, before: int | None) -> int:
        """How many steps the budget allows in all; ``before``: what was found last."""
        middle = (seconds + self._marks[0][1]) / 2
        while len(self._marks) > 1 and self._marks[1][1] <= middle:
            self._marks.pop(0)
        (then, then_s) = self._marks[0]
        self._marks.append((step, seconds))
        typical_s = max((seconds - then_s) / (step - then), 1e-9)
        # A billionth, because a whole number of steps must not be lost to rounding.
        left = max(0, math.floor((self._limit_s - seconds) / typical_s + 1e-9))
        found = min(self._most, step + left)
        if before is not None and abs(found - before) <= max(1, TOLERANCE * (before - step)):
            return before
        return found

    def looked(self, step: int, total: int) -> None:
        """The steps are ``total`` now; says when to look again."""
        self._next = step + max(1, min(self._calibration, (total - step) // LOOKS))
