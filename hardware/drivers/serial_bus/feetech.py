"""Speaks to Feetech STS servos (SO-100, SO-101) by the manufacturer's ``feetech-servo-sdk``.

The servos have no watchdog: a silent line leaves them at their last goal, with torque. The SDK
keeps the byte order in a global of its module, so STS and SCS servos cannot mix in one process;
this driver decodes by itself and is not affected.
"""

from __future__ import annotations

from dataclasses import dataclass

from hardware.drivers.serial_bus.robot import BusConfig, BusRobot
from hardware.drivers.serial_bus.sdk import SdkLine, import_sdk, open_port
from hardware.wire.servo_registers import FEETECH_STS

_LITTLE_ENDIAN = 0


@dataclass(frozen=True, slots=True)
class FeetechConfig(BusConfig):
    """An arm of STS servos."""

    def build(self) -> BusRobot:
        """Make the robot (in the process that will own it)."""
        return BusRobot(self, self.line, has_watchdog=False)

    def line(self, ids: list[int]) -> SdkLine:
        """Open the port."""
        sdk = import_sdk("scservo_sdk", "feetech-servo-sdk", "feetech")
        port = open_port(sdk.PortHandler, self.port, self.baud, self.reply_slack_s)
        return SdkLine(FEETECH_STS, sdk.PacketHandler(_LITTLE_ENDIAN), port, ids)
