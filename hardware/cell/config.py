"""Describes one cell completely: the section ``robot`` of a hardware config, one file per cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hardware.cell.motion import (
    JOINT_POSITION,
    JOINT_VELOCITY,
    WRENCH,
    CellMotion,
    JointMotion,
    TableMotion,
    ToolMotion,
)
from hardware.cell.start import StartTolerance
from hardware.devices.camera_config import CameraConfig, require_camera
from hardware.devices.driver_config import make_driver_config
from hardware.devices.gripper_config import GripperCellConfig
from hardware.devices.robot import (
    ConnectWatch,
    RecoverableConfig,
    Recovery,
    Robot,
    WatchedConfig,
    WrenchConfig,
)
from hardware.shapes import Components
from hardware.streams.state_timestamps import StateClock
from hardware.streams.tracker_streams import TrackedConfig, require_trackers
from hardware.supervisor.checks import CollisionConfig
from hardware.supervisor.joint_follower import JointFollowerConfig, JointSpace
from hardware.supervisor.link import SupervisorConfig
from hardware.supervisor.process import FollowerRecipe
from hardware.supervisor.table_follower import FollowerConfig
from hardware.supervisor.tool_follower import ToolFollowerConfig, ToolSpace
from robolearn.arms.limiter import PathLimits, TableMapping
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import Pose
from robolearn.spec import SignalSpec
from robolearn.table import CONFIG, Table
from robolearn.timing.latencies import Latencies
from robolearn.types import Condition


@runtime_checkable
class DriverConfig(Protocol):
    """What every driver's config can do; picklable."""

    def build(self) -> Robot:
        """Make the robot, in the process that will own it."""
        ...


DRIVERS = Table[type[DriverConfig]](
    {
        "ur": "hardware.drivers.ur.robot:URConfig",
        "fake": "hardware.drivers.fakes.robot:FakeConfig",
        "feetech": "hardware.drivers.serial_bus.feetech:FeetechConfig",
        "dynamixel": "hardware.drivers.serial_bus.dynamixel:DynamixelConfig",
        "xarm": "hardware.drivers.xarm.robot:XArmConfig",
        "franka": "hardware.drivers.franka:FrankaConfig",
    },
    what="driver",
    group="robolearn.drivers",
    wanted=CONFIG,
    own_files=True,
    hint="; a driver of yours is 'module:ConfigClass'",
)


@dataclass(frozen=True, slots=True)
class TableConfig:
    """Where the table is and how the tool is held over it (see ``docs/workcell.md``)."""

    # Table frame's origin in the arm's base frame [m].
    origin_m: tuple[float, float, float]
    # Table frame's heading in the arm's base frame [rad].
    heading_rad: float
    # From the flange to the tool's tip [m].
    tool_length_m: float
    # Height of the tip over the table while working [m].
    tip_height_m: float
    # Heading of the flange about the table's z axis [rad].
    tool_yaw: float
    # Joint positions over the table; they choose the branch of the kinematics [rad].
    home: tuple[float, ...]

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
class GoalConfig:
    """A signal that an episode's condition names and that stays as it is: what policies aim at."""

    # The signal, ``goal/...``.
    name: str
    # How many values.
    size: int
    # Of the values.
    unit: str = ""
    # The frame that a pose is in.
    frame: str = ""

    @property
    def signal(self) -> SignalSpec:
        """One sample per episode."""
        return SignalSpec(self.name, (self.size,), self.unit, 0.0, frame=self.frame)

    def value(self, condition: Condition) -> Components:
        """What a condition names ``[size]``, zeros if it names nothing (as in a scene)."""
        given = condition.poses.get(self.name, (0.0,) * self.size)
        if len(given) != self.size:
            raise DataError(
                f"condition '{condition.id}': '{self.name}' has {self.size} values in this cell,"
                f" got {len(given)}"
            )
        return np.array(given, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class CellConfig:
    """One workcell: driver, kinematics, how it is commanded, limits, supervisor, trackers."""

    # Name of the embodiment in episodes and trials.
    name: str
    # ``kind`` (ur, fake) and that driver's keys.
    driver: dict[str, Any]
    # Commanded over a table: its geometry. Either this, ``joints`` or ``tool``.
    table: TableConfig | None = None
    # Commanded in joint space.
    joints: JointSpace | None = None
    # Commanded by the pose of its tool, as the scenes are.
    tool: ToolSpace | None = None
    # Kinematics by name.
    arm: str = "ur5e"
    # Control rate of the agent [Hz].
    rate_hz: float = 10.0
    # Limits of every motion on the table.
    limits: PathLimits = field(default_factory=PathLimits)
    # Time limits and guided moves.
    supervisor: SupervisorConfig = field(default_factory=SupervisorConfig)
    # Distances to keep; null switches the check off.
    collision: CollisionConfig | None = field(default_factory=CollisionConfig)
    # Record force and torque at the tool (signal ``tool/wrench``), where the driver tells them.
    wrench: bool = False
    # By signal (``block/pose``, ``hole/pose``): how its object is found.
    trackers: dict[str, TrackedConfig] = field(default_factory=dict[str, TrackedConfig])
    # The gripper: signal and action ``gripper/width``; null: none.
    gripper: GripperCellConfig | None = None
    # Parameters of the task that is judged here (docs/tasks.md); {}: those of the scene that the
    # suite's data comes from.
    task_params: dict[str, Any] = field(default_factory=dict[str, Any])
    # What conditions name besides starts.
    goals: tuple[GoalConfig, ...] = ()
    # Cameras of the cell; each is a signal ``<name>/image``.
    cameras: tuple[CameraConfig, ...] = ()
    # A camera: observations show the other signals as they were when its newest picture was taken
    # (interpolated); "": the newest sample of each.
    align: str = ""
    # From a set-point to the motion [s], found by ``robolearn calibrate latency``: actions are sent
    # ahead by it, and training reads commands when they took effect.
    command_latency_s: float = 0.0
    # From the arm's measurement of itself to its arrival here [s] (with ``state_clock: device`` of
    # the fastest arrival); subtracted from the times of its signals.
    state_latency_s: float = 0.0
    # What times the arm's signals: when they arrive, or the controller's own stamps, mapped onto
    # this machine's clock (no jitter of the way here).
    state_clock: StateClock = "arrival"
    # How far the measured start of an episode may be from the one that was asked for.
    start_tolerance: StartTolerance = field(default_factory=StartTolerance)
    # How high the tool is lifted while objects are placed [m].
    lift_m: float = 0.1
    # True: this cell is a virtual lab that ``deploy --start-lab`` can start.
    lab: bool = False

    def driver_config(self) -> DriverConfig:
        """The driver's config; raises ConfigError for an unknown kind or key."""
        return make_driver_config(self.driver, DRIVERS.find, where="robot.driver")

    def __post_init__(self) -> None:
        if not (0.0 <= self.command_latency_s < 1.0 and 0.0 <= self.state_latency_s < 1.0):
            raise ConfigError(
                f"cell '{self.name}': command_latency_s and state_latency_s are in [0, 1) s, got"
                f" {self.command_latency_s}, {self.state_latency_s}"
            )
        if sum(s is not None for s in (self.table, self.joints, self.tool)) != 1:
            raise ConfigError(
                f"cell '{self.name}': expected either 'table' (tool on a table), 'joints' (joint"
                " space) or 'tool' (the tool's pose), and only one of them"
            )
        require_trackers(self.trackers)
        require_camera(self.align, [c for c in self.cameras if c.signal], key="align")
        for name, tracked in self.trackers.items():
            require_camera(tracked.camera, self.cameras, key=f"trackers.{name}.tags.camera")

    @property
    def latencies(self) -> Latencies:
        """What times and commands of this cell are corrected by, by signal."""
        motion = self.motion()
        arm = [s.name for s in motion.signals(0.0)] + [JOINT_POSITION, JOINT_VELOCITY]
        arm += [WRENCH] if self.wrench else []
        found = dict.fromkeys(arm, self.state_latency_s)
        delays = {c.stream.name: c.stream.delay_s for c in self.cameras}
        found |= {s.name: delays[c.stream.name] for c in self.cameras for s in c.specs}
        for name, tracked in self.trackers.items():
            found[name] = delays.get(tracked.camera, 0.0)
            if tracked.udp is not None:
                found[name] = tracked.udp.latency_s
        return Latencies(self.command_latency_s, found)

    @property
    def tracked_signals(self) -> tuple[SignalSpec, ...]:
        """The poses that trackers tell."""
        rates = {c.stream.name: c.stream.rate_hz for c in self.cameras}
        return tuple(t.signal(name, rates) for name, t in self.trackers.items())

    @property
    def standard_errors(self) -> dict[str, tuple[float, float]]:
        """How far off the poses of trackers may be, by signal [m, rad]; of those that say it."""
        return {
            name: (tracked.standard_error.position_m, tracked.standard_error.rotation_rad)
            for name, tracked in self.trackers.items()
            if tracked.standard_error is not None
        }

    def robot_builder(self) -> Callable[[], Robot]:
        """Picklable builder of the robot."""
        driver = self.driver_config()
        tells = isinstance(driver, WrenchConfig) and driver.tells_wrench
        if self.wrench and not tells:
            raise ConfigError(
                f"cell '{self.name}': the driver '{self.driver.get('kind')}' tells no force and"
                " torque at the tool (a UR's does); leave 'wrench' out"
            )
        return driver.build

    def connect_watch(self) -> Callable[[], ConnectWatch] | None:
        """What looks at the device while the supervisor connects, where the driver has that."""
        config = self.driver_config()
        return config.watch if isinstance(config, WatchedConfig) else None

    def recovery(self) -> Recovery:
        """What brings the device back after a stop; ConfigError where only its own panel can."""
        config = self.driver_config()
        if not isinstance(config, RecoverableConfig):
            raise ConfigError(
                f"{self.name}: the driver '{self.driver.get('kind')}' cannot bring its device back"
                " from here (a UR's can); clear the stop at the device itself"
            )
        return config.recovery()

    def follower(self) -> FollowerRecipe:
        """What decides set-points."""
        period_s = 1.0 / self.rate_hz
        if self.joints is not None:
            return JointFollowerConfig(
                self.joints, self.arm, period_s, self.collision, far_rad=self.supervisor.far_rad
            )
        if self.tool is not None:
            return self._tool_follower(self.tool)
        return self._table_follower()

    def motion(self) -> CellMotion:
        """The action, and the ways between episodes."""
        if self.joints is not None:
            return JointMotion(self.joints.limits, self.joints.home, self.rate_hz)
        if self.tool is not None:
            arm = self._tool_follower(self.tool).serial_arm()
            return ToolMotion(
                self.tool.kinematics(arm),
                self.tool.limits,
                self.tool.home,
                action=self.tool.action,
                lift_m=self.lift_m,
                rate_hz=self.rate_hz,
            )
        follower = self._table_follower()
        return TableMotion(
            follower.serial_arm(),
            follower.mapping,
            self.limits,
            lift_m=self.lift_m,
            rate_hz=self.rate_hz,
        )

    @property
    def T_base_table(self) -> Pose | None:  # noqa: N802  (a transform)
        """The frame ``table`` in the arm's base frame ``[4, 4]``; None in joint space."""
        if self.tool is not None:
            return self.tool.frame.T_base_frame
        return None if self.table is None else np.array(self.table.mapping().T_base_table)

    @property
    def rest(self) -> tuple[float, ...]:
        """Joint positions where the arm rests between episodes [rad]."""
        spaces = [s for s in (self.table, self.joints, self.tool) if s is not None]
        return spaces[0].home

    def _tool_follower(self, space: ToolSpace) -> ToolFollowerConfig:
        return ToolFollowerConfig(
            space, self.arm, 1.0 / self.rate_hz, self.collision, far_m=self.supervisor.far_m
        )

    def _table_follower(self) -> FollowerConfig:
        if self.table is None:
            raise ConfigError(f"cell '{self.name}' has neither 'table', 'joints' nor 'tool'")
        follower = FollowerConfig(
            arm=self.arm,
            mapping=self.table.mapping(),
            limits=self.limits,
            command_period_s=1.0 / self.rate_hz,
            far_m=self.supervisor.far_m,
            collision=self.collision,
        )
        wanted, fastest = self.limits.max_joint_speed, max(follower.serial_arm().max_speed)
        if wanted > fastest:
            raise ConfigError(
                f"cell '{self.name}': limits.max_joint_speed {wanted:g} rad/s is outside that of"
                f" {self.arm}, {fastest:g} rad/s; give the arm's or less"
            )
        return follower

    @property
    def address(self) -> str:
        """Network address of the controller ("" for drivers without one)."""
        return str(self.driver.get("address", ""))
