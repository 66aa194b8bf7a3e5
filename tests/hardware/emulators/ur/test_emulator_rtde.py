"""RTDE frames and recipes."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.emulators.plant import KinematicPlant
from hardware.emulators.ur.motion import JointMotion, MotionLimits
from hardware.emulators.ur.state import RobotStatus, pack_state, state_values
from hardware.emulators.ur.tool import ToolSpace
from hardware.wire import rtde
from robolearn.arms.models import UR5E
from robolearn.errors import DataError


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=300)), max_size=8), st.data())
def test_frames_survive_any_fragmentation(messages, data):
    stream = b"".join(rtde.frame(kind, body) for kind, body in messages)
    inbox, out = bytearray(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        inbox += stream[:cut]
        stream = stream[cut:]
        while (item := rtde.take_frame(inbox)) is not None:
            out.append(item)
    assert out == messages
    assert not inbox


def test_a_size_below_the_header_is_refused():
    with pytest.raises(DataError, match="size 2"):
        rtde.take_frame(bytearray(b"\x00\x02U"))


def test_recipe_with_trailing_comma():
    recipe = rtde.parse_recipe(b"timestamp,actual_q,output_int_register_0,")
    assert recipe.types == ("DOUBLE", "VECTOR6D", "INT32")
    assert recipe.layout.size == 8 + 48 + 4
    assert recipe.registers == (("output_int_register_", 0, 7),)
    assert recipe.complete


def test_unknown_names_are_not_found():
    recipe = rtde.parse_recipe(b"timestamp,actual_qq,input_int_register_999")
    assert recipe.types == ("DOUBLE", "NOT_FOUND", "NOT_FOUND")
    assert not recipe.complete


def test_state_packs_every_known_variable():
    plant = KinematicPlant(np.arange(6.0))
    status = RobotStatus(program=True)
    status.int_out[3], status.double_out[47] = 2, 0.5
    motion = JointMotion(np.arange(6.0), MotionLimits())
    values = state_values(plant, motion, status, 1.5, np.zeros(3), ToolSpace(UR5E))
    names = [n for n in rtde.TYPES if not n.startswith("input")]
    # Of more registers than a program has, too: the controller tells 0 of the others.
    registers = [
        f"output_{r}" for r in ("double_register_47", "int_register_127", "int_register_3")
    ]
    recipe = rtde.parse_recipe(",".join([*names, *registers]).encode())
    body = pack_state(7, recipe, values)
    assert body[0] == 7
    assert len(body) == 1 + recipe.layout.size
    assert struct.unpack(">dii", body[-16:]) == (0.5, 0, 2)
    at = 1 + sum(
        struct.calcsize(">" + rtde._FORMATS[t]) for t in recipe.types[: names.index("actual_q")]
    )
    assert struct.unpack(">6d", body[at : at + 48]) == (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
