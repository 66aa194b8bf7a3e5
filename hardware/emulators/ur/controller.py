"""Emulates a Universal Robots controller: RTDE 30004, dashboard 29999, scripts 30003.

Enough for the unmodified ``ur_rtde``: connect, read, servoJ, speedJ, moveJ, moveL, kinematics, TCP,
payload, stops, watchdog, protective stop, reconnect; one client that writes. What the arm does
comes from :class:`~hardware.emulators.ur.motion.JointMotion` and the
:class:`~hardware.emulators.plant.Plant`; what arrived is kept in a
:class:`~hardware.emulators.ur.log.ControllerLog`, the emulator's side of every safety test.

Behaviour follows the vendor's RTDE and dashboard guides and the script that the client uploads.
A command that is not emulated stops the program, as a run-time error in a script would.
"""

from __future__ import annotations

import logging
import re
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hardware.emulators.loop import Connection, EmulatorLoop
from hardware.emulators.plant import Plant
from hardware.emulators.ur.commands import (
    MOVE_J,
    REALTIME,
    SERVO_J,
    SERVO_L,
    SPEED_J,
    Commands,
)
from hardware.emulators.ur.config import UrEmulatorConfig
from hardware.emulators.ur.dashboard import Dashboard
from hardware.emulators.ur.hand import Freedrive, Hand
from hardware.emulators.ur.log import ControllerLog
from hardware.emulators.ur.motion import JointMotion
from hardware.emulators.ur.state import RobotStatus, pack_state, state_values
from hardware.emulators.ur.tool import ToolSpace
from hardware.shapes import Numbers
from hardware.wire import rtde
from robolearn.arms.models import UR5E
from robolearn.arms.shapes import Joints
from robolearn.errors import DataError

log = logging.getLogger(__name__)

RTDE_PORT, DASHBOARD_PORT, SCRIPT_PORT = 30004, 29999, 30003
REGISTERS = 128
SCRIPT_LIMIT = 1 << 20
LINE_LIMIT = 4096
_PROGRAM_END = re.compile(rb"^end\s*$", re.MULTILINE)


@dataclass(slots=True)
class _RtdeClient:
    connection: Connection
    inputs: list[rtde.Recipe] = field(default_factory=list[rtde.Recipe])
    outputs: rtde.Recipe | None = None
    output_id: int = 0
    every: int = 1
    streaming: bool = False
    recipes: int = 0


class UrEmulator:
    """Controller and servers of one arm on one address (the ports are fixed by the client).

    Use :meth:`serve` once, then :meth:`control` before and :meth:`publish` after every step of the
    plant.
    """

    def __init__(self, plant: Plant, config: UrEmulatorConfig) -> None:
        self.config = config
        self.status = RobotStatus()
        self.motion = JointMotion(plant.joint_positions(), config.limits)
        self.log = ControllerLog(plant.joint_positions().size)
        self.int_in = np.zeros(REGISTERS, dtype=np.int64)
        self.double_in = np.zeros(REGISTERS)
        self._delay_ns = 0
        self._plant = plant
        self._dt_s = 1.0 / config.rate_hz
        self._ticks = 0
        self._clients: list[_RtdeClient] = []
        self._others: list[Connection] = []
        self._delayed: deque[tuple[int, Connection, bytes]] = deque()
        self._last_input_ns = self._last_input_tick = 0
        self._last_setpoint_tick = 0
        self._new_input = False
        # Set-points of servoJ since the last tick: registers 0 to 10 of each.
        self._setpoints: deque[tuple[int, Joints]] = deque(maxlen=256)
        self._last_setpoint_ns = 0
        self._executing = 0
        self._stopped_ns = 0
        self._quiet_ns: deque[int] = deque(maxlen=10)
        self._hung_until_ns = 0
        self._tool, self.hand = ToolSpace(UR5E), Hand(UR5E)
        self._freedrive = Freedrive(plant, self.motion, self.hand, self._dt_s)
        self._commands = Commands(
            *(plant, self.motion, self._tool, self._freedrive, self.status, self.log),
            protect=self.protective_stop,
            stop=self._stop_program,
        )
        self.dashboard = Dashboard(
            *(self.status, config.told, config.brake_release_s),
            stop=self._stop_program,
            unlock=self.unlock,
            start=self._start_program,
        )

    # -- servers ---------------------------------------------------------------------------------

    def serve(self, loop: EmulatorLoop, address: str) -> None:
        """Listen on the three ports; raises RobotConnectionError when one is taken."""
        self._loop = loop
        loop.listen(address, RTDE_PORT, self._accept_rtde, "RTDE")
        loop.listen(address, DASHBOARD_PORT, self._accept_dashboard, "dashboard server")
        loop.listen(address, SCRIPT_PORT, self._accept_script, "script server")

    def drop_links(self) -> int:
        """Fault: close every connection; returns how many."""
        connections = self._connections()
        for connection in connections:
            connection.close()
        self._sweep()
        return len(connections)

    def hang(self, seconds: float) -> None:
        """Fault: for so long nothing is read or sent; the arm and its watchdog go on."""
        self._hung_until_ns = time.monotonic_ns() + round(seconds * 1e9)
        for connection in self._connections():
            connection.pause()

    def _wake(self) -> None:
        self._hung_until_ns = 0
        self.log.event("resumed", "")
        for connection in self._connections():
            connection.resume()

    def _connections(self) -> list[Connection]:
        return [c.connection for c in self._clients] + self._others

    def send_garbage(self, data: bytes) -> None:
        """Fault: raw bytes into every RTDE stream."""
        for client in self._clients:
            client.connection.send(data)

    def delay(self, seconds: float) -> None:
        """Fault: state packages leave this much later."""
        self._delay_ns = round(seconds * 1e9)

    def overload(self, current_a: float) -> None:
        """Fault: every motor draws this much more [A]; 0 ends it."""
        self.status.overload_a = current_a

    def _sweep(self) -> None:
        self._clients = [c for c in self._clients if c.connection.open]
        self._others = [c for c in self._others if c.open]

    def _admit(
        self, sock: socket.socket, on_bytes: Callable[[Connection, bytes], None]
    ) -> Connection | None:
        self._sweep()
        if len(self._clients) + len(self._others) >= 3 * self.config.max_clients:
            log.warning("refused a client: %d are connected", len(self._clients))
            sock.close()
            return None
        connection = Connection(self._loop, sock, on_bytes)
        if time.monotonic_ns() < self._hung_until_ns:
            connection.pause()
        return connection

    def _accept_rtde(self, sock: socket.socket) -> None:
        def on_bytes(connection: Connection, data: bytes) -> None:
            connection.inbox += data
            try:
                while connection.open:
                    item = rtde.take_frame(connection.inbox)
                    if item is None:
                        return
                    self._rtde_message(client, *item)
            except (DataError, struct.error, UnicodeError) as error:
                # The controller drops a client that does not speak the protocol.
                self.log.event("bad_client", str(error))
                connection.close()

        connection = self._admit(sock, on_bytes)
        if connection is not None:
            client = _RtdeClient(connection)
            self._clients.append(client)

    def _accept_dashboard(self, sock: socket.socket) -> None:
        def on_bytes(connection: Connection, data: bytes) -> None:
            *lines, rest = (connection.inbox + data).split(b"\n")
            connection.inbox = rest
            replies = [
                self.dashboard.answer(line.decode("utf-8", "replace").strip()) for line in lines
            ]
            if replies:
                connection.send(("\n".join(replies) + "\n").encode())
            if "Disconnected" in replies or len(rest) > LINE_LIMIT:
                connection.close()

        connection = self._admit(sock, on_bytes)
        if connection is not None:
            self._others.append(connection)
            connection.send(b"Connected: Universal Robots Dashboard Server\n")

    def _accept_script(self, sock: socket.socket) -> None:
        def on_bytes(connection: Connection, data: bytes) -> None:
            connection.inbox += data
            if b"def " in connection.inbox[:64]:
                if _PROGRAM_END.search(connection.inbox, max(0, len(connection.inbox) - 128)):
                    connection.inbox.clear()
                    self._start_program()
            elif b"\n" in connection.inbox:
                connection.inbox.clear()
                self._stop_program("a one-line script replaced it")
            if len(connection.inbox) > SCRIPT_LIMIT:
                self.log.event("bad_client", f"a script beyond {SCRIPT_LIMIT} bytes")
                connection.close()

        connection = self._admit(sock, on_bytes)
        if connection is not None:
            self._others.append(connection)

    # -- RTDE ------------------------------------------------------------------------------------

    def _rtde_message(self, client: _RtdeClient, kind: int, body: bytes) -> None:
        send = client.connection.send
        if kind == rtde.DATA:
            self._input(client, body)
        elif kind == rtde.VERSION:
            send(rtde.frame(kind, bytes([struct.unpack(">H", body) in ((1,), (2,))])))
        elif kind == rtde.CONTROLLER:
            send(rtde.frame(kind, struct.pack(">4I", *self.config.version)))
        elif kind == rtde.OUTPUTS:
            (rate,) = struct.unpack_from(">d", body)
            recipe = rtde.parse_recipe(body[8:])
            ok = recipe.complete and 0 < rate <= self.config.rate_hz and bool(recipe.names)
            client.recipes += 1
            client.output_id = client.recipes & 0xFF
            client.outputs = recipe if ok else None
            client.every = max(1, round(self.config.rate_hz / rate)) if ok else 1
            send(rtde.frame(kind, _recipe_reply(client.output_id if ok else 0, recipe)))
        elif kind == rtde.INPUTS:
            recipe = self._claimed(client, rtde.parse_recipe(body))
            ok = recipe.complete and len(client.inputs) < 255
            if ok:
                client.inputs.append(recipe)
            send(rtde.frame(kind, _recipe_reply(len(client.inputs) if ok else 0, recipe)))
        elif kind in (rtde.START, rtde.PAUSE):
            ok = kind == rtde.PAUSE or client.outputs is not None
            client.streaming = kind == rtde.START and ok
            send(rtde.frame(kind, bytes([ok])))
        # Anything else is ignored, as the controller does.

    def _claimed(self, client: _RtdeClient, recipe: rtde.Recipe) -> rtde.Recipe:
        """The recipe, with what another client writes marked: one writer per input (RTDE guide)."""
        others = (c for c in self._clients if c is not client and c.connection.open)
        taken = {name for other in others for r in other.inputs for name in r.names}
        if taken.isdisjoint(recipe.names):
            return recipe
        self.log.event("claim_refused", f"{sorted(taken.intersection(recipe.names))}")
        return recipe.refused(taken)

    def _input(self, client: _RtdeClient, body: bytes) -> None:
        if not body or not 1 <= body[0] <= len(client.inputs):
            raise DataError(f"RTDE data package for an unknown recipe ({len(body)} bytes)")
        recipe = client.inputs[body[0] - 1]
        values = recipe.layout.unpack(body[1:])
        for kind, number, at in recipe.registers:
            if kind == "input_int_register_":
                self.int_in[number] = values[at]
            elif kind == "input_double_register_":
                self.double_in[number] = values[at]
        if "input_int_register_0" in recipe.names:
            self._last_input_ns, self._last_input_tick = time.monotonic_ns(), self._ticks
            self._new_input = True
            if self.int_in[0] in (SERVO_J, SERVO_L):
                self._setpoint(self.double_in[:11].copy())

    def _setpoint(self, d: Numbers) -> None:
        """Of servoJ, or of servoL, for which the script takes the joints that reach the pose."""
        if self.int_in[0] == SERVO_L:
            try:
                d[:6] = self._tool.joints(d[:6], self._plant.joint_positions())
            except DataError as error:
                self._stop_program(f"get_inverse_kin: {error}")
                return
        self._setpoints.append((self._last_input_ns, d))
        self.log.setpoint(self._last_input_ns, d[:6])

    # -- program ---------------------------------------------------------------------------------

    def _start_program(self) -> None:
        if self.status.protective or not self.status.released:
            self.log.event("program_refused", "protective stop or brakes")
            return
        self.status.program, self.status.paused = True, False
        self.status.int_out[0] = 1
        self.status.watchdog_s, self._executing = 0.0, 0
        self._new_input = False
        self.log.event("program_started", "")

    def _stop_program(self, why: str) -> None:
        if self.status.program:
            self.status.program = self.status.paused = False
            self._executing = 0
            self.motion.stop(self.config.limits.program_stop_rad_s2)
            self.log.event("program_stopped", why)

    def protective_stop(self, why: str) -> None:
        """Stop hard, pause the program, wait for an operator."""
        if not self.status.protective:
            self.status.protective = True
            self.status.paused = self.status.program
            self._stopped_ns = time.monotonic_ns()
            self.motion.stop(self.config.limits.protective_stop_rad_s2)
            self.log.event("protective_stop", why)

    def emergency_stop(self) -> None:
        """The button on the pendant: as a protective stop, and only :meth:`unlock` by force (the
        button is pulled out, the arm powered on again) ends it.
        """
        self.status.emergency = True
        self.protective_stop("emergency stop button")

    def unlock(self, *, force: bool = False) -> bool:
        """Clear a protective stop; False before ``unlock_delay_s`` passed. The program is gone."""
        if self.status.emergency and not force:
            return False
        self.status.emergency = False
        waited_s = (time.monotonic_ns() - self._stopped_ns) * 1e-9
        if self.status.protective and not force and waited_s < self.config.unlock_delay_s:
            return False
        if self.status.protective:
            self.status.protective = False
            # Ending a program stops a motion, which then is no longer at rest.
            rests = self.motion.at_rest
            self._stop_program("unlocked after a protective stop")
            if rests:
                self.motion.hold_here(self._plant.joint_positions())
            self.log.event("unlocked", "")
        return True

    def _run_program(self, left: int) -> None:
        command = int(self.int_in[0])
        if self.motion.mode == "free" and self._new_input and command in (MOVE_J, *REALTIME):
            self._stop_program(f"command {command} in freedrive")
            return
        # By the controller's own clock: while its machine holds it up nobody is silent.
        silent_s = (self._ticks - self._last_input_tick) * self._dt_s
        if self.status.watchdog_s and silent_s > self.status.watchdog_s:
            self._stop_program(f"watchdog: no input for {self.status.watchdog_s:.3f} s")
            return
        if command == 0:
            self._executing = 0
            self.status.int_out[0] = 1
        elif command in REALTIME:
            self._executing = 0
            self.status.int_out[0] = 1
            if command in (SERVO_J, SERVO_L):
                self._servo(left)
            elif self._new_input:
                self._speed(command)
        else:
            if self._executing != command:
                self._executing = command
                self._commands.begin(command, self.double_in, self.int_in)
            if self._commands.finished(command, self.int_in):
                self.status.int_out[0] = 2
        self._new_input = False

    def _servo(self, left: int) -> None:
        """Apply the newest set-point; after a late wake-up of the loop, those that queued up are
        spread over the ``left`` ticks, as the controller would have seen them.
        """
        if not self._setpoints:
            return
        for _ in range(-(-len(self._setpoints) // left) - 1):
            self._setpoints.popleft()
        t_ns, d = self._setpoints.popleft()
        # Of a host that stood still, ticks and set-points come in a burst: a controller of its own
        # would have seen the time that passed.
        passed_s = (t_ns - self._last_setpoint_ns) * 1e-9
        since_s = max((self._ticks - self._last_setpoint_tick) * self._dt_s, passed_s)
        self._last_setpoint_tick, self._last_setpoint_ns = self._ticks, t_ns
        if self.motion.mode != "servo":
            since_s = 0.0
        self._refused(self.motion.servo(d[:6], float(d[8]), float(d[9]), float(d[10]), since_s))

    def _speed(self, command: int) -> None:
        if command == SPEED_J:
            d = self.double_in
            self._refused(self.motion.speed(d[:6].copy(), float(d[6])))
        else:
            self._commands.not_emulated(command)

    def _refused(self, problem: str) -> None:
        if problem:
            self.protective_stop(problem)

    # -- ticks -----------------------------------------------------------------------------------

    def control(self, now_ns: int, left: int = 1) -> None:
        """One controller tick: run the program, hand targets to the plant.

        ``left`` ticks, this one included, follow at once because the loop woke up late.
        """
        self._ticks += 1
        if self.status.program and not self.status.paused:
            self._run_program(left)
        if left == 1:
            self._setpoints.clear()
        self.dashboard.tick(now_ns)
        self._freedrive.tick()
        self._refused(self.motion.step(self._dt_s))
        self.log.reference(now_ns, self.motion.q)
        self._plant.set_joint_targets(self.motion.q, self.motion.qd)

    def publish(self, now_ns: int) -> None:
        """After the plant's step: stream the state to every RTDE client."""
        self.log.tick(now_ns)
        if 0 < self._hung_until_ns <= now_ns:
            self._wake()
        self._watch_motion(now_ns, self._plant.joint_velocities())
        values: dict[str, Sequence[Any]] | None = None
        for client in self._clients:
            if client.streaming and client.outputs is not None and self._ticks % client.every == 0:
                if values is None:
                    values = state_values(
                        self._plant,
                        self.motion,
                        self.status,
                        self._ticks * self._dt_s,
                        self.hand.force,
                        self._tool,
                    )
                body = pack_state(client.output_id, client.outputs, values)
                self._stream(now_ns, client.connection, rtde.frame(rtde.DATA, body))
        while self._delayed and self._delayed[0][0] <= now_ns:
            _, connection, data = self._delayed.popleft()
            connection.send(data)
        if not all(c.connection.open for c in self._clients):
            self._sweep()

    def _stream(self, now_ns: int, connection: Connection, data: bytes) -> None:
        if self._delay_ns or self._delayed:
            self._delayed.append((now_ns + self._delay_ns, connection, data))
        else:
            connection.send(data)

    def _watch_motion(self, now_ns: int, velocities: Joints) -> None:
        speed = float(np.abs(velocities).max())
        if speed >= 0.01:
            self._quiet_ns.clear()
        else:
            self._quiet_ns.append(now_ns)
        if not self.log.moving and speed > 0.02:
            self.log.motion(now_ns)
        elif self.log.moving and len(self._quiet_ns) == 10:
            # Ten quiet ticks: a zero crossing of an oscillation is not rest.
            self.log.rest(self._quiet_ns[0])


def _recipe_reply(recipe_id: int, recipe: rtde.Recipe) -> bytes:
    return bytes([recipe_id]) + ",".join(recipe.types).encode()
