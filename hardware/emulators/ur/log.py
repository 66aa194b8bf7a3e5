"""Logs what reached the controller: set-points, stops, motion and rest, with monotonic times.

The emulator's side of every safety test: did a set-point beyond the limits arrive, when did the
arm come to rest.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from robolearn.arms.shapes import JointRows, Joints
from robolearn.shapes import Times

RING = 120_000  # four minutes at 500 Hz
EVENTS = 10_000
# Two wake-ups further apart than this: the emulator's machine held it up [ns].
STALL_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class ControllerEvent:
    """Something that happened: ``kind`` is one word, ``detail`` a sentence or empty."""

    t_ns: int
    kind: str
    detail: str


class JointRing:
    """The newest joint angles with their times."""

    def __init__(self, joints: int) -> None:
        self.count = 0
        self._t_ns = np.zeros(RING, dtype=np.int64)
        self._q = np.zeros((RING, joints))

    def put(self, t_ns: int, q: Joints) -> None:
        """One more row ``[joints]``."""
        at = self.count % RING
        self._t_ns[at] = t_ns
        self._q[at] = q
        self.count += 1

    def since(self, t_ns: int) -> tuple[Times, JointRows]:
        """Times ``[n]`` and angles ``[n, joints]`` after a time, oldest first."""
        n = min(self.count, RING)
        order = (np.arange(self.count - n, self.count)) % RING
        keep = self._t_ns[order] > t_ns
        return self._t_ns[order][keep], self._q[order][keep]


class ControllerLog:
    """Set-points as they arrived, the reference that the servos followed at every tick, and a
    bounded list of events.
    """

    def __init__(self, joints: int) -> None:
        self.moving = False
        self.events: deque[ControllerEvent] = deque(maxlen=EVENTS)
        self._tick_ns = 0
        self._setpoints, self._references = JointRing(joints), JointRing(joints)

    @property
    def count(self) -> int:
        """Set-points since the start."""
        return self._setpoints.count

    def setpoint(self, t_ns: int, q: Joints) -> None:
        """A servoJ set-point arrived."""
        self._setpoints.put(t_ns, q)

    def reference(self, t_ns: int, q: Joints) -> None:
        """What the servos follow from this tick on; rows are one period apart, whenever a loop that
        was held up came to them.
        """
        self._references.put(t_ns, q)

    def tick(self, t_ns: int) -> None:
        """The emulator is awake; a long sleep before becomes the event ``stall`` (milliseconds), by
        which whoever judges a trial can tell the machine from the device.
        """
        if self._tick_ns and t_ns - self._tick_ns > STALL_NS:
            self.event("stall", f"{1e-6 * (t_ns - self._tick_ns):.1f}", t_ns)
        self._tick_ns = t_ns

    def event(self, kind: str, detail: str, t_ns: int | None = None) -> None:
        """Note something, now unless told."""
        self.events.append(
            ControllerEvent(time.monotonic_ns() if t_ns is None else t_ns, kind, detail)
        )

    def motion(self, t_ns: int) -> None:
        """The arm began to move."""
        self.moving = True
        self.event("moving", "", t_ns)

    def rest(self, t_ns: int) -> None:
        """The arm came to rest at ``t_ns``."""
        self.moving = False
        self.event("rest", "", t_ns)

    def setpoints(self, since_ns: int = 0) -> tuple[Times, JointRows]:
        """Arrival times ``[n]`` and joint targets ``[n, joints]``, oldest first, after a time."""
        return self._setpoints.since(since_ns)

    def references(self, since_ns: int = 0) -> tuple[Times, JointRows]:
        """The same of what the servos followed, tick by tick."""
        return self._references.since(since_ns)
