"""Turns a person into an agent: a device and the mapping from it to commands."""

from __future__ import annotations

import dataclasses
import time
from collections import deque

import numpy as np

from hardware.teleop.axes import Eye
from hardware.teleop.config import DEFAULT_MAPPING, MappingConfig
from hardware.teleop.device import Key, Rate, TeleopDevice
from hardware.teleop.mapping import Mapping
from hardware.teleop.touch import Touching
from robolearn.agents.take_over import Touch
from robolearn.spec import EmbodimentSpec
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput, Signals

# Commands that the age of what the hand says is told from.
_WINDOW = 200
_AT_BORDER = "held: at the border of the workspace"


class TeleopAgent:
    """Commands what the hand at the device wants; holds while nobody holds the device.

    ``eye``: of the camera that ``config`` names, in whose axes the hand counts.

    Also somebody who may take over from a policy (:class:`robolearn.agents.take_over.Person`).
    """

    def __init__(
        self,
        device: TeleopDevice,
        embodiment: EmbodimentSpec,
        config: MappingConfig = DEFAULT_MAPPING,
        eye: Eye | None = None,
    ) -> None:
        self._mapping = Mapping(config, embodiment, device.lease_s, eye)
        self._device, self._touching = device, Touching(config, device.lease_s)
        self._period_ns = round(1e9 / embodiment.rate_hz)
        self._ages: deque[int] = deque(maxlen=_WINDOW)
        self.reset(0)

    @property
    def name(self) -> str:
        """``human:<device>``."""
        return f"human:{self._device.name}"

    @property
    def engaged(self) -> bool:
        """Whether the person has hold of the arm."""
        return self._engaged

    @property
    def note(self) -> str:
        """Why the person has not, in words."""
        return self._note

    @property
    def limited(self) -> str:
        """What keeps the command from what the hand asks for, in words; "" for nothing."""
        return self._limited

    @property
    def input_age_s(self) -> float | None:
        """How old what the hand said was when it became a command (95 of 100 are younger) [s]; None
        while it said nothing. It grows by what a page's messages, or a terminal's, are late.
        """
        if not self._ages:
            return None
        return 1e-9 * float(np.percentile(np.array(self._ages, dtype=np.float64), 95.0))

    @property
    def opening(self) -> float | None:
        """Commanded opening of the gripper, 0 to 1; None without one, and before the first tick."""
        return self._mapping.opening if self._last_ns is not None else None

    def reset(self, seed: int) -> None:
        """A person has no seed; nobody has hold of the arm yet."""
        del seed
        self._seq, self._engaged, self._note, self._limited = 0, False, "", ""
        self._last_ns: int | None = None
        self._keys: list[Key] = []
        self._ages.clear()
        self._touching.reset()

    def touched(self, observation: Observation) -> Touch:
        """How the device is held, and what was wished for since the last tick."""
        keys, self._keys = tuple(self._keys), []
        return self._touching.touch(self._device.poll(), keys, observation)

    def press(self, key: Key) -> None:
        """Said by whoever reads the device's keys: ``takeover`` and ``handback`` are wishes."""
        self._keys.append(key)

    def latch(self, observation: Observation, sent: Signals) -> None:
        """Begin from where the arm is. A rate takes hold at rest only, and was at rest before it
        was touched.
        """
        del sent
        self._last_ns = self._begin(observation)
        reading = self._device.poll()
        if isinstance(reading.motion, Rate):
            rest = dataclasses.replace(reading, clutch=True, motion=Rate(np.zeros(6)))
            self._mapping.command(rest, observation, 0.0)

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """What the person wants, or hold."""
        del reply
        last_ns = self._begin(observation) if self._last_ns is None else self._last_ns
        dt_s = 1e-9 * (observation.t_ns - last_ns)
        self._last_ns = observation.t_ns
        reading = self._device.poll()
        if reading.present and reading.clutch:
            self._ages.append(time.monotonic_ns() - reading.t_ns)
        mapped = self._mapping.command(reading, observation, dt_s)
        self._engaged, self._note = mapped.engaged, mapped.note
        self._limited = _AT_BORDER if "range" in mapped.limited else ""
        self._seq += 1
        return Command(
            seq=self._seq - 1,
            action=mapped.action,
            due_ns=observation.t_ns,
            source=self.name if mapped.engaged else "hold",
        )

    def _begin(self, observation: Observation) -> int:
        """The time of the tick before, at which nothing was commanded."""
        self._mapping.reset(observation)
        self._device.begin(self._mapping.opening)
        return observation.t_ns - self._period_ns
