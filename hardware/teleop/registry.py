"""Lists the devices that a person may drive by; an installed package adds its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from hardware.devices.driver_config import make_driver_config
from hardware.teleop.combined import WithKeys
from hardware.teleop.device import Keys, Surroundings, TeleopDevice
from robolearn.errors import ConfigError
from robolearn.table import CONFIG, Table


@runtime_checkable
class TeleopDeviceConfig(Protocol):
    """What every device's config can do: a frozen dataclass of its settings."""

    @property
    def keys(self) -> Keys:
        """Whether the device starts and keeps episodes itself: ``own``, or with the terminal's keys
        beside it, which are ``welcome`` (where there is a terminal) or ``needed``.
        """
        ...

    def build(self, around: Surroundings) -> TeleopDevice:
        """Open the device."""
        ...


FREEDRIVE = "freedrive"
"""The device that is the arm itself."""
NO_TAKE_OVER = "takes over from no policy: an arm either follows commands or gives way to a hand"
"""Why :data:`FREEDRIVE` does not."""

DEVICES = Table[type[TeleopDeviceConfig]](
    {
        "browser": "hardware.teleop.devices.browser:BrowserConfig",
        "keyboard": "hardware.teleop.devices.keyboard:KeyboardConfig",
        "spacemouse": "hardware.teleop.devices.spacemouse:SpaceMouseConfig",
        "gamepad": "hardware.teleop.devices.gamepad:GamepadConfig",
        "leader": "hardware.teleop.devices.leader:LeaderConfig",
        FREEDRIVE: "hardware.teleop.devices.freedrive:FreedriveConfig",
    },
    what="teleoperation device",
    group="robolearn.devices",
    kind="teleop",
    wanted=CONFIG,
    own_files=True,
)


def require_no_freedrive(who: str, why: str) -> None:
    """ConfigError, which says ``why``, where a hand at the arm itself cannot act."""
    if who == FREEDRIVE:
        raise ConfigError(
            f"'{FREEDRIVE}' {why}; it records on a cell: collect --robot CELL --agent {FREEDRIVE}"
        )


def make_device(settings: Mapping[str, Any], around: Surroundings) -> TeleopDevice:
    """The device that ``kind`` names, with the terminal's keys where it has none of its own; the
    other keys are its settings. ConfigError for others.
    """
    try:
        config: object = make_driver_config(settings, DEVICES.find, where="device")
    except ConfigError as error:
        if set(settings) - {"kind"} or settings.get("kind") not in DEVICES:
            raise
        raise ConfigError(
            f"{error}. The device '{settings['kind']}' has settings that nobody can guess: give"
            " them in a file, below 'device:' (collect, teleoperate: --config; deploy, finetune:"
            " --takeover-config; docs/teleoperation.md)"
        ) from error
    if not isinstance(config, TeleopDeviceConfig):
        raise ConfigError(
            f"device '{settings.get('kind')}': {type(config).__name__} needs 'keys' and"
            " 'build(around)' (docs/teleoperation.md)"
        )
    alone = config.keys == "own" or (config.keys == "welcome" and not sys.stdin.isatty())
    if alone:
        return config.build(around)
    # The terminal first: where there is none, nothing was opened.
    keys = make_driver_config({"kind": "keyboard"}, DEVICES.find, where="device").build(around)
    try:
        return WithKeys(config.build(around), keys)
    except BaseException:
        keys.close()
        raise


def page_at(port: int, host: str) -> dict[str, Any]:
    """Settings of the page: where it is, as far as that was said."""
    return {name: value for name, value in (("port", port), ("host", host)) if value}


def device_of(
    given: Mapping[str, Any], kind: str, page: Mapping[str, Any], around: Surroundings
) -> TeleopDevice:
    """The device ``kind``. ``given``: settings of a file, which may be of another one; ``page``:
    those of the page.
    """
    settings = dict(given) if given.get("kind", kind) == kind else {}
    settings["kind"] = kind
    if kind == "browser":
        settings |= page
    return make_device(settings, around)
