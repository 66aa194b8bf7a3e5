"""Watches what a controller makes of a path that begins anew after a pause of its link.

The supervisor's path keeps the limits, and the device is told to void what was under way; whether
that is what reached the controller only the controller knows. Its own reference (what its servo
loop is told, by its own clock) is therefore watched. What queued up in a link makes seven times
the limit. Where the path accelerates with all it may, a set-point that is one period late makes 1.2
times the limit and goes on; one that is two late makes more than 1.5 times and is a stop.

Who misses a state sees the mean over two periods or more, which hides the peak of what a controller
smooths: the longer the span, the less is allowed in it, down to what a period late cannot make.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from hardware.devices.robot import RobotState
from hardware.shapes import Action
from hardware.supervisor.follower import Follower
from robolearn.arms.shapes import Joints

# For so long after the path began anew.
WATCHED_NS = 400_000_000
# More than this many times the limit was not smoothed.
FACTOR = 1.5
# That much less for every period that was not seen, and this is allowed at least.
_LESS, _LEAST = 0.125, 1.25
# Of a numerical derivative [s].
_STEP_S = 1e-4


class ResumeCheck:
    """Accelerations of path and reference, as norms in the unit of the action: of the tool on the
    table [m/s^2], of the joints [rad/s^2]. A guided move has limits of its own: the largest of the
    path counts where it is above the follower's.
    """

    def __init__(self, rate_hz: float, follower: Follower) -> None:
        self._rate_hz, self._follower = rate_hz, follower
        self._path: deque[Action] = deque(maxlen=3)
        self._until_ns, self._largest = 0, 0.0
        self._last: tuple[float, Action] | None = None

    def begin(self, q: Joints, now_ns: int) -> None:
        """A path begins anew from rest at ``q [joints]``."""
        at = self._follower.action(q)
        self._path.extend((at, at, at))
        self._until_ns, self._last = now_ns + WATCHED_NS, None
        self._largest = self._follower.acceleration

    def sent(self, q: Joints) -> None:
        """The next set-point ``[joints]`` of the path."""
        if not self._until_ns:
            return
        self._path.append(self._follower.action(q))
        one, two, three = self._path
        bend = float(np.linalg.norm(three - 2.0 * two + one)) * self._rate_hz**2
        self._largest = max(self._largest, bend)

    def excess(self, state: RobotState, now_ns: int) -> tuple[float, float] | None:
        """The reference's acceleration and its limit where a fresh state breaks it."""
        if not self._until_ns or state.reference_velocity is None:
            return None
        if now_ns > self._until_ns:
            self._until_ns = 0
            return None
        q, step = state.joint_position, _STEP_S * state.reference_velocity
        action = self._follower.action
        velocity = (action(q + step) - action(q - step)) / (2.0 * _STEP_S)
        last, self._last = self._last, (state.device_t_s, velocity)
        if last is None or state.device_t_s <= last[0]:
            return None
        span_s = state.device_t_s - last[0]
        bend = float(np.linalg.norm(velocity - last[1])) / span_s
        missed = max(0, round(span_s * self._rate_hz) - 1)
        limit = max(_LEAST, FACTOR - _LESS * missed) * self._largest
        return (bend, limit) if bend > limit else None
