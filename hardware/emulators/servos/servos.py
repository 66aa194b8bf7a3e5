"""Emulates serial servos: control tables, instructions, and the joints of a plant behind them.

The wire format is a :class:`Dialect` (``feetech.py``, ``dynamixel.py``); the line that carries the
bytes is ``line.py``. A model of the servo: the goal is approached at no more than the no-load
speed; what the joint then does is the plant's physics.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from hardware.emulators.plant import ServoPlant
from hardware.emulators.ur.log import ControllerLog
from hardware.wire.servo_registers import COUNTS_PER_TURN, MIDDLE, TURN_RAD, Register, ServoTable
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError

BROADCAST = 0xFE
PING, READ, WRITE, SYNC_READ, SYNC_WRITE = 1, 2, 3, 0x82, 0x83
# Protocol 2.0, "Status Packet", error numbers; Feetech servos answer with no error instead.
_ERROR_INSTRUCTION, _ERROR_LENGTH, _ERROR_RANGE, _ERROR_ACCESS = 2, 5, 4, 7
TRIPPED = -1
_LARGEST = 32_000  # what two bytes with a sign bit hold


@dataclass(frozen=True, slots=True)
class Packet:
    """A decoded instruction packet."""

    servo: int
    instruction: int
    params: bytes


@runtime_checkable
class Dialect(Protocol):
    """A wire format."""

    table: ServoTable
    address_bytes: int
    locked_eeprom: bool

    def take(self, inbox: bytearray) -> Packet | None:
        """Remove and return the first complete packet; what is no packet is dropped."""
        ...

    def status(self, servo: int, error: int, params: bytes) -> bytes:
        """A packet from a servo."""
        ...

    def pinged(self, model: int) -> bytes:
        """Parameters of the answer to a ping."""
        ...


@dataclass(frozen=True, slots=True)
class ServoConfig:
    """One emulated servo; ``direction`` and ``zero`` say how it sits in the arm."""

    id: int
    # Index of the plant's joint that it moves.
    joint: int
    # -1 when counts fall as the joint's angle rises.
    direction: int = 1
    # Counts at joint angle 0.
    zero: int = MIDDLE
    # What its EEPROM holds.
    homing_offset: int = 0
    low: int = 0
    high: int = COUNTS_PER_TURN - 1
    # Model number (0: the family's first).
    model: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.id < 0xFD or self.direction not in (-1, 1):
            raise ConfigError(
                f"servo {self.id}: id in [0, 252] and direction 1 or -1 are needed, got"
                f" {self.direction}"
            )


@dataclass(slots=True)
class _Servo:
    config: ServoConfig
    memory: bytearray
    error: int = 0
    absent: bool = False
    heard_ns: int = 0
    reference: float = field(default=0.0)

    def get(self, register: Register) -> int:
        at = register.address
        return register.decode(bytes(self.memory[at : at + register.size]))

    def put(self, register: Register, value: int) -> None:
        at = register.address
        self.memory[at : at + register.size] = register.encode(value)


class ServoBus:
    """Servos in one chain. :meth:`receive` takes bytes and returns status packets in order.

    ``powered``: they hold the arm from the start, as somebody left them.
    """

    def __init__(
        self,
        plant: ServoPlant,
        dialect: Dialect,
        servos: Sequence[ServoConfig],
        *,
        powered: bool = False,
    ) -> None:
        self.plant, self.dialect = plant, dialect
        self.log = ControllerLog(len(servos))
        self.inbox = bytearray()
        self.corrupt_replies = 0
        self._table = dialect.table
        self._rest_ticks = 0
        q = plant.joint_positions()
        self._servos = {c.id: self._made(c, q) for c in servos}
        if len(self._servos) != len(servos):
            raise ConfigError(f"two servos have the same id: {[c.id for c in servos]}")
        for servo in self._servos.values():
            servo.put(self._table.torque_enable, int(powered))

    def _made(self, config: ServoConfig, q: Joints) -> _Servo:
        t = self._table
        servo = _Servo(config, bytearray(t.space))
        if not 0 <= config.joint < len(q):
            raise ConfigError(f"servo {config.id} moves joint {config.joint} of {len(q)}")
        model = config.model or next(iter(t.models))
        servo.put(t.model_number, model)
        servo.put(t.id, config.id)
        servo.put(t.homing_offset, config.homing_offset)
        servo.put(t.return_delay, 250)
        servo.put(t.low_limit, config.low)
        servo.put(t.high_limit, config.high)
        servo.put(t.torque_limit, t.full_torque)
        servo.reference = float(q[config.joint])
        servo.put(t.goal_position, self._counts(servo, servo.reference))
        return servo

    # -- faults ----------------------------------------------------------------------------------

    def set_absent(self, servo: int, absent: bool = True) -> None:
        """Fault: a servo that is cut off neither answers nor holds; back, its torque is off."""
        one = self._servos[servo]
        one.absent = absent
        one.put(self._table.torque_enable, 0)

    def set_error(self, servo: int, bits: int) -> None:
        """Fault: error bits of a servo (32: overload); Dynamixels also switch their torque off."""
        one, table = self._servos[servo], self._table
        if table.hardware_error is None:
            one.error = bits
            return
        one.put(table.hardware_error, bits)
        one.error = 0x80 if bits else 0
        if bits:
            one.put(table.torque_enable, 0)

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids that the servos answer to."""
        return tuple(s.get(self._table.id) for s in self._ordered)

    def _called(self, number: int) -> list[_Servo]:
        """Who answers to an id, whatever it was when the bus was made: two, after a bad write."""
        return [s for s in self._ordered if s.get(self._table.id) == number]

    # -- wire ------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[bytes]:
        """Bytes from the host; returns the servos' answers."""
        self.inbox += data
        out: list[bytes] = []
        while (packet := self.dialect.take(self.inbox)) is not None:
            out += self._execute(packet)
        if self.corrupt_replies > 0 and out:
            self.corrupt_replies -= 1
            out[0] = out[0][:-1] + bytes([out[0][-1] ^ 0x5A])
        return out

    def _execute(self, packet: Packet) -> list[bytes]:
        now_ns = time.monotonic_ns()
        for servo in self._servos.values():
            servo.heard_ns = now_ns
        n, params = self.dialect.address_bytes, packet.params
        if packet.instruction == SYNC_READ and len(params) >= 2 * n:
            at, size = _number(params[:n]), _number(params[n : 2 * n])
            return self._sync_read(at, size, params[2 * n :])
        if packet.instruction == SYNC_WRITE and len(params) >= 2 * n:
            at, size = _number(params[:n]), _number(params[n : 2 * n])
            self._sync_write(at, size, params[2 * n :], now_ns)
            return []
        chosen = (
            list(self._servos.values()) if packet.servo == BROADCAST else self._called(packet.servo)
        )
        answers = [self._one(servo, packet) for servo in chosen if not servo.absent]
        return [] if packet.servo == BROADCAST and packet.instruction != PING else answers

    def _one(self, servo: _Servo, packet: Packet) -> bytes:
        n, params, reply = self.dialect.address_bytes, packet.params, b""
        # A new id counts from the next packet on: this one is answered under the old.
        problem, number = 0, servo.get(self._table.id)
        if packet.instruction == PING:
            reply = self.dialect.pinged(servo.config.model or next(iter(self._table.models)))
        elif packet.instruction == READ and len(params) == 2 * n:
            at, size = _number(params[:n]), _number(params[n:])
            reply = self._memory(servo, at, size)
            problem = _ERROR_LENGTH if len(reply) != size else 0
        elif packet.instruction == WRITE and len(params) > n:
            problem = self._write(servo, _number(params[:n]), params[n:])
        else:
            problem = _ERROR_INSTRUCTION
        # Only Protocol 2.0 has error numbers; the error byte of the STS tells the servo's state.
        shown = problem if self.dialect.address_bytes == 2 else 0
        return self.dialect.status(number, servo.error | shown, reply)

    def _sync_read(self, at: int, size: int, ids: bytes) -> list[bytes]:
        out: list[bytes] = []
        for i in ids[: len(self._servos)]:
            called = [s for s in self._called(i) if not s.absent]
            if not called:
                # The next servo waits for the one before it (both protocols).
                break
            out += [self.dialect.status(i, s.error, self._memory(s, at, size)) for s in called]
        return out

    def _sync_write(self, at: int, size: int, data: bytes, now_ns: int) -> None:
        if size < 1:
            return
        for start in range(0, len(data) - size, size + 1):
            for servo in self._called(data[start]):
                if not servo.absent:
                    self._write(servo, at, data[start + 1 : start + 1 + size])
        if at == self._table.goal_position.address:
            goals = [self._angle(s, s.get(self._table.goal_position)) for s in self._ordered]
            self.log.setpoint(now_ns, np.array(goals))

    def _memory(self, servo: _Servo, at: int, size: int) -> bytes:
        return bytes(servo.memory[at : at + size]) if at + size <= self._table.space else b""

    def _write(self, servo: _Servo, at: int, data: bytes) -> int:
        t = self._table
        if at + len(data) > t.space:
            return _ERROR_ACCESS
        in_eeprom = at < t.torque_enable.address
        if self.dialect.locked_eeprom and in_eeprom and servo.get(t.torque_enable):
            return _ERROR_ACCESS
        if t.watchdog is not None and servo.get(t.watchdog) == TRIPPED and at > t.watchdog.address:
            return _ERROR_RANGE
        was_on = bool(servo.get(t.torque_enable))
        servo.memory[at : at + len(data)] = data
        on = bool(servo.get(t.torque_enable))
        if on and not was_on:
            servo.reference = float(self.plant.joint_positions()[servo.config.joint])
        if on != was_on:
            self.log.event("torque_on" if on else "torque_off", f"servo {servo.config.id}")
        return 0

    # -- physics ---------------------------------------------------------------------------------

    @property
    def _ordered(self) -> list[_Servo]:
        return list(self._servos.values())

    def control(self, now_ns: int, dt_s: float) -> None:
        """One control period: goals to the plant's joints, watchdogs."""
        table = self._table
        q = self.plant.joint_positions()
        target, speed = q.copy(), np.zeros_like(q)
        powered = np.zeros(len(q), dtype=np.bool_)
        step = table.max_speed_rad_s * dt_s
        for servo in self._ordered:
            self._watch(servo, now_ns)
            joint = servo.config.joint
            if not servo.get(table.torque_enable):
                servo.reference = float(q[joint])
                continue
            goal = self._angle(servo, self._within_limits(servo))
            servo.reference += float(np.clip(goal - servo.reference, -step, step))
            target[joint], powered[joint] = servo.reference, True
        self.plant.set_powered(powered)
        self.plant.set_joint_targets(target, speed)

    def publish(self, now_ns: int) -> None:
        """After a step: measured values into the control tables, motion and rest into the log."""
        t = self._table
        q, qd = self.plant.joint_positions(), self.plant.joint_velocities()
        torque = self.plant.joint_torques()
        fastest = 0.0
        for servo in self._ordered:
            joint, sign = servo.config.joint, servo.config.direction
            fastest = max(fastest, abs(float(qd[joint])))
            counts = round(sign * float(qd[joint]) / t.rad_s_per_count)
            position = self._counts(servo, float(q[joint]))
            servo.put(t.present_position, max(-_LARGEST, min(_LARGEST, position)))
            servo.put(t.present_velocity, max(-_LARGEST, min(_LARGEST, counts)))
            share = float(torque[joint]) / self.plant.full_torque()[joint]
            servo.put(t.load, round(sign * max(-1.0, min(1.0, share)) * t.full_load))
        self._note_motion(now_ns, fastest)

    def _watch(self, servo: _Servo, now_ns: int) -> None:
        register = self._table.watchdog
        if register is None:
            return
        allowed = servo.get(register)
        if allowed > 0 and now_ns - servo.heard_ns > allowed * self._table.watchdog_unit_s * 1e9:
            servo.put(register, TRIPPED)
            servo.put(self._table.goal_position, self._counts(servo, servo.reference))
            self.log.event("watchdog", f"servo {servo.config.id} heard nothing", now_ns)

    def _note_motion(self, now_ns: int, speed: float) -> None:
        if self.log.moving:
            self._rest_ticks = self._rest_ticks + 1 if speed < 0.01 else 0
            if self._rest_ticks >= 10:
                self.log.rest(now_ns)
        elif speed > 0.05:
            self._rest_ticks = 0
            self.log.motion(now_ns)

    def _within_limits(self, servo: _Servo) -> int:
        low, high = servo.get(self._table.low_limit), servo.get(self._table.high_limit)
        goal = servo.get(self._table.goal_position)
        return max(low, min(high, goal)) if low < high else goal

    def _shift(self, servo: _Servo) -> int:
        """Zero in counts, moved by what was written into the homing offset since."""
        t = self._table
        moved = servo.get(t.homing_offset) - servo.config.homing_offset
        return servo.config.zero + t.offset_sign * moved

    def _counts(self, servo: _Servo, angle: float) -> int:
        turns = servo.config.direction * angle / TURN_RAD
        return self._shift(servo) + round(turns * COUNTS_PER_TURN)

    def _angle(self, servo: _Servo, counts: int) -> float:
        turns = (counts - self._shift(servo)) / COUNTS_PER_TURN
        return servo.config.direction * turns * TURN_RAD


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")
