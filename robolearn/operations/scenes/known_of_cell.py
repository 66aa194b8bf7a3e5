"""Tells a scene what the supervisor of its cell does: facts of a file, which nobody has to find."""

from __future__ import annotations

from pathlib import Path

from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from robolearn.errors import ConfigError
from sim.identification.write_arm_scene import OfCell, commanded_by_tool
from sim.scene.config import Scene, SupervisorConfig

# How often a controller tells the force at its tool where the cell's file does not say it.
_USUAL_HZ = 100.0


def recorded_in(cell: Path | None, scene: Scene, *, force_stop: bool) -> tuple[OfCell, list[str]]:
    """What ``scene`` gets of the file of the cell in which its arm was recorded (None: of none),
    and remarks. With ``force_stop`` episodes end where the cell stops the robot for its force.

    :class:`ConfigError` for a cell that tells this scene nothing, for ``force_stop`` without one.
    """
    if cell is not None:
        loaded = load_cell(cell)
        known = known_of(loaded, scene, force_stop=force_stop)
        if known == OfCell():
            raise ConfigError(
                f"cell '{loaded.name}' is commanded by {_commanded(loaded)}, scene '{scene.name}'"
                f" by {', '.join(a.name for a in scene.config.actions)}: its limits say nothing"
                " there. Leave the cell out, or name the scene that is commanded as it is"
            )
        return known, []
    if force_stop:
        raise ConfigError("force_stop needs the cell whose supervisor stops the robot")
    arm = scene.config.control.get("arms", [{}])[0]
    if not commanded_by_tool(scene.config) or arm.get("limits"):
        return OfCell(), []
    remark = (
        "nothing limits the tool in this scene as the supervisor of its cell does: a policy whose"
        " commands jump moves otherwise there. Give the file of its cell"
    )
    return OfCell(), [remark]


def known_of(cell: CellConfig, scene: Scene, *, force_stop: bool) -> OfCell:
    """What of ``cell`` belongs into ``scene``: limits of the tool where both are commanded by the
    same action, and what the robot is stopped for where that is asked.
    """
    space = cell.tool
    action = commanded_by_tool(scene.config)
    limits = None if space is None or not action or space.action != action else space.limits
    return OfCell(limits, _stop(cell, scene) if force_stop else None)


def _stop(cell: CellConfig, scene: Scene) -> SupervisorConfig:
    """Looked at once per step of the scene's physics at most."""
    told = cell.supervisor
    physics_hz = 1.0 / scene.config.physics.timestep_s
    rate_hz = min(physics_hz, float(cell.driver.get("rate_hz", _USUAL_HZ)))
    return SupervisorConfig(told.max_tool_force_n, told.overload_s, rate_hz)


def _commanded(cell: CellConfig) -> str:
    return cell.tool.action if cell.tool is not None else "joints or a place on its table"
