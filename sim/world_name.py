"""Names of parametrised worlds: ``family/thing`` or ``family/thing,key=value,key=value``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robolearn.errors import SceneError, did_you_mean


@dataclass(frozen=True, slots=True)
class WorldName:
    """A parsed name: ``robosuite/Lift,robot=Sawyer`` has the family ``robosuite``."""

    family: str
    thing: str
    options: Mapping[str, str]


def parse_name(name: str) -> WorldName:
    """Split a world's name; :class:`SceneError` when an option is not ``key=value``."""
    head, *rest = name.split(",")
    family, _, thing = head.partition("/")
    options: dict[str, str] = {}
    for part in rest:
        key, equals, value = part.partition("=")
        if not equals or not key or not value or key in options:
            raise SceneError(
                f"'{name}': expected options like robosuite/Lift,robot=Sawyer (each key once),"
                f" got '{part}'"
            )
        options[key] = value
    return WorldName(family, thing, options)


def choose(world: str, key: str, value: str, options: Sequence[str]) -> str:
    """``value`` if it is one of ``options``; else :class:`SceneError` with the choice."""
    if value not in options:
        raise SceneError(
            f"{world}: no {key} '{value}'.{did_you_mean(value, options)} There is: {list(options)}"
        )
    return value


def only(name: WorldName, keys: Sequence[str]) -> None:
    """Raise :class:`SceneError` for an option that the family does not know."""
    for key in name.options:
        choose(f"{name.family}/{name.thing}", "option", key, keys)
