"""Lists the devices that a person may drive by; an installed package adds its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from hardware.devices.driver_config import make_driver_config
from hardware.teleop.device import Surroundings, TeleopDevice
from robolearn.table import CONFIG, Table


@runtime_checkable
class TeleopDeviceConfig(Protocol):
    """What every device's config can do: a frozen dataclass of its settings."""

    def build(self, around: Surroundings) -> TeleopDevice:
        """Open the device."""
        ...


DEVICES = Table[type[TeleopDeviceConfig]](
    {
        "browser": "hardware.teleop.devices.browser:BrowserConfig",
        "keyboard": "hardware.teleop.devices.keyboard:KeyboardConfig",
    },
    what="teleoperation device",
    group="robolearn.devices",
    kind="teleop",
    wanted=CONFIG,
)


def make_device(settings: Mapping[str, Any], around: Surroundings) -> TeleopDevice:
    """The device that ``kind`` names; the other keys are its settings. ConfigError for others."""
    config = make_driver_config(settings, DEVICES.find, where="device")
    return config.build(around)
