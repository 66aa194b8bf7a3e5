"""Speaks the wire format of Dynamixel Protocol 2.0 (ROBOTIS e-manual, "DYNAMIXEL Protocol 2.0").

``FF FF FD 00 | id | length u16 | instruction | params | crc16``, little-endian; ``length`` counts
instruction, params and crc. Inside the body an FD is inserted after each ``FF FF FD``.
"""

from __future__ import annotations

import re

from hardware.emulators.servos.servos import Packet
from hardware.wire.servo_registers import DYNAMIXEL_X

_HEADER = b"\xff\xff\xfd\x00"
_STATUS = 0x55
LENGTH_LIMIT = 1024


def crc16(data: bytes) -> int:
    """CRC-16 with polynomial 0x8005, initial value 0, most significant bit first."""
    crc = 0
    for byte in data:
        crc = (crc << 8 & 0xFFFF) ^ _CRC[crc >> 8 ^ byte]
    return crc


def _crc_of_byte(value: int) -> int:
    crc = value << 8
    for _ in range(8):
        crc = (crc << 1 ^ 0x8005 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


_CRC = tuple(_crc_of_byte(i) for i in range(256))


class DynamixelDialect:
    """Protocol 2.0 of the X series; the EEPROM is locked while the torque is on."""

    table = DYNAMIXEL_X
    address_bytes = 2
    locked_eeprom = True

    def take(self, inbox: bytearray) -> Packet | None:
        """Remove and return the first complete packet; what is no packet is dropped."""
        while True:
            start = inbox.find(_HEADER)
            if start < 0:
                del inbox[: max(0, len(inbox) - len(_HEADER) + 1)]
                return None
            del inbox[:start]
            if len(inbox) < 7:
                return None
            length = int.from_bytes(inbox[5:7], "little")
            if not 3 <= length <= LENGTH_LIMIT or inbox[4] == 0xFF:
                del inbox[0]
                continue
            if len(inbox) < length + 7:
                return None
            frame = bytes(inbox[: length + 7])
            if crc16(frame[:-2]) != int.from_bytes(frame[-2:], "little"):
                del inbox[0]
                continue
            del inbox[: length + 7]
            body = frame[7:-2].replace(b"\xff\xff\xfd\xfd", b"\xff\xff\xfd")
            return Packet(frame[4], body[0], body[1:])

    def instruction(self, servo: int, instruction: int, params: bytes) -> bytes:
        """A packet to a servo."""
        body = re.sub(rb"\xff\xff\xfd", b"\xff\xff\xfd\xfd", bytes([instruction]) + params)
        frame = _HEADER + bytes([servo]) + (len(body) + 2).to_bytes(2, "little") + body
        return frame + crc16(frame).to_bytes(2, "little")

    def status(self, servo: int, error: int, params: bytes) -> bytes:
        """A packet from a servo."""
        return self.instruction(servo, _STATUS, bytes([error]) + params)

    def pinged(self, model: int) -> bytes:
        """Parameters of the answer to a ping: model number and firmware."""
        return model.to_bytes(2, "little") + bytes([46])
