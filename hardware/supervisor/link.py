"""Carries rings and requests over the border between the agent's process and the supervisor.

    agent -> supervisor   commands (ring), heartbeat (ring), requests (pipe, JSON)
    supervisor -> agent   robot states, what was sent, events, status (rings)

The pipe's end of file tells the supervisor that the agent is gone. Everything that happens at the
robot's rate goes through rings, which never block either side.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from hardware.devices.robot import RobotMode, RobotState
from hardware.shapes import Action, Plan, RowValues, Widths
from hardware.supervisor.guided_move import pause_acceleration
from hardware.supervisor.shared_memory import Ring, RingHandle, Row
from robolearn.arms.moving_mean import window_for
from robolearn.arms.slowing import Slowed
from robolearn.errors import ConfigError, DataError

PLAN_STEPS = 16
STATUS_WIDTH = 10
# A state begins with the device's clock, mode, force, load, and force and torque at the tool.
STATE_HEAD, STATE_WRENCH = 10, slice(4, 10)
GRIP_WIDTH = 3
# Characters of the reason of a stop; a longer one is cut.
REASON_WIDTH = 400
# A state is late after so long, or so many periods of its robot, whichever is longer.
_LATE_S, _LATE_PERIODS = 0.02, 5.0


class Mode(enum.IntEnum):
    """What the supervisor is doing with the arm."""

    HOLD = 0
    FOLLOW = 1  # the agent's commands
    GOTO = 2  # a slow guided move along joint waypoints
    STOPPING = 3  # decelerating towards a latched stop
    STOPPED = 4  # latched: only an explicit clear leads on
    STARTING = 5
    FREEDRIVE = 6  # guided by a hand


class Cause(enum.IntEnum):
    """Why the supervisor intervened. Those up to ``OPERATOR_CLEAR`` do not latch."""

    NONE = 0
    AGENT_LATE = 1  # newest command too old: decelerated along the plan, holding
    AGENT_BACK = 2  # commands arrive again
    NOT_FINITE = 3  # command ignored, or none that could be sent: braked, until a good one
    STALE_COMMAND = 4  # the same: due too long ago, too far ahead, or out of order
    OUT_OF_RANGE = 5  # command clipped to the workspace (until 0.1.0 also: far outside)
    STATE_LATE = 6  # robot state paused: holding until it is fresh again
    UNREACHABLE = 7  # a requested guided move is refused
    AGENT_SILENT = 9  # heartbeat late: braked, holding
    OPERATOR_CLEAR = 10
    AGENT_DEAD = 11
    AGENT_FROZEN = 12  # heartbeat lost
    STATE_STALE = 13
    ROBOT_FAULT = 14  # protective stop, program not running, ...
    DRIVER_ERROR = 15
    ESTOP = 16
    LIMIT_VIOLATION = 17  # a set-point would have left the limits; it was not sent
    TERMINATED = 18
    CLOSED = 19
    FOLLOWING_ERROR = 20  # the measured arm is not where it was told to be
    OVERLOAD = 21  # tool force or joint load above its limit
    COLLISION = 22  # the arm would have come too near to itself, the table or an obstacle
    CLOCK_JUMP = 23  # the device's clock ran backwards or jumped ahead
    FAR_AGENT = 24  # one command after the other was far outside
    LINK_PAUSE = 25  # after a pause of its link the controller was led on beyond the limits
    SILENCED = 26  # the device's watchdog ended the program: this computer was silent
    GRIPPER_FAULT = 40  # the gripper or its link reports a fault
    GRIPPER_STALE = 41  # the gripper does not answer any more
    OBJECT_LOST = 42  # what the gripper held is gone; latches where the cell says so
    FREEDRIVE = 50  # a hand may guide the arm from now on
    FREEDRIVE_ENDED = 51  # as asked, or because agent or state were late; the arm holds
    HAND_LIMIT = 52  # freedrive ended: a limit came near, or the hand was too fast
    FAR_OUTSIDE = 53  # command far outside workspace, limits or range: ignored, braked
    # A tool that is commanded by its pose does less than it was asked to; each until the next one.
    SLOWED_SINGULARITY = Slowed.SINGULARITY  # value: smallest singular value of the Jacobian
    SLOWED_JOINT_LIMIT = Slowed.JOINT_LIMIT  # value: what is left to the end of the joint [rad]
    SLOWED_JOINT_SPEED = Slowed.JOINT_SPEED  # value: share of the speed that is left
    SLOWED_OVER = Slowed.OVER

    @property
    def latches(self) -> bool:
        """True when only an operator's clear leads on."""
        return self > Cause.OPERATOR_CLEAR and self not in _NOTES

    @property
    def slows(self) -> bool:
        """True of what slows the arm, and of its end."""
        return self in _SLOWING


_SLOWING = (
    *(Cause.SLOWED_SINGULARITY, Cause.SLOWED_JOINT_LIMIT, Cause.SLOWED_JOINT_SPEED),
    Cause.SLOWED_OVER,
)
_NOTES = (
    *(Cause.OBJECT_LOST, Cause.FREEDRIVE, Cause.FREEDRIVE_ENDED, Cause.HAND_LIMIT),
    Cause.FAR_OUTSIDE,
    *_SLOWING,
)
# What stops an arm whatever the policy commands.
LINK_CAUSES = (
    *(Cause.AGENT_DEAD, Cause.AGENT_FROZEN, Cause.STATE_STALE, Cause.CLOCK_JUMP),
    *(Cause.LINK_PAUSE, Cause.SILENCED, Cause.TERMINATED, Cause.CLOSED),
)
GRIPPER_CAUSES = (Cause.GRIPPER_FAULT, Cause.GRIPPER_STALE, Cause.OBJECT_LOST)


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    """Time limits and the limits of guided moves. The arm's limits are in ``limits``."""

    # Hold when the newest command has been due for longer than this [s].
    late_s: float = 0.15
    # Hold while the agent's process shows no life for longer than this [s].
    heartbeat_s: float = 0.08
    # Stop (latched) when it shows none for longer than this [s].
    frozen_s: float = 0.5
    # Hold, and halt an arm in motion, while the device clock stands still for longer than this [s];
    # null: 20 ms, or five periods of a robot that is slower than 250 Hz.
    state_late_s: float | None = None
    # Stop (latched) when it stands still for longer than this [s].
    state_stale_s: float = 0.1
    # Commands due further ahead than this are refused [s].
    ahead_s: float = 1.0
    # A target further outside the workspace than this is refused, the arm brakes [m].
    far_m: float = 0.05
    # The same for joint targets outside their limits [rad].
    far_rad: float = 0.2
    # Stop (latched) when there was nothing but such commands for this long [s].
    far_s: float = 0.35
    # Stop (latched) when a joint is further than this from all recent set-points [rad].
    following_rad: float = 0.2
    # ... for longer than this [s].
    following_s: float = 0.05
    # Stop (latched) above this force at the tool [N], where the driver reports one.
    max_tool_force_n: float = 120.0
    # Stop (latched) above this share of a joint's rated load, where the driver reports it.
    max_load: float = 1.0
    # Force or load must be above its limit for longer than this [s].
    overload_s: float = 0.02
    # Joint speed of guided moves [rad/s].
    goto_speed: float = 0.6
    # Joint acceleration of guided moves [rad/s^2].
    goto_acceleration: float = 1.5
    # Joint jerk of guided moves, pauses included [rad/s^3]; null for no limit.
    goto_jerk: float | None = None
    # Freedrive ends when a joint is guided faster than this [rad/s].
    guide_joint_speed: float = 1.0
    # ... or the tool faster than this [m/s].
    guide_tool_speed: float = 0.5
    # ... or when the arm would be outside its limits after this time [s].
    guide_ahead_s: float = 0.1

    def __post_init__(self) -> None:
        if self.state_late_s is not None and not 0 < self.state_late_s <= self.state_stale_s:
            raise ConfigError("state_late_s must be positive and at most state_stale_s")
        if not 0 < self.heartbeat_s <= self.frozen_s:
            raise ConfigError("heartbeat_s must be positive and at most frozen_s")
        for name, value in asdict(self).items():
            # NaN and infinity would switch a check off: no comparison with them is ever true.
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"supervisor: {name} must be positive and finite, got {value}")
        window_for(
            pause_acceleration(self.goto_speed, self.goto_acceleration), self.goto_jerk, 0.01
        )

    def late_state_s(self, rate_hz: float) -> float:
        """``state_late_s`` of a robot with this rate, ``state_stale_s`` at most [s]."""
        if self.state_late_s is not None:
            return self.state_late_s
        return min(max(_LATE_S, _LATE_PERIODS / rate_hz), self.state_stale_s)


@dataclass(frozen=True, slots=True)
class Target:
    """The agent's newest decision for ``due_ns``, ``value [w]`` (tool on the table [m, m], or joint
    positions [rad]), and the actions after it, ``plan [k, w]``. ``gripper``: the width [m] in a
    cell with a gripper, else empty.
    """

    seq: int
    due_ns: int
    value: Action
    plan: Plan
    gripper: Widths = field(default_factory=lambda: np.zeros(0))

    def pack(self) -> RowValues:
        """As a ring row (``due_ns`` split in two, exact for any uptime)."""
        width = len(self.value)
        row = np.full(command_width(width, len(self.gripper)), np.inf)
        row[:3] = self.seq, self.due_ns // 10**9, self.due_ns % 10**9
        row[3 : 3 + width] = self.value
        plan = self.plan[:PLAN_STEPS].reshape(-1)
        row[3 + width : 3 + width + len(plan)] = plan
        row[command_width(width) :] = self.gripper
        return row

    @classmethod
    def unpack(cls, value: RowValues) -> Target:
        """Inverse of :meth:`pack`; entries that are not finite stay what they are."""
        width = (len(value) - 3) // (1 + PLAN_STEPS)
        end = command_width(width)
        plan = value[3 + width : end].reshape(PLAN_STEPS, width)
        used = _rows_told(plan)
        number, seconds, rest = value[:3].tolist()
        finite = math.isfinite(seconds) and math.isfinite(rest)
        due = int(seconds) * 10**9 + int(rest) if finite else -1
        return cls(int(number), due, value[3 : 3 + width], plan[:used], value[end:])


def _rows_told(plan: Plan) -> int:
    """How many rows ``[k, w]`` hold a number: those behind a plan's end are infinite throughout."""
    rows, width = plan.shape
    numbers: list[float] = plan.ravel().tolist()
    told = len(numbers) - numbers.count(math.inf)
    # With a finite sum all that is infinite comes behind it.
    if told % width == 0 and math.isfinite(sum(numbers[:told])):
        return told // width
    return sum(not all(map(math.isinf, numbers[k * width : (k + 1) * width])) for k in range(rows))


def command_width(values: int, grips: int = 0) -> int:
    """Length of the ring row of a :class:`Target` with that many values of arm and gripper."""
    return 3 + values * (1 + PLAN_STEPS) + grips


@dataclass(frozen=True, slots=True)
class Status:
    """What the supervisor says about itself, at every tick of its loop.

    ``cause`` is the latched cause (NONE unless stopping or stopped); ``answered`` the number of the
    last request it finished; ``late_p`` statistics are over all ticks since the start.
    """

    t_ns: int
    mode: Mode
    cause: Cause
    answered: int
    refused: bool
    ticks: int
    missed: int
    max_late_ns: int
    real_time: bool

    def pack(self) -> tuple[float, ...]:
        """As a ring row."""
        # Plain numbers: those of an enumeration take numpy ten times as long.
        return (
            *(float(self.mode), float(self.cause), float(self.answered), float(self.refused)),
            *(float(self.ticks), float(self.missed), float(self.max_late_ns)),
            *(float(self.real_time), 0.0, 0.0),
        )

    @classmethod
    def unpack(cls, row: Row) -> Status:
        """Inverse of :meth:`pack`."""
        v = [int(x) for x in row.value]
        return cls(
            *(row.t_ns, Mode(v[0]), Cause(v[1]), v[2], bool(v[3])),
            *(v[4], v[5], v[6], bool(v[7])),
        )


@dataclass(frozen=True, slots=True)
class Event:
    """One intervention: its time, its cause, the value that caused it, the limit, the command."""

    t_ns: int
    cause: Cause
    value: float
    limit: float
    seq: int

    def text(self) -> str:
        """One line for a person."""
        return (
            f"{self.cause.name.lower()} (value {self.value:.4g}, limit {self.limit:.4g},"
            f" command {self.seq})"
        )


RequestKind = Literal["hold", "follow", "goto", "freedrive", "grip", "estop", "clear", "close"]


@dataclass(frozen=True, slots=True)
class Request:
    """A rare message from the agent. ``waypoints`` [rad] belong to ``goto``; of ``grip`` the only
    value of the only one is a width [m].
    """

    number: int
    kind: RequestKind
    waypoints: tuple[tuple[float, ...], ...] = ()

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Request:
        """Inverse of :meth:`encode`; raises DataError for anything else."""
        try:
            raw: dict[str, Any] = json.loads(data)
            waypoints = tuple(tuple(float(v) for v in w) for w in raw["waypoints"])
            return cls(int(raw["number"]), raw["kind"], waypoints)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"not a supervisor request: {data[:80]!r}") from error


@dataclass(frozen=True, slots=True)
class LinkHandles:
    """Names of all rings, for the supervisor's process."""

    commands: RingHandle
    heartbeat: RingHandle
    states: RingHandle
    sent: RingHandle
    events: RingHandle
    status: RingHandle
    grips: RingHandle
    reason: RingHandle

    def attach(self) -> Link:
        """Open all rings in this process."""
        return Link(
            commands=self.commands.attach(),
            heartbeat=self.heartbeat.attach(),
            states=self.states.attach(),
            sent=self.sent.attach(),
            events=self.events.attach(),
            status=self.status.attach(),
            grips=self.grips.attach(),
            reason=self.reason.attach(),
        )


@dataclass(frozen=True, slots=True)
class Link:
    """The rings. Rows:

    ``commands`` :class:`Target`; ``heartbeat`` (time only); ``states`` device clock [s], robot
    mode, tool force [N], load, q, qd; ``sent`` seq, lateness of the tick [ns], the action that was
    really sent (as in :class:`Target`), q, the gripper's width in force [m] where there is one;
    ``events``; ``status``; ``grips`` the gripper's measured width [m], moving, holding;
    ``reason`` of the latched stop, or of the end of freedrive, as text (:func:`pack_text`).
    """

    commands: Ring
    heartbeat: Ring
    states: Ring
    sent: Ring
    events: Ring
    status: Ring
    grips: Ring
    reason: Ring

    @classmethod
    def create(cls, joints: int, width: int, slots: int = 4096, grips: int = 0) -> Link:
        """Allocate the rings for targets of ``width`` values; ``slots`` is eight seconds of states
        at 500 Hz. ``grips``: 1 in a cell with a gripper.
        """
        return cls(
            commands=Ring.create(16, command_width(width, grips)),
            heartbeat=Ring.create(4, 1),
            states=Ring.create(slots, STATE_HEAD + 2 * joints),
            sent=Ring.create(slots, 2 + width + joints + grips),
            events=Ring.create(1024, 4),
            status=Ring.create(16, STATUS_WIDTH),
            grips=Ring.create(1024, GRIP_WIDTH),
            reason=Ring.create(4, REASON_WIDTH),
        )

    @property
    def handles(self) -> LinkHandles:
        """What the supervisor's process needs."""
        return LinkHandles(
            commands=self.commands.handle,
            heartbeat=self.heartbeat.handle,
            states=self.states.handle,
            sent=self.sent.handle,
            events=self.events.handle,
            status=self.status.handle,
            grips=self.grips.handle,
            reason=self.reason.handle,
        )

    @property
    def rings(self) -> tuple[Ring, ...]:
        """All of them."""
        return (
            *(self.commands, self.heartbeat, self.states),
            *(self.sent, self.events, self.status, self.grips, self.reason),
        )

    def close(self) -> None:
        """Detach this process."""
        for ring in self.rings:
            ring.close()

    def unlink(self) -> None:
        """Remove the names (once both sides attached)."""
        for ring in self.rings:
            ring.unlink()


def pack_text(text: str) -> RowValues:
    """A text as a ring row: its characters' code points, zeros after the last."""
    row = np.zeros(REASON_WIDTH)
    kept = text[:REASON_WIDTH]
    row[: len(kept)] = [ord(c) for c in kept]
    return row


def unpack_text(row: Row | None) -> str:
    """Inverse of :func:`pack_text`; "" where there is no row yet."""
    return "" if row is None else "".join(chr(int(v)) for v in row.value if v)


def robot_state_of(t_ns: int, value: RowValues) -> RobotState:
    """Inverse of a row of the ``states`` ring."""
    joints = (len(value) - STATE_HEAD) // 2
    q, qd = value[STATE_HEAD : STATE_HEAD + joints], value[STATE_HEAD + joints :]
    mode, force, load = RobotMode(int(value[1])), float(value[2]), float(value[3])
    wrench = value[STATE_WRENCH]
    told = None if np.isnan(wrench).all() else wrench
    return RobotState(float(value[0]), t_ns, q, qd, mode, force, load, wrench=told)


@runtime_checkable
class Inbox(Protocol):
    """Requests of the agent."""

    def read(self) -> Sequence[Request]:
        """What has arrived; never blocks."""
        ...

    @property
    def closed(self) -> Cause:
        """NONE while the agent is there, else AGENT_DEAD or TERMINATED."""
        ...
