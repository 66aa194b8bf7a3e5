"""Lists the control tables of the serial servos, the part that drivers and emulators use.

Feetech STS3215: the manufacturer's memory table "STS3215 control table" (little-endian, signed
values as sign and magnitude). Dynamixel X (XL330, XL430, XM430): e-manual of ROBOTIS, "Control
Table" of these models, Protocol 2.0 (little-endian, two's complement).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from robolearn.errors import DataError


@dataclass(frozen=True, slots=True)
class Register:
    """Address and size [bytes]. ``sign_bit``: sign and magnitude with this bit as the sign;
    ``signed``: two's complement; neither: unsigned.
    """

    address: int
    size: int
    sign_bit: int | None = None
    signed: bool = False

    def decode(self, data: bytes) -> int:
        """The value of ``size`` bytes."""
        if len(data) != self.size:
            raise DataError(f"register {self.address} has {self.size} bytes, got {len(data)}")
        value = int.from_bytes(data, "little", signed=self.signed)
        if self.sign_bit is not None and value >> self.sign_bit & 1:
            return -(value & ((1 << self.sign_bit) - 1))
        return value

    def encode(self, value: int) -> bytes:
        """The bytes of a value. Raises DataError when it does not fit."""
        if self.sign_bit is not None:
            if abs(value) >= 1 << self.sign_bit:
                raise DataError(f"{value} does not fit into register {self.address}")
            value = -value | 1 << self.sign_bit if value < 0 else value
        try:
            return value.to_bytes(self.size, "little", signed=self.signed)
        except OverflowError as error:
            raise DataError(f"{value} does not fit into register {self.address}") from error


@dataclass(frozen=True, slots=True)
class ServoTable:
    """Where a family of servos keeps what matters, and the units of its numbers.

    ``state_*`` are read together in one sync read, ``health_*`` from one servo at a time.
    """

    family: str
    model_number: Register
    id: Register
    models: Mapping[int, str]
    homing_offset: Register
    # Present position = counts of the encoder + ``offset_sign`` x homing offset.
    offset_sign: int
    # Pause before an answer, 2 us per count; 250 when new, which costs 0.5 ms per servo.
    return_delay: Register
    low_limit: Register
    high_limit: Register
    torque_enable: Register
    torque_limit: Register
    full_torque: int
    goal_position: Register
    present_velocity: Register
    present_position: Register
    load: Register
    full_load: int
    rad_s_per_count: float
    state_address: int
    state_size: int
    health_address: int
    health_size: int
    # Bits of a status packet's error byte that mean a fault of the servo.
    errors: Mapping[int, str]
    eeprom_lock: Register | None = None
    watchdog: Register | None = None
    watchdog_unit_s: float = 0.02
    hardware_error: Register | None = None
    acceleration: Register | None = None
    max_speed_rad_s: float = 4.71
    # Size of the control table [bytes].
    space: int = 256


COUNTS_PER_TURN = 4096
MIDDLE = 2048
TURN_RAD = 6.283185307179586

FEETECH_STS = ServoTable(
    family="Feetech STS",
    model_number=Register(3, 2),
    id=Register(5, 1),
    models={777: "STS3215", 2825: "STS3250"},
    homing_offset=Register(31, 2, sign_bit=11),
    offset_sign=-1,
    return_delay=Register(7, 1),
    low_limit=Register(9, 2),
    high_limit=Register(11, 2),
    torque_enable=Register(40, 1),
    torque_limit=Register(48, 2),
    full_torque=1000,
    goal_position=Register(42, 2, sign_bit=15),
    present_velocity=Register(58, 2, sign_bit=15),
    present_position=Register(56, 2, sign_bit=15),
    load=Register(60, 2, sign_bit=10),
    full_load=1000,
    rad_s_per_count=TURN_RAD / COUNTS_PER_TURN,
    state_address=56,
    state_size=6,
    health_address=40,
    health_size=1,
    errors={
        1: "input voltage",
        2: "angle sensor",
        4: "overheating",
        8: "overcurrent",
        32: "overload",
    },
    eeprom_lock=Register(55, 1),
    acceleration=Register(41, 1),
)

DYNAMIXEL_X = ServoTable(
    family="Dynamixel X",
    model_number=Register(0, 2),
    id=Register(7, 1),
    models={1020: "XM430-W350", 1060: "XL430-W250", 1190: "XL330-M077", 1200: "XL330-M288"},
    homing_offset=Register(20, 4, signed=True),
    offset_sign=1,
    return_delay=Register(9, 1),
    low_limit=Register(52, 4),
    high_limit=Register(48, 4),
    torque_enable=Register(64, 1),
    # In position mode the goal PWM is the limit of the motor's voltage.
    torque_limit=Register(100, 2, signed=True),
    full_torque=885,
    goal_position=Register(116, 4, signed=True),
    present_velocity=Register(128, 4, signed=True),
    present_position=Register(132, 4, signed=True),
    load=Register(124, 2, signed=True),
    full_load=885,
    rad_s_per_count=0.229 * TURN_RAD / 60.0,
    state_address=124,
    state_size=12,
    health_address=64,
    health_size=35,
    errors={128: "hardware error"},
    watchdog=Register(98, 1, signed=True),
    hardware_error=Register(70, 1),
    max_speed_rad_s=6.4,
    space=1024,
)
# Bits of ``hardware_error``.
HARDWARE_ERRORS: Mapping[int, str] = {
    1: "input voltage",
    4: "overheating",
    8: "motor encoder",
    16: "electrical shock",
    32: "overload",
}


def named_bits(value: int, names: Mapping[int, str]) -> str:
    """``"overload, overheating"`` of a value's bits ("" for none that is known)."""
    return ", ".join(name for bit, name in names.items() if value & bit)
