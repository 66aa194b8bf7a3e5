"""A robot and its trackers behind the ``Env`` contract. The supervisor lives inside it.

No caller can move the arm without the supervisor: it owns the only motion handle, and this class
only leaves it targets. Time is the monotonic clock; :meth:`RealEnv.advance` waits for absolute
deadlines.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hardware.cell_config import CellConfig
from hardware.signal_buffer import SignalBuffer
from hardware.supervisor_client import SupervisorClient, require_width
from hardware.supervisor_link import STATE_HEAD, Event, Mode, Status, Target
from hardware.tracker import UdpTracker
from robolearn.errors import DataError, RobotError
from robolearn.geometry import inverse
from robolearn.kinematics import SerialArm
from robolearn.limiter import TableMapping
from robolearn.pusht import (
    BLOCK,
    TABLE_SIZE_M,
    TOOL,
    block_signal,
    target_action,
    tool_signal,
    wrap_angle,
)
from robolearn.spec import EmbodimentSpec, SignalSpec
from robolearn.timing import Rate
from robolearn.types import (
    Capabilities,
    Command,
    Condition,
    Observation,
    Outcome,
    ResetReport,
    SampleBatch,
    SentBlock,
    Signals,
)

Array = NDArray[np.float64]
log = logging.getLogger(__name__)

JOINT_POSITION, JOINT_VELOCITY = "arm/joint_position", "arm/joint_velocity"
EVENT = "supervisor/event"
# A lift in one go would bend the tool's path sideways; a first short one keeps it straight.
_FIRST_LIFT_M = 0.035
_REST_RAD_S, _REST_SAMPLES = 0.01, 6


@runtime_checkable
class Scorer(Protocol):
    """Judges the task from the newest signals or from outside (a lab's truth, an operator)."""

    def reset(self) -> None:
        """An episode starts."""
        ...

    def judge(self, values: Signals) -> Outcome:
        """How the task stands now; success is sticky."""
        ...


ResetProcedure = Callable[[Condition], str]
"""Places the objects of a condition while the tool is lifted and at rest; returns a note."""


class RealEnv:
    """One arm with a tool on a table, and a tracked block."""

    def __init__(
        self,
        config: CellConfig,
        *,
        place: ResetProcedure,
        scorer: Scorer,
        settable_poses: bool = False,
    ) -> None:
        self.config = config
        self._place, self._scorer = place, scorer
        self._arm = config.follower().serial_arm()
        self._mapping = config.table.mapping()
        self._spec = cell_spec(config, self._arm.dof)
        self._capabilities = Capabilities(
            settable_poses=settable_poses, true_state=False, faster_than_real_time=False
        )
        self._tracker = config.tracker.build()
        try:
            self.supervisor = SupervisorClient(
                config.robot_builder(), config.follower(), config.supervisor
            )
        except BaseException:
            self._tracker.close()
            raise
        self._buffers = {s.name: SignalBuffer(s.name, s.shape) for s in self._spec.signals}
        self._rate = Rate(config.rate_hz)
        self._state_index = self._sent_index = 0
        self._outcome: Outcome | None = None
        self.interventions: list[Event] = []
        self.tick_lateness_ns: list[int] = []

    # -- contract --------------------------------------------------------------------------------

    @property
    def spec(self) -> EmbodimentSpec:
        """Signals, action semantics, control rate."""
        return self._spec

    @property
    def capabilities(self) -> Capabilities:
        """No true state, real time only."""
        return self._capabilities

    @property
    def tracker(self) -> UdpTracker:
        """The block's tracker."""
        return self._tracker

    @property
    def overruns(self) -> int:
        """Control ticks that were skipped since the reset because the loop was late."""
        return self._rate.missed

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Lift the tool, let the objects be placed, lower it at the start, measure the start.

        Raises SafetyStopError while a stop is latched, StaleSignalError without a fresh tracker.
        """
        del rng
        wanted = condition.poses
        if TOOL not in wanted:
            raise DataError(
                f"condition '{condition.id}' has no start of '{TOOL}'; it has {sorted(wanted)}"
            )
        self.hold()
        xy = np.array(wanted[TOOL], dtype=np.float64)
        self.goto([*self._lift_waypoints(), self._joints(xy, self.config.lift_m)])
        self._wait_at_rest()
        note = self._place(condition)
        self.goto([self._joints(xy, _FIRST_LIFT_M), self._joints(xy, 0.0)])
        self._tracker.wait(2.0)
        self.supervisor.request("follow")
        self._start_streams()
        self._scorer.reset()
        self._outcome = None
        observation = self.observe()
        achieved = {name: observation.value(name) for name in wanted}
        self._rate = Rate(self.config.rate_hz)
        text = "; ".join(t for t in (note, _difference(wanted, achieved)) if t)
        return ResetReport(condition, achieved, text)

    def now_ns(self) -> int:
        """The monotonic clock."""
        return time.monotonic_ns()

    def observe(self) -> Observation:
        """Newest sample of every signal; raises StaleSignalError when one is too old."""
        self.supervisor.require_running()
        self.supervisor.state()
        self._tracker.latest()
        self._collect()
        samples = {name: buffer.newest() for name, buffer in self._buffers.items()}
        return Observation(time.monotonic_ns(), samples)

    def apply(self, command: Command) -> None:
        """Leave the command with the supervisor, which limits it."""
        if TOOL not in command.action:
            raise DataError(f"command lacks '{TOOL}'; it has {sorted(command.action)}")
        xy = require_width(np.asarray(command.action[TOOL], dtype=np.float64), 2)
        plan = np.zeros((0, 2)) if command.plan is None else command.plan
        if plan.ndim != 2 or plan.shape[1] != 2:
            raise DataError(f"expected a plan of shape (k, 2), got {plan.shape}")
        self.supervisor.command(Target(command.seq, command.due_ns, xy, plan))

    def advance(self) -> None:
        """Wait for the next absolute deadline. Raises SafetyStopError after a latched stop."""
        self._rate.wait()
        self._outcome = None
        self._take_events()
        self.supervisor.require_running()

    def drain(self) -> SampleBatch:
        """All samples since the last call, and every set-point that was sent, by command."""
        self._collect()
        rows = self.supervisor.sent(self._sent_index)
        self._sent_index = rows.next_index
        self.tick_lateness_ns += [int(v) for v in rows.value[:, 1]]
        mine = rows.value[:, 0] >= 0
        sent = SentBlock(
            seq=rows.value[mine, 0].astype(np.int64),
            t_ns=rows.t_ns[mine],
            action={TOOL: rows.value[mine, 2:4].copy()},
        )
        return SampleBatch({n: b.drain() for n, b in self._buffers.items()}, sent)

    def outcome(self) -> Outcome:
        """What the scorer says about this tick."""
        if self._outcome is None:
            last = {name: buffer.last for name, buffer in self._buffers.items()}
            self._outcome = self._scorer.judge(
                {name: sample.value for name, sample in last.items() if sample is not None}
            )
        return self._outcome

    def close(self) -> None:
        """Stop the arm, end the supervisor; safe to call twice."""
        self.supervisor.close()
        self._tracker.close()

    # -- motion between episodes -----------------------------------------------------------------

    def status(self) -> Status:
        """The supervisor's status; raises RobotConnectionError when it is gone."""
        return self.supervisor.status()

    def hold(self) -> None:
        """Brake and stand still. Raises SafetyStopError while a stop is latched."""
        status = self.supervisor.require_running()
        if status.mode is not Mode.HOLD:
            self.supervisor.request("hold", timeout_s=5.0)
        self._take_events()

    def goto(self, waypoints: Sequence[Array]) -> None:
        """A slow guided move through joint waypoints [rad]; returns at rest at the last."""
        q = self.supervisor.state().joint_position
        moves = [w for w in waypoints if float(np.abs(w - q).max()) > 1e-6]
        if moves:
            self.supervisor.request("goto", moves, timeout_s=60.0)

    def home(self) -> None:
        """Lift the tool and move over the middle of the table."""
        self.hold()
        middle = np.full(2, 0.5 * TABLE_SIZE_M)
        self.goto([*self._lift_waypoints(), self._joints(middle, self.config.lift_m)])

    def estop(self) -> None:
        """Emergency stop: brake at once and latch."""
        self.supervisor.estop()
        self._take_events()

    def clear_stop(self) -> None:
        """The operator's explicit recovery from a latched stop."""
        self.supervisor.clear()
        self._take_events()

    # -- inside ----------------------------------------------------------------------------------

    def _joints(self, xy: Array, lift_m: float) -> Array:
        return self._arm.ik(self._mapping.flange(xy, lift_m), np.array(self._mapping.home))

    def _lift_waypoints(self) -> list[Array]:
        """Straight up if the tool is in its plane over the table, nothing if it is high already."""
        q = self.supervisor.state().joint_position
        tip = self._mapping.tip(self._arm, q)[:3, 3]
        height = float(tip[2]) - self._mapping.tip_height_m
        if height > 0.5 * self.config.lift_m:
            return []
        xy = np.clip(tip[:2], self.config.limits.workspace_low, self.config.limits.workspace_high)
        return [self._joints(xy, lift) for lift in (_FIRST_LIFT_M, self.config.lift_m)]

    def _wait_at_rest(self, timeout_s: float = 2.0) -> None:
        """The measured arm lags behind its set-points by some hundredths of a second."""
        deadline = time.monotonic() + timeout_s
        quiet = 0
        # A single quiet sample may be the turning point of an oscillation.
        while quiet < _REST_SAMPLES:
            fastest = float(np.abs(self.supervisor.state().joint_velocity).max())
            quiet = quiet + 1 if fastest < _REST_RAD_S else 0
            if time.monotonic() > deadline:
                raise RobotError(f"the arm did not come to rest within {timeout_s:g} s")
            time.sleep(0.02)

    def _start_streams(self) -> None:
        for buffer in self._buffers.values():
            buffer.clear()
        states, sent = self.supervisor.counts()
        self._state_index, self._sent_index = max(0, states - 1), sent
        self._take_events()
        self.interventions, self.tick_lateness_ns = [], []
        self._buffers[EVENT].add(time.monotonic_ns(), np.zeros(4))
        self._tracker.drain()
        pose = self._tracker.latest()
        self._buffers[BLOCK].add(pose.t_ns, pose.pose)

    def _collect(self) -> None:
        rows = self.supervisor.states(self._state_index)
        self._state_index = rows.next_index
        n = self._arm.dof
        if len(rows.t_ns):
            q = rows.value[:, STATE_HEAD : STATE_HEAD + n]
            self._buffers[TOOL].extend(rows.t_ns, tool_xy_rows(self._arm, self._mapping, q))
            self._buffers[JOINT_POSITION].extend(rows.t_ns, q)
            self._buffers[JOINT_VELOCITY].extend(rows.t_ns, rows.value[:, STATE_HEAD + n :])
        for pose in self._tracker.drain():
            self._buffers[BLOCK].add(pose.t_ns, pose.pose)
        self._take_events()

    def _take_events(self) -> None:
        for event in self.supervisor.events():
            log.info("supervisor: %s", event.text())
            self.interventions.append(event)
            row = [float(event.cause), event.value, event.limit, float(event.seq)]
            self._buffers[EVENT].add(event.t_ns, row)


def cell_spec(config: CellConfig, joints: int) -> EmbodimentSpec:
    """Signals and action of a cell; known without connecting to anything."""
    rate_hz = float(config.driver.get("rate_hz", 500.0))
    limits = config.limits
    return EmbodimentSpec(
        name=config.name,
        signals=(
            tool_signal(rate_hz),
            block_signal(60.0),
            SignalSpec(JOINT_POSITION, (joints,), "rad", rate_hz),
            SignalSpec(JOINT_VELOCITY, (joints,), "rad/s", rate_hz),
            SignalSpec(EVENT, (4,), "", 0.0, components=("cause", "value", "limit", "seq")),
        ),
        actions=(target_action(limits.workspace_low, limits.workspace_high, config.rate_hz),),
        rate_hz=config.rate_hz,
    )


def tool_xy_rows(arm: SerialArm, mapping: TableMapping, q: Array) -> Array:
    """Tool positions ``[n, 2]`` [m] on the table for many joint positions ``q [n, joints]``.

    ``mapping.xy`` for all rows at once: states come at 500 Hz.
    """
    T = np.broadcast_to(inverse(np.array(mapping.T_base_table)), (len(q), 4, 4))
    for i, link in enumerate(arm.links):
        c, s = np.cos(q[:, i]), np.sin(q[:, i])
        ca, sa = np.cos(link.alpha), np.sin(link.alpha)
        A = np.zeros((len(q), 4, 4))
        A[:, 0, 0], A[:, 0, 1], A[:, 0, 2], A[:, 0, 3] = c, -s * ca, s * sa, link.a * c
        A[:, 1, 0], A[:, 1, 1], A[:, 1, 2], A[:, 1, 3] = s, c * ca, -c * sa, link.a * s
        A[:, 2, 1], A[:, 2, 2], A[:, 2, 3], A[:, 3, 3] = sa, ca, link.d, 1.0
        T = T @ A
    return T[:, :2, 3] + mapping.tool_length_m * T[:, :2, 2]


def _difference(wanted: Mapping[str, tuple[float, ...]], achieved: Mapping[str, Array]) -> str:
    told: list[str] = []
    for name, value in wanted.items():
        error = np.asarray(achieved[name]) - np.array(value)
        told.append(f"{name} off by {1e3 * float(np.hypot(error[0], error[1])):.1f} mm")
        if len(error) == 3:
            told[-1] += f" and {abs(float(np.degrees(wrap_angle(error[2])))):.1f} deg"
    return ", ".join(told)
