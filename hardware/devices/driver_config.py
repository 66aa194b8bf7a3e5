"""Makes the config of a device's driver from the section ``driver`` of a cell's config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from robolearn.config import from_dict

T = TypeVar("T")


def make_driver_config(driver: Mapping[str, Any], find: Callable[..., type[T]], *, where: str) -> T:
    """The config of class ``find(kind, where=where)``: ``kind`` names it, the other keys are its
    fields. Raises ConfigError for an unknown kind or key.
    """
    values = {name: value for name, value in driver.items() if name != "kind"}
    return from_dict(find(str(driver.get("kind", "")), where=where), values, where=where)
