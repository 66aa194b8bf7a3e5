"""A servo answers to the id that was written into it last."""

import numpy as np
import pytest

from hardware.emulators.plant import KinematicPlant
from hardware.emulators.servos.dynamixel import DynamixelDialect
from hardware.emulators.servos.feetech import FeetechDialect
from hardware.emulators.servos.servos import PING, WRITE, ServoBus, ServoConfig


@pytest.fixture(params=[FeetechDialect, DynamixelDialect])
def bus(request):
    return ServoBus(
        KinematicPlant(np.array([0.1, 0.2])),
        request.param(),
        [ServoConfig(1, 0), ServoConfig(2, 1)],
    )


def ask(bus, servo, instruction, params=b""):
    """Ids that answered."""
    packets = bus.receive(bus.dialect.instruction(servo, instruction, params))
    at = 4 if bus.dialect.address_bytes == 2 else 2
    return [p[at] for p in packets]


def rename(bus, old, new):
    n = bus.dialect.address_bytes
    address = bus.dialect.table.id.address.to_bytes(n, "little")
    return ask(bus, old, WRITE, address + bytes([new]))


def test_a_written_id_counts_from_the_next_packet_on(bus):
    assert rename(bus, 1, 7) == [1]
    assert ask(bus, 7, PING) == [7]
    assert ask(bus, 1, PING) == []
    assert ask(bus, 2, PING) == [2]
    assert bus.ids == (7, 2)


def test_two_servos_of_one_id_both_answer(bus):
    rename(bus, 1, 2)
    assert ask(bus, 2, PING) == [2, 2]
    assert ask(bus, 1, PING) == []
