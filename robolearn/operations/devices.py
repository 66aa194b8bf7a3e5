"""Opens the device that a person drives by, with the settings of a file where they are its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hardware.teleop.device import Surroundings, TeleopDevice
from hardware.teleop.registry import make_device


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
