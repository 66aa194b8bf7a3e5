"""Speaks to Dynamixel X servos (Koch, ViperX class) by the manufacturer's ``dynamixel-sdk``.

Protocol 2.0. The servos' bus watchdog is armed at every connect: when the line is silent for
``watchdog_s`` they hold still and refuse goals until the operator connects again.
"""

from __future__ import annotations

from dataclasses import dataclass

from hardware.drivers.serial_bus.robot import BusConfig, BusRobot
from hardware.drivers.serial_bus.sdk import SdkLine, import_sdk, open_port
from hardware.wire.servo_registers import DYNAMIXEL_X

_PROTOCOL = 2.0


@dataclass(frozen=True, slots=True)
class DynamixelConfig(BusConfig):
    """An arm of X-series servos."""

    def build(self) -> BusRobot:
        """Make the robot (in the process that will own it)."""
        return BusRobot(self, self.line, has_watchdog=True)

    def line(self, ids: list[int]) -> SdkLine:
        """Open the port."""
        sdk = import_sdk("dynamixel_sdk", "dynamixel-sdk", "dynamixel")
        port = open_port(sdk.PortHandler, self.port, self.baud, self.reply_slack_s)
        return SdkLine(DYNAMIXEL_X, sdk.PacketHandler(_PROTOCOL), port, ids)
