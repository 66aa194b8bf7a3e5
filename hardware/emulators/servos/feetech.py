"""Speaks Feetech STS's format: ``FF FF | id | length | instruction | params | checksum``.

``length`` counts params + 2; the checksum is ``~sum(id .. params) & 0xFF``. A status packet has
an error byte in place of the instruction.
"""

from __future__ import annotations

from hardware.emulators.servos.servos import Packet
from hardware.wire.servo_registers import FEETECH_STS

_HEADER = b"\xff\xff"


class FeetechDialect:
    """Protocol of the STS series (little-endian, as ``PacketHandler(0)`` speaks it)."""

    table = FEETECH_STS
    address_bytes = 1
    locked_eeprom = False

    def take(self, inbox: bytearray) -> Packet | None:
        """Remove and return the first complete packet; what is no packet is dropped."""
        while True:
            start = inbox.find(_HEADER)
            if start < 0:
                del inbox[: -1 if inbox.endswith(b"\xff") else len(inbox)]
                return None
            del inbox[:start]
            if len(inbox) < 4:
                return None
            servo, length = inbox[2], inbox[3]
            # Three FF in a row: the header starts one byte later.
            if servo == 0xFF or length < 2:
                del inbox[0]
                continue
            if len(inbox) < length + 4:
                return None
            if ~sum(inbox[2 : length + 3]) & 0xFF != inbox[length + 3]:
                del inbox[0]
                continue
            packet = Packet(servo, inbox[4], bytes(inbox[5 : length + 3]))
            del inbox[: length + 4]
            return packet

    def instruction(self, servo: int, instruction: int, params: bytes) -> bytes:
        """A packet to a servo."""
        body = bytes([servo, len(params) + 2, instruction]) + params
        return _HEADER + body + bytes([~sum(body) & 0xFF])

    def status(self, servo: int, error: int, params: bytes) -> bytes:
        """A packet from a servo."""
        return self.instruction(servo, error, params)

    def pinged(self, model: int) -> bytes:  # noqa: ARG002  (this protocol tells nothing)
        """Parameters of the answer to a ping."""
        return b""
