"""Speaks the RTDE wire format (protocol version 2): frames, recipes, variable types.

Big-endian frames ``u16 size (header included) | u8 type | body``. Source: Universal Robots,
"Real-Time Data Exchange (RTDE) Guide".
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Collection
from dataclasses import dataclass

from robolearn.errors import DataError

VERSION, CONTROLLER, TEXT = ord("V"), ord("v"), ord("M")
OUTPUTS, INPUTS, START, PAUSE, DATA = ord("O"), ord("I"), ord("S"), ord("P"), ord("U")

_HEADER = struct.Struct(">HB")
_FORMATS = {
    "DOUBLE": "d",
    "VECTOR6D": "6d",
    "VECTOR3D": "3d",
    "UINT64": "Q",
    "INT32": "i",
    "UINT32": "I",
    "UINT8": "B",
    "BOOL": "?",
    "VECTOR6INT32": "6i",
}
_VECTOR6D = (
    "target_q target_qd target_qdd target_current target_moment actual_q actual_qd actual_qdd"
    " actual_current actual_current_as_torque joint_control_output actual_TCP_pose"
    " actual_TCP_speed actual_TCP_force target_TCP_pose target_TCP_speed joint_temperatures"
    " actual_joint_voltage ft_raw_wrench payload_inertia tcp_offset external_force_torque"
)
_OTHER = {
    "INT32": "robot_mode safety_mode",
    "UINT32": "runtime_state robot_status_bits safety_status_bits",
    "UINT64": "actual_digital_input_bits actual_digital_output_bits",
    "VECTOR6INT32": "joint_mode",
    "VECTOR3D": "actual_tool_accelerometer payload_cog elbow_position elbow_velocity",
    "DOUBLE": "timestamp actual_execution_time speed_scaling target_speed_fraction actual_momentum"
    " actual_main_voltage actual_robot_voltage actual_robot_current standard_analog_input0"
    " standard_analog_input1 standard_analog_output0 standard_analog_output1 payload"
    " tcp_force_scalar speed_slider_fraction standard_analog_output_0 standard_analog_output_1",
    "UINT8": "standard_digital_output_mask configurable_digital_output_mask"
    " standard_digital_output configurable_digital_output standard_analog_output_mask"
    " standard_analog_output_type tool_digital_output_mask tool_digital_output",
}
TYPES: dict[str, str] = dict.fromkeys(_VECTOR6D.split(), "VECTOR6D")
for _kind, _names in _OTHER.items():
    TYPES |= dict.fromkeys(_names.split(), _kind)
TYPES["speed_slider_mask"] = "UINT32"
_REGISTER = re.compile(r"(input|output)_(int|double|bit)_register_(\d{1,3})")
_REGISTER_TYPES = {"int": "INT32", "double": "DOUBLE", "bit": "BOOL"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Variables of a data package: names, types, scalars per variable, packed layout, and which of
    the scalars are registers: what they are called up to the number (``output_int_register_``),
    number, place.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    counts: tuple[int, ...]
    layout: struct.Struct
    registers: tuple[tuple[str, int, int], ...]

    @property
    def complete(self) -> bool:
        """False when a name is unknown, or an input has another writer already; the controller then
        refuses the recipe (id 0).
        """
        return not {"NOT_FOUND", "IN_USE"} & set(self.types)

    def refused(self, taken: Collection[str]) -> Recipe:
        """The recipe of a client that asks for inputs which others write (their names)."""
        types = ("IN_USE" if n in taken else t for n, t in zip(self.names, self.types, strict=True))
        return dataclasses.replace(self, types=tuple(types))


def variable_type(name: str) -> str:
    """RTDE type of a variable, ``NOT_FOUND`` for an unknown one (the controller's own answer)."""
    match = _REGISTER.fullmatch(name)
    if match:
        return _REGISTER_TYPES[match[2]] if int(match[3]) < 128 else "NOT_FOUND"
    return TYPES.get(name, "NOT_FOUND")


def parse_recipe(text: bytes) -> Recipe:
    """A comma-separated list of names (a trailing comma is common)."""
    names = tuple(n for n in text.decode("ascii", "replace").strip("\0").split(",") if n)
    if len(names) > 256:
        raise DataError(f"a recipe of {len(names)} variables; 256 is the most")
    types = tuple(variable_type(n) for n in names)
    formats = [_FORMATS.get(t, "") for t in types]
    counts = tuple(int(f[0]) if f[:1].isdigit() else 1 for f in formats)
    found = [(_REGISTER.fullmatch(n), sum(counts[:k])) for k, n in enumerate(names)]
    registers = tuple((m[0][: m.start(3)], int(m[3]), at) for m, at in found if m)
    return Recipe(names, types, counts, struct.Struct(">" + "".join(formats)), registers)


def frame(kind: int, body: bytes) -> bytes:
    """One frame. Raises :class:`DataError` for a body beyond 16 bit."""
    if len(body) > 65532:
        raise DataError(f"RTDE body of {len(body)} bytes; 65532 is the most")
    return _HEADER.pack(3 + len(body), kind) + body


def take_frame(inbox: bytearray) -> tuple[int, bytes] | None:
    """Remove the first whole frame of ``inbox``: (type, body), None when incomplete.

    Raises :class:`DataError` when the bytes cannot be a frame.
    """
    if len(inbox) < 3:
        return None
    size, kind = _HEADER.unpack_from(inbox)
    if size < 3:
        raise DataError(f"RTDE frame of size {size}; the header alone has 3 bytes")
    if len(inbox) < size:
        return None
    body = bytes(inbox[3:size])
    del inbox[:size]
    return kind, body
