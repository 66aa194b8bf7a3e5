"""Turns a person into an agent.

    released --(target within reach of the tool)--> engaged --(let go or stale)--> released

While released the tool holds its place, so neither a lost connection nor a pointer that comes back
at the far end of the table makes it jump.
"""

from __future__ import annotations

import time

import numpy as np

from hardware.teleop.device import TeleopDevice
from robolearn.agents.actions import clip_action, hold_action
from robolearn.errors import SpecMismatchError
from robolearn.geometry import XY
from robolearn.spec import EmbodimentSpec
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput, Signals

ACTION = "tool/xy_table"
# The recordings' operator took hold of the tool in the same way: pointer within 30 px of it
# (diffusion_policy, ``env/pusht/pusht_env.py``, teleop agent); 1 px = 1 mm.
REACH_M = 0.03
MAX_AGE_NS = 500_000_000


def require_drivable(embodiment: EmbodimentSpec) -> None:
    """:class:`SpecMismatchError` unless a person can drive it, by one point on the table."""
    actions = embodiment.actions
    if [a.name for a in actions] != [ACTION] or actions[0].mode != "absolute":
        raise SpecMismatchError(
            f"this device drives an absolute '{ACTION}'; '{embodiment.name}' is commanded by"
            f" {[(a.name, a.mode) for a in actions]}. People can drive Push-T alone: use --agent"
            " scripted (or play) here"
        )
    embodiment.signal(ACTION)


class TeleopAgent:
    """Sends the device's target as ``tool/xy_table``; holds while nobody holds the device."""

    def __init__(self, device: TeleopDevice, embodiment: EmbodimentSpec) -> None:
        require_drivable(embodiment)
        self._actions = embodiment.actions
        self._device = device
        self.reset(0)

    @property
    def name(self) -> str:
        """``human:<device>``."""
        return f"human:{self._device.name}"

    @property
    def engaged(self) -> bool:
        """Whether the person has hold of the tool."""
        return self._engaged

    def reset(self, seed: int) -> None:
        """A person has no seed; the tool is not held yet."""
        del seed
        self._seq, self._engaged, self._began = 0, False, False
        self._last: Signals | None = None

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The person's target, or hold."""
        del reply
        tool = np.asarray(observation.value(ACTION), dtype=np.float64)
        if not self._began:
            self._device.begin(tool)
            self._began = True
        target = self._target(tool)
        if target is not None:
            self._last = clip_action(self._actions, {ACTION: target})
        elif self._last is None:
            self._last = hold_action(self._actions, observation)
        self._seq += 1
        return Command(
            seq=self._seq - 1,
            action=self._last,
            due_ns=observation.t_ns,
            source=self.name if target is not None else "hold",
        )

    def _target(self, tool: XY) -> XY | None:
        reading = self._device.poll()
        target = reading.target
        stale = time.monotonic_ns() - reading.t_ns > MAX_AGE_NS
        if target is None or stale or not np.isfinite(target).all():
            # Letting go stops the tool where it is, not where it was sent last.
            if self._engaged:
                self._last = clip_action(self._actions, {ACTION: tool})
            self._engaged = False
            return None
        if not self._engaged and float(np.linalg.norm(target - tool)) > REACH_M:
            return None
        self._engaged = True
        return target
