"""Turns a person into an agent: a device and the mapping from it to commands."""

from __future__ import annotations

from hardware.teleop.config import DEFAULT_MAPPING, MappingConfig
from hardware.teleop.device import TeleopDevice
from hardware.teleop.mapping import Mapping
from robolearn.spec import EmbodimentSpec
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput


class TeleopAgent:
    """Commands what the hand at the device wants; holds while nobody holds the device."""

    def __init__(
        self,
        device: TeleopDevice,
        embodiment: EmbodimentSpec,
        config: MappingConfig = DEFAULT_MAPPING,
    ) -> None:
        self._mapping = Mapping(config, embodiment, device.lease_s)
        self._device = device
        self._period_ns = round(1e9 / embodiment.rate_hz)
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
    def opening(self) -> float | None:
        """Commanded opening of the gripper, 0 to 1; None without one, and before the first tick."""
        return self._mapping.opening if self._last_ns is not None else None

    def reset(self, seed: int) -> None:
        """A person has no seed; nobody has hold of the arm yet."""
        del seed
        self._seq, self._engaged, self._note = 0, False, ""
        self._last_ns: int | None = None

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """What the person wants, or hold."""
        del reply
        if self._last_ns is None:
            self._mapping.reset(observation)
            self._device.begin(self._mapping.opening)
            self._last_ns = observation.t_ns - self._period_ns
        dt_s = 1e-9 * (observation.t_ns - self._last_ns)
        self._last_ns = observation.t_ns
        mapped = self._mapping.command(self._device.poll(), observation, dt_s)
        self._engaged, self._note = mapped.engaged, mapped.note
        self._seq += 1
        return Command(
            seq=self._seq - 1,
            action=mapped.action,
            due_ns=observation.t_ns,
            source=self.name if mapped.engaged else "hold",
        )
