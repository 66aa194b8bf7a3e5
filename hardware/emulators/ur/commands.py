"""Carries out the commands of the client's uploaded script, once each, as a controller does.

Numbers and registers are those of ``ur_rtde``'s script (``rtde_control.script``): arguments in the
double registers, results in the output registers. A command that is not emulated stops the program,
as a run-time error in a script would; force mode is one of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from hardware.emulators.plant import Plant
from hardware.emulators.ur.hand import Freedrive
from hardware.emulators.ur.log import ControllerLog
from hardware.emulators.ur.motion import JointMotion
from hardware.emulators.ur.state import RobotStatus
from hardware.emulators.ur.tool import ToolSpace
from hardware.shapes import Integers, Numbers
from robolearn.errors import DataError

log = logging.getLogger(__name__)

# Commands of the script that take new values every tick (hardware reference, section 1).
REALTIME = frozenset({6, 9, 10, 11, 24, 25, 26, 27, 38, 58, 66, 67, 68, 69, 70, 71})
MOVE_J, MOVE_J_IK, MOVE_L, MOVE_L_FK, SPEED_J, SERVO_J, SERVO_L = 1, 2, 3, 4, 9, 11, 24
SET_PAYLOAD, TEACH, END_TEACH, FREEDRIVE, END_FREEDRIVE = 17, 18, 19, 52, 53
SET_TCP, GET_TCP, FORWARD, FORWARD_OF = 29, 40, 43, 44
INVERSE, INVERSE_NEAR, POSE_SAFE, JOINTS_SAFE, STEADY = 46, 30, 36, 37, 47
SPEED_STOP, SERVO_STOP, STOP_L, STOP_J = 15, 16, 33, 34
PROTECTIVE_STOP, SET_WATCHDOG, SET_TARGET_PAYLOAD, STOP_SCRIPT = 31, 35, 65, 255

_MOVES = (MOVE_J, MOVE_J_IK, MOVE_L, MOVE_L_FK)
_STOPS = (SPEED_STOP, SERVO_STOP, STOP_L, STOP_J, END_TEACH, END_FREEDRIVE)


class Commands:
    """Begins a command, and says when it is over; ``protect(why)`` and ``stop(why)`` end things."""

    def __init__(
        self,
        plant: Plant,
        motion: JointMotion,
        tool: ToolSpace,
        freedrive: Freedrive,
        status: RobotStatus,
        events: ControllerLog,
        *,
        protect: Callable[[str], None],
        stop: Callable[[str], None],
    ) -> None:
        self._plant, self._motion, self._tool = plant, motion, tool
        self._freedrive, self._status, self._log = freedrive, status, events
        self._protect, self._stop = protect, stop

    def begin(self, command: int, d: Numbers, whole: Integers) -> None:
        """``d`` and ``whole``: the input registers of numbers and of integers."""
        del whole
        try:
            self._begin(command, d)
        except DataError as error:
            # The real script ends with a run-time error of get_inverse_kin.
            self._stop(f"command {command}: {error}")

    def finished(self, command: int, whole: Integers) -> bool:
        """Whether the program is ready for the next one; an asynchronous move is at once."""
        if command in _MOVES and whole[1]:
            return True
        return self._motion.at_rest if command in (*_MOVES, *_STOPS) else True

    def not_emulated(self, command: int) -> None:
        """As a run-time error."""
        log.warning("command %d of ur_rtde is not emulated; the program stops", command)
        self._stop(f"command {command} is not emulated")

    def _begin(self, command: int, d: Numbers) -> None:
        if command in _MOVES:
            self._move(command, d)
        elif command in (SPEED_STOP, SERVO_STOP, STOP_L, STOP_J):
            self._motion.stop(float(d[0]))
        elif command in (TEACH, FREEDRIVE):
            if problem := self._freedrive.begin():
                self._stop(problem)
        elif command in (END_TEACH, END_FREEDRIVE):
            self._motion.stop(self._motion.limits.program_stop_rad_s2)
        elif command in (SET_PAYLOAD, SET_TARGET_PAYLOAD):
            self._payload(d)
        elif command == SET_WATCHDOG:
            hz = float(d[0])
            self._status.watchdog_s = 1.0 / hz if np.isfinite(hz) and hz > 0 else 0.0
            self._log.event("watchdog_set", f"{hz:g} Hz")
        elif command == PROTECTIVE_STOP:
            self._protect("triggered by the program")
        elif command == STOP_SCRIPT:
            self._stop("stopScript")
        elif not self._answered(command, d):
            self.not_emulated(command)

    def _answered(self, command: int, d: Numbers) -> bool:
        """Kinematics: results in the output registers; False for another command."""
        q, tool = self._plant.joint_positions(), self._tool
        out = self._status.double_out
        if command == SET_TCP:
            tool.tcp = d[:6].copy()
        elif command == GET_TCP:
            out[:6] = tool.tcp.tolist()
        elif command == FORWARD:
            out[:6] = tool.pose(q).tolist()
        elif command == FORWARD_OF:
            out[:6] = tool.pose_with(d[:6], d[6:12]).tolist()
        elif command in (INVERSE, INVERSE_NEAR):
            near = q if command == INVERSE else d[6:12]
            out[:6] = tool.joints(d[:6], near).tolist()
        elif command == STEADY:
            self._status.int_out[1] = int(self._motion.at_rest)
        elif command == JOINTS_SAFE:
            self._status.int_out[1] = int(not self._motion.check_position(d[:6]))
        elif command == POSE_SAFE:
            self._status.int_out[1] = int(tool.reaches(d[:6], q))
        else:
            return False
        return True

    def _move(self, command: int, d: Numbers) -> None:
        """To joints, or with the tool to a pose; straight (``moveL``) or not."""
        speed, accel, here = float(d[6]), float(d[7]), self._plant.joint_positions()
        if command in (MOVE_J, MOVE_J_IK):
            q = d[:6].copy() if command == MOVE_J else self._tool.joints(d[:6], here)
            problem = self._motion.move(q, speed, accel)
        else:
            pose = d[:6].copy() if command == MOVE_L else self._tool.pose(d[:6])
            # What a UR's tool can do, by its data sheet at most 1 m/s in normal use.
            fine = np.isfinite(pose).all() and 0.0 < speed <= 3.0 and 0.0 < accel <= 150.0
            problem = "" if fine else f"moveL with speed {speed} m/s and acceleration {accel} m/s^2"
            if fine:
                self._motion.along(self._tool.line(pose, speed, accel), accel)
        if problem:
            self._protect(problem)

    def _payload(self, d: Numbers) -> None:
        mass, cog = float(d[0]), d[1:4].tolist()
        if not (np.isfinite(d[:4]).all() and 0.0 <= mass <= self._status.max_payload_kg):
            self._protect(f"payload of {mass} kg; the arm carries {self._status.max_payload_kg} kg")
            return
        self._status.payload_kg, self._status.payload_cog = mass, cog
