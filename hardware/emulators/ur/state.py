"""Tells the controller's state as RTDE variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hardware.emulators.plant import Plant
from hardware.emulators.ur.motion import JointMotion
from hardware.emulators.ur.tool import ToolSpace
from hardware.wire import rtde
from robolearn.geometry import Vector

# Values of a healthy arm (RTDE guide): RUNNING, NORMAL.
ROBOT_MODE_POWER_OFF, ROBOT_MODE_IDLE, ROBOT_MODE_RUNNING = 3, 5, 7
SAFETY_NORMAL, SAFETY_PROTECTIVE, SAFETY_EMERGENCY = 1, 3, 7
RUNTIME_STOPPED, RUNTIME_PLAYING, RUNTIME_PAUSED = 1, 2, 4
JOINT_MODE_RUNNING = 253
_SAFETY_BITS_NORMAL = 1 << 0
_SAFETY_BITS_PROTECTIVE = (1 << 2) | (1 << 10)


@dataclass(slots=True)
class RobotStatus:
    """Program and safety state, and the output registers of the running script."""

    program: bool = False
    paused: bool = False
    overload_a: float = 0.0
    clock_ahead_s: float = 0.0
    protective: bool = False
    emergency: bool = False
    powered: bool = True
    # The motors have power; their brakes are open.
    released: bool = True
    # The program stops when its inputs are silent for so long [s]; 0: never.
    watchdog_s: float = 0.0
    payload_kg: float = 0.0
    payload_cog: list[float] = field(default_factory=lambda: [0.0] * 3)
    # Of a UR5e, by its data sheet.
    max_payload_kg: float = 5.0
    int_out: list[int] = field(default_factory=lambda: [0] * 48)
    double_out: list[float] = field(default_factory=lambda: [0.0] * 48)

    @property
    def robot_mode(self) -> int:
        """RTDE ``robot_mode``."""
        if not self.powered:
            return ROBOT_MODE_POWER_OFF
        return ROBOT_MODE_RUNNING if self.released else ROBOT_MODE_IDLE

    @property
    def power_word(self) -> str:
        """The same for the dashboard."""
        words = {ROBOT_MODE_POWER_OFF: "POWER_OFF", ROBOT_MODE_IDLE: "IDLE"}
        return words.get(self.robot_mode, "RUNNING")

    @property
    def safety_word(self) -> str:
        """The safety mode for the dashboard."""
        if self.emergency:
            return "ROBOT_EMERGENCY_STOP"
        return "PROTECTIVE_STOP" if self.protective else "NORMAL"

    @property
    def runtime_state(self) -> int:
        """RTDE ``runtime_state``."""
        if not self.program:
            return RUNTIME_STOPPED
        return RUNTIME_PAUSED if self.paused else RUNTIME_PLAYING


def state_values(
    plant: Plant,
    motion: JointMotion,
    status: RobotStatus,
    time_s: float,
    hand: Vector,
    tool: ToolSpace,
) -> dict[str, Sequence[Any]]:
    """RTDE variables by name, each a sequence (scalars have length 1); the rest pack as zero.

    ``hand [3]``: force of a hand at the tool [N].
    """
    torque = plant.joint_torques().tolist()
    # By the controller's own kinematics from the encoders, but for a plant that knows the tip of
    # its tool, which is the installation's TCP until a program sets another.
    told = plant.tool_pose()
    own = tool.tcp.any() or not told.any()
    tcp = (tool.pose(plant.joint_positions()) if own else told).tolist()
    # The emulator has no motor constants: currents are torques over 10 N m/A, of the right size.
    current = [t / 10.0 + status.overload_a for t in torque]
    safety_bits = _SAFETY_BITS_PROTECTIVE if status.protective else _SAFETY_BITS_NORMAL
    return {
        "timestamp": (time_s + status.clock_ahead_s,),
        "target_q": motion.q.tolist(),
        "target_qd": motion.qd.tolist(),
        "target_moment": torque,
        "target_current": current,
        "actual_q": plant.joint_positions().tolist(),
        "actual_qd": plant.joint_velocities().tolist(),
        "actual_current": current,
        "actual_current_as_torque": torque,
        "joint_control_output": current,
        "actual_TCP_pose": tcp,
        "target_TCP_pose": (tool.pose(motion.q) if own else told).tolist(),
        "tcp_offset": tool.tcp.tolist(),
        "payload": (status.payload_kg,),
        "payload_cog": status.payload_cog,
        "actual_TCP_force": [*(plant.tool_force() + hand).tolist(), 0.0, 0.0, 0.0],
        "joint_temperatures": (30.0,) * 6,
        "joint_mode": (JOINT_MODE_RUNNING,) * 6,
        "robot_mode": (status.robot_mode,),
        "safety_mode": (_safety_mode(status),),
        "runtime_state": (status.runtime_state,),
        "robot_status_bits": (int(status.powered) + 2 * int(status.program),),
        "safety_status_bits": (safety_bits,),
        "speed_scaling": (1.0,),
        "target_speed_fraction": (1.0,),
        "speed_slider_fraction": (1.0,),
        "actual_main_voltage": (48.0,),
        "actual_robot_voltage": (48.0,),
        "actual_joint_voltage": (48.0,) * 6,
        "output_int_register_": status.int_out,
        "output_double_register_": status.double_out,
    }


def _safety_mode(status: RobotStatus) -> int:
    if status.emergency:
        return SAFETY_EMERGENCY
    return SAFETY_PROTECTIVE if status.protective else SAFETY_NORMAL


def pack_state(recipe_id: int, recipe: rtde.Recipe, values: Mapping[str, Sequence[Any]]) -> bytes:
    """Body of a data package for ``recipe``."""
    flat: list[Any] = []
    for name, count in zip(recipe.names, recipe.counts, strict=True):
        flat.extend(values.get(name) or (0,) * count)
    for kind, number, at in recipe.registers:
        told = values.get(kind, ())
        if number < len(told):
            flat[at] = told[number]
    return bytes([recipe_id]) + recipe.layout.pack(*flat)
