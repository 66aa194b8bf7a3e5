"""The section ``robot`` of a hardware config: one file describes one cell completely."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from hardware.robot import Robot
from hardware.supervisor_link import SupervisorConfig
from hardware.table_follower import FollowerConfig
from hardware.tracker import UdpTrackerConfig
from robolearn.config import from_dict, load_yaml
from robolearn.errors import ConfigError, did_you_mean
from robolearn.limiter import PathLimits, TableMapping

SECTIONS = ("lab", "robot")
DRIVERS: dict[str, str] = {
    "ur": "hardware.drivers.ur:URConfig",
    "fake": "hardware.drivers.fake:FakeConfig",
}


@runtime_checkable
class DriverConfig(Protocol):
    """What every driver's config can do; picklable."""

    def build(self) -> Robot:
        """Make the robot, in the process that will own it."""
        ...


@dataclass(frozen=True, slots=True)
class TableConfig:
    """Where the table is and how the tool is held over it (see ``docs/workcell.md``)."""

    origin_m: tuple[float, float, float]
    """Table frame's origin in the arm's base frame [m]."""
    heading_rad: float
    """Table frame's heading in the arm's base frame [rad]."""
    tool_length_m: float
    """From the flange to the tool's tip [m]."""
    tip_height_m: float
    """Height of the tip over the table while working [m]."""
    tool_yaw: float
    """Heading of the flange about the table's z axis [rad]."""
    home: tuple[float, ...]
    """Joint positions over the table; they choose the branch of the kinematics [rad]."""

    def mapping(self) -> TableMapping:
        """For kinematics and limiter."""
        return TableMapping.level(
            self.origin_m,
            self.heading_rad,
            tool_length_m=self.tool_length_m,
            tip_height_m=self.tip_height_m,
            tool_yaw=self.tool_yaw,
            home=self.home,
        )


@dataclass(frozen=True, slots=True)
class CellConfig:
    """One workcell: driver, kinematics, table, limits, supervisor, tracker."""

    name: str
    """Name of the embodiment in episodes and trials."""
    driver: dict[str, Any]
    """``kind`` (ur, fake) and that driver's keys."""
    table: TableConfig
    """Geometry."""
    arm: str = "ur5e"
    """Kinematics by name."""
    rate_hz: float = 10.0
    """Control rate of the agent [Hz]."""
    limits: PathLimits = field(default_factory=PathLimits)
    """Limits of every motion on the table."""
    supervisor: SupervisorConfig = field(default_factory=SupervisorConfig)
    """Time limits and guided moves."""
    tracker: UdpTrackerConfig = field(default_factory=UdpTrackerConfig)
    """Where the block's pose comes from."""
    lift_m: float = 0.1
    """How high the tool is lifted while objects are placed [m]."""
    lab: bool = False
    """True: this cell is a virtual lab that ``deploy --start-lab`` can start."""

    def driver_config(self) -> DriverConfig:
        """The driver's config; raises ConfigError for an unknown kind or key."""
        rest = {k: v for k, v in self.driver.items() if k != "kind"}
        kind = str(self.driver.get("kind", ""))
        if kind not in DRIVERS:
            raise ConfigError(
                f"robot.driver: no kind '{kind}'.{did_you_mean(kind, DRIVERS)}"
                f" There are: {sorted(DRIVERS)}"
            )
        module, name = DRIVERS[kind].split(":")
        config_class = getattr(importlib.import_module(module), name)
        return from_dict(config_class, rest, where="robot.driver")

    def robot_builder(self) -> Callable[[], Robot]:
        """Picklable builder of the robot."""
        return self.driver_config().build

    def follower(self) -> FollowerConfig:
        """What decides set-points."""
        return FollowerConfig(
            arm=self.arm,
            mapping=self.table.mapping(),
            limits=self.limits,
            command_period_s=1.0 / self.rate_hz,
        )

    @property
    def address(self) -> str:
        """Network address of the controller ("" for drivers without one)."""
        return str(self.driver.get("address", ""))


def load_cell(path: Path) -> CellConfig:
    """The section ``robot`` of a hardware config; ``lab`` belongs to the virtual lab."""
    raw = load_yaml(path)
    for key in raw:
        if key not in SECTIONS:
            raise ConfigError(
                f"{path}: unknown section '{key}'.{did_you_mean(str(key), SECTIONS)}"
                f" Sections: {list(SECTIONS)}"
            )
    section = raw.get("robot")
    if not isinstance(section, dict):
        raise ConfigError(f"{path} has no section 'robot' that describes the cell")
    return from_dict(CellConfig, section, where=f"{path}, robot")
