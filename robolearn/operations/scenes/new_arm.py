"""Makes a scene package of an arm of one's own, from its URDF or MJCF."""

from __future__ import annotations

from pathlib import Path

from robolearn.errors import ConfigError
from sim.env.scene_check import SceneReport, check_scene
from sim.robots.own.package import ACTIONS, NewScene, new_scene


def new_arm_scene(
    arm: Path,
    out: Path,
    *,
    tool: str = "",
    home: tuple[float, ...] = (),
    action: str = ACTIONS[0],
) -> tuple[NewScene, SceneReport]:
    """The package ``out`` with the arm of ``arm`` at a table, and what ``scene check`` says of it.

    ``tool``: a body or site of the file ("": one with a usual name), ``home`` [rad]: where starts
    begin (none: found), ``action``: ``arm/joint_position`` or ``tool/pose``. Everything that the
    file does not say is in ``assumed``.

    Errors: :class:`ConfigError`, :class:`SceneError` with what is missing or in other units.
    """
    if not out.name:
        raise ConfigError(f"the new package needs a name, got '{out}'")
    made = new_scene(arm, out, tool=tool, home=home, action=action)
    return made, check_scene(made.scene)
