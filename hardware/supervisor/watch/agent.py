"""Watches the agent: whether it lives, and which of its commands is in force."""

from __future__ import annotations

from collections.abc import Callable

from hardware.supervisor.follower import Follower
from hardware.supervisor.gripper_keeper import Keeper
from hardware.supervisor.link import Cause, Link, SupervisorConfig, Target
from hardware.supervisor.watch.commands import CommandCheck, Defect

Tell = Callable[[Cause, int, float, float, int], None]
"""Tells an event: cause, time, value, limit, and the command's number (-1: the one in force)."""


class AgentWatch:
    """An agent that is late, silent or talks nonsense halts the arm (:attr:`halting`) until it is
    well again; one that is gone or out of order stops it.
    """

    def __init__(
        self,
        follower: Follower,
        keeper: Keeper,
        config: SupervisorConfig,
        link: Link,
        tell: Tell,
    ) -> None:
        self.commands = CommandCheck(follower, keeper, config)
        # The command in force.
        self.target: Target | None = None
        self.silent = False
        self._late = self._spoiled = False
        self._follower, self._keeper, self._config = follower, keeper, config
        self._link, self._tell = link, tell
        self._next = self._since_ns = 0

    @property
    def halting(self) -> bool:
        """Whether the arm must not go on."""
        return self._late or self.silent or self._spoiled

    def begin(self, now_ns: int) -> None:
        """Commands are followed from now on; those that came before were not meant."""
        self._next, self._since_ns = self._link.commands.count, now_ns
        self.rest()
        self.commands.begin()

    def rest(self) -> None:
        """Nothing is followed any more."""
        self.target, self._late, self._spoiled = None, False, False

    def look(self, now_ns: int, *, follows: bool) -> Defect | None:
        """One tick; why the arm must stop for good, if it must. ``follows``: commands count."""
        beat, config = self._link.heartbeat.latest(), self._config
        age_s = (now_ns - (0 if beat is None else beat.t_ns)) * 1e-9
        silent = age_s > config.heartbeat_s
        if silent and not self.silent:
            self._tell(Cause.AGENT_SILENT, now_ns, age_s, config.heartbeat_s, -1)
        self.silent = silent
        if age_s > config.frozen_s:
            return Defect(Cause.AGENT_FROZEN, age_s, config.frozen_s)
        return self._take(now_ns) if follows else None

    def _take(self, now_ns: int) -> Defect | None:
        found: Defect | None = None
        commands = self._link.commands
        row = commands.latest() if commands.count > self._next else None
        if row is not None and row.index >= self._next:
            self._next = row.index + 1
            found = self._accept(Target.unpack(row.value), now_ns)
        due_ns = self._since_ns if self.target is None else self.target.due_ns
        age_s, late_s = (now_ns - due_ns) * 1e-9, self._config.late_s
        late = age_s > late_s
        if late and not self._late and self.target is not None:
            self._tell(Cause.AGENT_LATE, now_ns, age_s, late_s, -1)
        if self._late and not late:
            self._tell(Cause.AGENT_BACK, now_ns, age_s, late_s, -1)
        self._late = late and self.target is not None
        return found

    def _accept(self, target: Target, now_ns: int) -> Defect | None:
        defect = self.commands.defect(target, now_ns, self.target)
        # Whoever sends such is out of order: the arm brakes until a good command arrives.
        self._spoiled = defect is not None
        if defect is not None:
            self._tell(defect.cause, now_ns, defect.value, defect.limit, target.seq)
            if self.commands.hopeless:
                return Defect(Cause.FAR_AGENT, self.commands.far_s, self._config.far_s)
            return None
        self.target = target = self.commands.trimmed(target)
        inside = self._follower.target(target, now_ns)
        if not (self._keeper.aim(target.gripper) and inside):
            self._tell(Cause.OUT_OF_RANGE, now_ns, 0.0, 0.0, target.seq)
        return None
