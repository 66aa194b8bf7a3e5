"""Says how a virtual lab is served."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from robolearn.errors import ConfigError

World = Literal["pybullet", "mujoco", "kinematic"]


@dataclass(frozen=True, slots=True)
class LabOptions:
    """How a lab is served."""

    # Address to serve on; every lab needs one of its own (127.0.0.2, ...).
    address: str = "127.0.0.1"
    # Physics instead of the file's: pybullet (its section 'physics'), mujoco ('scene'), or
    # kinematic (joints follow exactly).
    world: World | None = None
    # Seed of the hidden physics and of sensor noise.
    seed: int = 0
    # Serve on an address that other machines can reach: none of the devices asks for a password.
    expose: bool = False
    # Write how the lab's cameras really see (lens, place) to this JSON file, for tests of a
    # calibration; nothing else tells it.
    truth: Path | None = None

    def __post_init__(self) -> None:
        found = _found(self.address)
        if not found:
            raise ConfigError(
                f"'{self.address}' is no address: expected one of this machine, such as 127.0.0.1"
            )
        reachable = not all(ipaddress.ip_address(a).is_loopback for a in found)
        if reachable and not self.expose:
            raise ConfigError(
                f"{self.address} can be reached by other machines, and whoever reaches the emulated"
                " devices commands them without a password; expected a loopback address (127.0.0.1,"
                " 127.0.0.2, ...); set 'expose' to serve there all the same"
            )


def _found(name: str) -> list[str]:
    """IP addresses of a name, of any family. An empty one has none: a socket takes it for all."""
    try:
        return [str(row[4][0]) for row in socket.getaddrinfo(name, None)] if name.strip() else []
    except (OSError, UnicodeError):
        return []
