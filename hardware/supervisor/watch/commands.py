"""Decides which of the agent's commands are followed, and when an agent is beyond hope."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from hardware.devices.gripper_config import FAR_M
from hardware.supervisor.checks import are_finite
from hardware.supervisor.follower import Follower
from hardware.supervisor.gripper_keeper import Keeper
from hardware.supervisor.link import Cause, SupervisorConfig, Target


@dataclass(frozen=True, slots=True)
class Defect:
    """Why a command is not followed: the cause, the value that broke a limit, the limit."""

    cause: Cause
    value: float = 0.0
    limit: float = 0.0


class CommandCheck:
    """Looks at every command before the follower gets it.

    What is a little outside is the follower's to clip; what is far outside is no rounding, and an
    agent that sends nothing else for ``far_s`` is :attr:`hopeless`.
    """

    def __init__(self, follower: Follower, keeper: Keeper, config: SupervisorConfig) -> None:
        self._follower, self._keeper, self._config = follower, keeper, config
        self._far_since_ns = 0
        # For how long there has been nothing but commands far outside [s].
        self.far_s = 0.0

    def begin(self) -> None:
        """An agent's commands are followed from now on."""
        self._far_since_ns, self.far_s = 0, 0.0

    @property
    def hopeless(self) -> bool:
        """True once commands have been far outside for so long that the arm must stop for good."""
        return self.far_s >= self._config.far_s

    def defect(self, target: Target, now_ns: int, last: Target | None) -> Defect | None:
        """Why ``target`` must not be followed after ``last``, None when it may."""
        found = self._defect(target, (now_ns - target.due_ns) * 1e-9, last)
        if found is None or found.cause is not Cause.FAR_OUTSIDE:
            self.begin()
            return found
        self._far_since_ns = self._far_since_ns or now_ns
        self.far_s = 1e-9 * (now_ns - self._far_since_ns)
        return found

    def trimmed(self, target: Target) -> Target:
        """The command without its plan where the first action of that would be refused as a
        command: no other one is ever followed.
        """
        if len(target.plan) and self._follower.outside(target.plan[0]) > self._follower.far:
            return dataclasses.replace(target, plan=target.plan[:0])
        return target

    def _defect(self, target: Target, age_s: float, last: Target | None) -> Defect | None:
        values = (target.value, target.plan.reshape(-1), target.gripper)
        if not all(map(are_finite, values)):
            return Defect(Cause.NOT_FINITE)
        backward = last is not None and target.seq <= last.seq
        if backward or not -self._config.ahead_s <= age_s <= self._config.late_s:
            return Defect(Cause.STALE_COMMAND, age_s, self._config.late_s)
        arm = self._follower.outside(target.value), self._follower.far
        for outside, far in (arm, (self._keeper.outside(target.gripper), FAR_M)):
            if outside > far:
                return Defect(Cause.FAR_OUTSIDE, outside, far)
        return None
