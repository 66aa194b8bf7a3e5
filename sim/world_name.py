"""Reads and writes names of worlds: which, with which options, and how perturbed.

    pick_place,camera=agent+wrist,size=84     a scene, its pictures observed
    scenes/mine                               a folder with scene.yaml
    robosuite/Lift,robot=Sawyer               a thing of a family, with that family's options
    gym_pusht,goal=0.15:0.3:1.0               Push-T with its goal elsewhere: x, y [m], yaw [rad]
    pusht_reference~mass=1~seed=3             perturbed (``sim.perturbations.kinds``)

The options of scenes and of Push-T's other engines are ``camera`` and ``size``
(``docs/rendering.md``); without them a scene offers the cameras that have a ``signal``, and other
engines none.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from robolearn.errors import SceneError, did_you_mean
from robolearn.pusht import Pose, goal_pose
from sim.perturbations.kinds import Perturbations, split_perturbations
from sim.rendering.renderer import LARGEST

# Sides of the pictures of the Push-T recordings [px].
DEFAULT_SIZE = 96
EXAMPLE = "robosuite/Lift,robot=Sawyer"
# What begins an option; other commas belong to a folder's name.
_OPTION = re.compile(r",(?=\w+=)")


@dataclass(frozen=True, slots=True)
class Pictures:
    """Which cameras are observed (None: as the scene says) and their size [px] (None: likewise)."""

    cameras: tuple[str, ...] | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class WorldName:
    """A world's name, taken apart; ``str`` puts it together again."""

    # A scene, a folder, an engine (``gym_pusht``) or ``family/thing``.
    base: str
    # As written; who builds the world knows which there are.
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    perturbations: Perturbations = field(default_factory=lambda: Perturbations({}))

    @classmethod
    def parse(cls, name: str) -> WorldName:
        """Take a name apart.

        Raises :class:`SceneError` for an option that is given twice, and :class:`ConfigError` for
        perturbations that do not exist.
        """
        nominal, perturbations = split_perturbations(name)
        base, *parts = _OPTION.split(nominal)
        options: dict[str, str] = {}
        for part in parts:
            key, _, value = part.partition("=")
            if key in options:
                raise SceneError(
                    f"'{name}': '{key}' is given twice; expected options like {EXAMPLE} (each key"
                    f" once), got '{part}'"
                )
            options[key] = value
        return cls(base, options, perturbations)

    def __str__(self) -> str:
        options = "".join(f",{key}={value}" for key, value in self.options.items())
        return self.base + options + self.perturbations.suffix

    @property
    def family(self) -> str:
        """What stands before the first slash: ``robosuite`` of ``robosuite/Lift``."""
        return self.base.partition("/")[0]

    @property
    def thing(self) -> str:
        """What stands behind the first slash: ``Lift`` of ``robosuite/Lift``."""
        return self.base.partition("/")[2]

    def require_options(self) -> None:
        """Raise :class:`SceneError` where a family's name has options that are no ``key=value``."""
        bad = [f"{k}=" for k, v in self.options.items() if not v]
        if "," in self.base:
            bad.append(self.base.partition(",")[2])
        if bad:
            raise SceneError(
                f"'{self}': expected options like {EXAMPLE} (each key once), got '{bad[0]}'"
            )

    def pictures(self) -> Pictures:
        """The options as pictures; :class:`SceneError` for others and for bad values."""
        only(self, ("camera", "size", "goal"))
        size = self.options.get("size")
        if size is not None and not (size.isdecimal() and 1 <= int(size) <= LARGEST):
            raise SceneError(f"'{self}': size is 1 to {LARGEST} pixels, got '{size}'")
        cameras = self.options.get("camera")
        chosen = None if cameras is None else tuple(c for c in cameras.split("+") if c)
        if chosen is not None and (not chosen or len(set(chosen)) < len(chosen)):
            raise SceneError(f"'{self}': camera names cameras, each once, like camera=top+wrist")
        return Pictures(chosen, int(size) if size is not None else None)

    def goal(self) -> Pose | None:
        """Push-T's goal, if the name says one; :class:`SceneError` for what is no pose."""
        said = self.options.get("goal")
        if said is None:
            return None
        try:
            return goal_pose([float(v) for v in said.split(":")], f"'{self}': goal")
        except ValueError as error:
            raise SceneError(
                f"'{self}': expected goal=X:Y:YAW in metres and radians, on the table ({error})"
            ) from error

    def with_goal(self, goal: Pose) -> WorldName:
        """The same world with Push-T's goal there."""
        told = ":".join(repr(float(v)) for v in goal)
        return dataclasses.replace(self, options={**self.options, "goal": told})


def only_top(name: WorldName) -> int:
    """Size of the one picture of a world that only has a ``top`` camera; 0 without pictures."""
    pictures = name.pictures()
    if name.thing:
        raise SceneError(f"no world '{name.base}': {name.family} has no parts")
    if pictures.cameras is None:
        return pictures.size or 0
    for camera in pictures.cameras:
        choose(name.base, "camera", camera, ("top",))
    return pictures.size or DEFAULT_SIZE


def choose(world: str, key: str, value: str, options: Sequence[str]) -> str:
    """``value`` if it is one of ``options``; else :class:`SceneError` with the choice."""
    if value not in options:
        raise SceneError(
            f"{world}: no {key} '{value}'.{did_you_mean(value, options)} There is: {list(options)}"
        )
    return value


def only(name: WorldName, keys: Sequence[str]) -> None:
    """Raise :class:`SceneError` for an option that the world does not know."""
    for key in name.options:
        choose(name.base, "option", key, keys)
