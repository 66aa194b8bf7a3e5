"""Configures the gripper of a cell: which gripper, and its limits."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from hardware.devices.driver_config import make_driver_config
from hardware.devices.gripper import Gripper
from hardware.devices.robot import Robot
from robolearn.errors import ConfigError
from robolearn.spec import ActionSpec, SignalSpec
from robolearn.table import CONFIG, Table

WIDTH = "gripper/width"
# Widths further outside the range are no rounding: whoever sends them is out of order [m].
FAR_M = 0.01


@runtime_checkable
class GripperDriverConfig(Protocol):
    """What every gripper's config can do; picklable."""

    @property
    def mounted(self) -> bool:
        """True for a gripper that the arm's own driver talks to: it connects after the arm."""
        ...

    def build(self, arm: Robot | None = None) -> Gripper:
        """Make the gripper, in the process that will own it."""
        ...


GRIPPERS = Table[type[GripperDriverConfig]](
    {
        "robotiq": "hardware.drivers.robotiq:RobotiqConfig",
        "xarm": "hardware.drivers.xarm.gripper:XArmGripperConfig",
        "servo": "hardware.drivers.serial_bus.gripper:ServoGripperConfig",
        "fake": "hardware.drivers.fakes.gripper:FakeGripperConfig",
    },
    what="gripper driver",
    group="robolearn.devices",
    kind="gripper",
    wanted=CONFIG,
)


@dataclass(frozen=True, slots=True)
class GripperCellConfig:
    """A cell's gripper: signal and action ``gripper/width`` [m]."""

    # ``kind`` (robotiq, xarm, servo, fake) and that driver's keys.
    driver: dict[str, Any]
    # Widest command [m]; at most the gripper's stroke.
    high_m: float
    # Narrowest command [m].
    low_m: float = 0.0
    # Share of the gripper's largest speed that every motion has.
    speed: float = 1.0
    # Share of the gripper's largest force that every grasp has.
    force: float = 0.5
    # States per second [Hz].
    rate_hz: float = 30.0
    # Stop (latched) when the gripper has not answered for longer than this [s].
    max_age_s: float = 0.5
    # From a width to the arrival of its state [s].
    latency_s: float = 0.0
    # Width at the start of an episode whose condition names none [m]; null: ``high_m``.
    start_m: float | None = None
    # Stop (latched) when something that was held is lost; else it is told as an event.
    stop_on_lost: bool = False
    # A reset may let go of what the gripper holds; else a person takes it out first.
    release_on_reset: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.low_m < self.high_m < math.inf:
            raise ConfigError(
                f"gripper: 0 <= low_m < high_m is needed, got {self.low_m} and {self.high_m} m"
            )
        if not (0.0 < self.speed <= 1.0 and 0.0 < self.force <= 1.0):
            raise ConfigError(
                f"gripper: speed and force are shares in (0, 1], got {self.speed}, {self.force}"
            )
        fresh = 0.0 < self.max_age_s < math.inf and 0.0 <= self.latency_s < 1.0
        if not (fresh and 1.0 <= self.rate_hz <= 200.0):
            raise ConfigError(
                "gripper: max_age_s must be positive, latency_s in [0, 1) s and rate_hz in [1, 200]"
                f" Hz, got {self.max_age_s}, {self.latency_s}, {self.rate_hz}"
            )
        if not self.low_m <= self.start <= self.high_m:
            raise ConfigError(
                f"gripper: start_m must be in [{self.low_m}, {self.high_m}], got {self.start_m}"
            )

    @property
    def start(self) -> float:
        """Width at the start of an episode [m]."""
        return self.high_m if self.start_m is None else self.start_m

    @property
    def signal(self) -> SignalSpec:
        """The measured width."""
        return SignalSpec(WIDTH, (1,), "m", self.rate_hz)

    def action(self, rate_hz: float) -> ActionSpec:
        """The commanded width."""
        low, high = (self.low_m,), (self.high_m,)
        return ActionSpec(WIDTH, (1,), "m", rate_hz, low=low, high=high, tolerance=FAR_M)

    def driver_config(self) -> GripperDriverConfig:
        """The driver's config; raises ConfigError for an unknown kind or key."""
        return make_driver_config(self.driver, GRIPPERS.find, where="robot.gripper.driver")

    def activating(self, *, allowed: bool) -> GripperCellConfig:
        """The same, allowed or not to move its fingers when it connects (a person was asked)."""
        known = {f.name for f in dataclasses.fields(cast("Any", self.driver_config()))}
        if "activate" not in known:
            return self
        return dataclasses.replace(self, driver={**self.driver, "activate": allowed})

    def build(self, arm: Robot | None = None) -> Gripper:
        """The gripper; raises ConfigError for a range beyond its stroke."""
        gripper = self.driver_config().build(arm)
        if self.high_m > gripper.stroke_m + 1e-9:
            raise ConfigError(
                f"gripper: high_m is {self.high_m:g} m, the fingers open to {gripper.stroke_m:g} m"
                " at most; lower high_m or correct the driver's stroke"
            )
        return gripper
