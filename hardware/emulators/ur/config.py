"""Configures how an emulated UR controller answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hardware.emulators.ur.motion import MotionLimits
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class UrEmulatorConfig:
    """How the emulated controller answers.

    ``unlock_delay_s``: a protective stop cannot be unlocked earlier (5 s on the real controller).
    ``brake_release_s``: from the command to open brakes.
    ``remote_control``: what ``is in remote control`` answers.
    """

    version: tuple[int, int, int, int] = (5, 15, 0, 0)
    serial_number: str = "20235500001"
    rate_hz: float = 500.0
    remote_control: bool = True
    unlock_delay_s: float = 5.0
    max_clients: int = 8
    brake_release_s: float = 0.5
    limits: MotionLimits = field(default_factory=MotionLimits)

    def __post_init__(self) -> None:
        delays = (self.unlock_delay_s, self.brake_release_s)
        if not (0 < self.rate_hz <= 1000 and min(delays) >= 0 and self.max_clients >= 1):
            raise ConfigError(
                "rate_hz in (0, 1000], delays >= 0 and max_clients >= 1 are needed, got"
                f" {self.rate_hz}, {delays}, {self.max_clients}"
            )

    @property
    def told(self) -> Mapping[str, str]:
        """Constant answers of the dashboard."""
        return {
            "polyscopeversion": "URSoftware {}.{}.{}.{} (Jan 01 2024)".format(*self.version),
            "get serial number": self.serial_number,
            "is in remote control": str(self.remote_control).lower(),
        }
