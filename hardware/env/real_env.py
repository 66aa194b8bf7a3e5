"""Runs a robot and its trackers behind the ``Env`` contract. The supervisor lives inside it.

No caller can move the arm without the supervisor: it owns the only motion handle, and this class
only leaves it targets. Time is the monotonic clock; :meth:`RealEnv.advance` waits for absolute
deadlines.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol, runtime_checkable

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.motion import JOINT_POSITION, JOINT_SETPOINT, JOINT_VELOCITY, WRENCH
from hardware.cell.spec import EVENT, cell_spec
from hardware.cell.start import require_start, start_offsets
from hardware.devices.gripper_config import WIDTH
from hardware.env.event_stream import EventStream
from hardware.env.gripper_stream import GripperStream
from hardware.env.placing import MakesWay, ResetProcedure
from hardware.streams.camera_streams import CameraStreams
from hardware.streams.signal_buffer import SignalBuffer
from hardware.streams.state_timestamps import StateTimes
from hardware.streams.tracker_streams import TrackedStreams
from hardware.supervisor.client import SupervisorClient, require_width
from hardware.supervisor.link import (
    STATE_HEAD,
    STATE_WRENCH,
    Cause,
    Event,
    Mode,
    Status,
    Target,
)
from hardware.supervisor.reports import guiding_ended
from robolearn.arms.shapes import Joints
from robolearn.arms.slowing import Slowed
from robolearn.errors import DataError, RobotError, SafetyStopError, StartError
from robolearn.spec import EmbodimentSpec
from robolearn.timing.clocks import Rate
from robolearn.types import (
    Capabilities,
    Command,
    Condition,
    Observation,
    Outcome,
    ResetReport,
    Sample,
    SampleBatch,
    SentBlock,
    Signals,
)

log = logging.getLogger(__name__)

_REST_RAD_S, _REST_SAMPLES = 0.01, 6
# Nobody takes an older picture for what there is.
_OLD_NS = 1_000_000_000
# What an arm that presses on something stops for: by its force, where it is held up, by itself.
_PRESSED = (Cause.OVERLOAD, Cause.FOLLOWING_ERROR, Cause.ROBOT_FAULT)


@runtime_checkable
class Scorer(Protocol):
    """Judges the task from the newest signals or from outside (a lab's truth, an operator)."""

    def reset(self) -> None:
        """An episode starts."""
        ...

    def judge(self, values: Signals) -> Outcome:
        """How the task stands now; success is sticky."""
        ...


class RealEnv:
    """One arm, commanded over a table or in joint space, its gripper, and what its trackers follow.

    A policy that does not command the gripper leaves it as the reset did.
    """

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
        follower = config.follower()
        self._joints, self._motion = follower.joints, config.motion()
        self._spec = cell_spec(config)
        self._capabilities = Capabilities(
            settable_poses=settable_poses, true_state=False, faster_than_real_time=False
        )
        self.cameras = CameraStreams(config.cameras)
        with ExitStack() as undo:
            undo.callback(self.cameras.close)
            self.trackers = TrackedStreams(config.trackers, self.cameras)
            undo.callback(self.trackers.close)
            self.supervisor = SupervisorClient(
                *(config.robot_builder(), follower, config.supervisor),
                watch=config.connect_watch(),
                gripper=config.gripper,
            )
            undo.pop_all()
        self._gripper = GripperStream(config.gripper, self.supervisor)
        self._buffers = {s.name: SignalBuffer(s) for s in self._spec.signals}
        # What happened is told when it happened, whenever that was.
        names = [EVENT.name, *(goal.name for goal in config.goals)]
        self._aligned = [
            s.name for s in self._spec.signals if not s.is_image and s.name not in names
        ]
        self._rate = Rate(config.rate_hz)
        self._state_times = StateTimes(config.name, config.state_clock, config.state_latency_s)
        self._state_index = self._sent_index = self._setpoint_index = 0
        self._outcome: Outcome | None = None
        self._implausible = 0
        self._events = EventStream(self.supervisor)
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
    def overruns(self) -> int:
        """Control ticks that were skipped since the reset because the loop was late."""
        return self._rate.missed

    @property
    def implausible_poses(self) -> int:
        """Measurements of trackers that were not believed since the reset."""
        return self.trackers.implausible - self._implausible

    @property
    def standing(self) -> Signals:
        """What stays in force of the actions that a command may leave out: the gripper's width."""
        return self._gripper.standing

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Out of the way, let the objects be placed, to the start, measure the start.

        Raises SafetyStopError while a stop is latched, StaleSignalError for an object that is not
        tracked, StartError for a start beyond the cell's tolerance.
        """
        del rng
        begin = self._motion.start(condition)
        self._require_known(condition)
        self.hold()
        self.goto(self._motion.clear(condition, self.supervisor.state().joint_position))
        self._wait_at_rest()
        self._gripper.make_ready(condition)
        note = self._place(condition)
        self.trackers.forget()
        self.goto(begin)
        return self._follow_from(condition, note)

    def begin(self, condition: Condition, *, guided: bool = False) -> ResetReport:
        """As :meth:`reset`, of an arm that stands at the start already, at which somebody looked
        meanwhile: nothing is moved, the start is measured anew. ``guided``: a hand guides the arm
        from now on, and of the commands the gripper's part alone is followed.

        Raises as :meth:`reset`: an object may have been touched.
        """
        self._require_known(condition)
        self.hold()
        self.trackers.forget()
        return self._follow_from(condition, "", guided=guided)

    def _follow_from(self, condition: Condition, note: str, *, guided: bool = False) -> ResetReport:
        """Commands are followed from now on, or a hand; the start as it is measured."""
        wanted = condition.poses
        self.trackers.wait(2.0)
        if guided:
            self.guide()
            # That it began is no intervention in the episode.
            self._take_events()
        else:
            self.supervisor.request("follow")
        self._start_streams(condition)
        self._scorer.reset()
        self._outcome = None
        observation = self.observe()
        achieved = {name: observation.value(name) for name in wanted}
        self._rate = Rate(self.config.rate_hz)
        placed = {n: v for n, v in wanted.items() if n not in [g.name for g in self.config.goals]}
        offsets = start_offsets(placed, achieved)
        try:
            require_start(condition.id, offsets, self.config.start_tolerance)
        except StartError:
            self.hold()
            raise
        text = "; ".join(t for t in (note, ", ".join(o.text() for o in offsets)) if t)
        return ResetReport(condition, achieved, text, self.config.standard_errors)

    def watch(self, condition: Condition) -> Observation:
        """Begin an episode in which nothing is moved: the arm holds, streams and score start; of
        the condition only its goals count.
        """
        self.hold()
        self._wait_for_setpoint()
        self.trackers.forget()
        self.trackers.wait(2.0)
        self._start_streams(condition)
        self._scorer.reset()
        self._outcome = None
        observation = self.observe()
        self._rate = Rate(self.config.rate_hz)
        return observation

    def now_ns(self) -> int:
        """The monotonic clock."""
        return time.monotonic_ns()

    def observe(self) -> Observation:
        """Newest sample of every signal; with ``align`` as of that camera's newest picture.

        Raises StaleSignalError when one is too old, CameraError for a black camera.
        """
        self.supervisor.require_running()
        self.supervisor.state()
        self.trackers.require_fresh()
        self.cameras.require_fresh()
        self._collect()
        samples: dict[str, Sample] = {}
        if self.config.align:
            picture = self._buffers[f"{self.config.align}/image"].newest()
            samples = {name: self._buffers[name].at(picture.t_ns) for name in self._aligned}
        samples = {n: samples.get(n) or b.newest() for n, b in self._buffers.items()}
        return Observation(time.monotonic_ns(), samples)

    def look(self) -> Observation:
        """What somebody sees who waits between two episodes: the newest samples, also while objects
        are covered by hands or a stop is latched. Nothing of it is kept; old pictures are left out.
        """
        self._collect()
        now = time.monotonic_ns()
        samples: dict[str, Sample] = {}
        for name, buffer in self._buffers.items():
            last = buffer.last
            if last is not None and (last.value.ndim < 3 or now - last.t_ns < _OLD_NS):
                samples[name] = last
            buffer.forget()
        return Observation(now, samples)

    def apply(self, command: Command) -> None:
        """Leave the command with the supervisor, which limits it. DataError for one without this
        cell's action, or of another shape; then the arm brakes.
        """
        try:
            target = self._target(command)
        except DataError:
            self.supervisor.spoil()
            raise
        self.supervisor.command(target)

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
        mine, action = rows.value[:, 0] >= 0, self._motion.action
        parts = {action.name: rows.value[mine, 2 : 2 + action.size].copy()}
        if self._gripper.count:
            parts[WIDTH] = rows.value[mine, -1:].copy()
        seq = rows.value[mine, 0].astype(np.int64)
        sent = SentBlock(seq=seq, t_ns=rows.t_ns[mine], action=parts)
        return SampleBatch({n: b.drain() for n, b in self._buffers.items()}, sent)

    def late(self, until_ns: int) -> SampleBatch | None:
        """Pictures of an episode that ends which came since the last drain or are still under way,
        waited for while the arm holds, and what else came meanwhile; None without cameras.
        """
        if not self.config.cameras:
            return None
        if self.cameras.behind(until_ns):
            with contextlib.suppress(SafetyStopError):
                self.hold()
            self.cameras.wait_until_shown(until_ns)
        return self.drain()

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
        self.trackers.close()
        self.cameras.close()

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

    def goto(self, waypoints: Sequence[Joints]) -> None:
        """A slow guided move through joint waypoints [rad]; returns at rest at the last."""
        before, moves = self.supervisor.state().joint_position, list[Joints]()
        for waypoint in waypoints:
            # A way may end where it began: what counts is the waypoint before.
            if float(np.abs(waypoint - before).max()) > 1e-6:
                moves.append(waypoint)
            before = waypoint
        if moves:
            self.supervisor.request("goto", moves, timeout_s=60.0)

    def guide(self) -> None:
        """Let a hand guide the arm from here until :meth:`hold`, or until a limit ends it: the mode
        is HOLD again then. Raises RobotError for an arm that has no freedrive.
        """
        self.supervisor.require_freedrive()
        self.hold()
        self.supervisor.request("freedrive", timeout_s=5.0)

    @property
    def guided_until(self) -> str:
        """Why a hand guides the arm no more, in words; "" while it does."""
        if self.status().mode is Mode.FREEDRIVE:
            return ""
        self._take_events()
        return guiding_ended(self.interventions, self.supervisor.reason)

    def home(self) -> None:
        """To where the arm rests between deployments."""
        self.hold()
        self.goto(self._motion.home(self.supervisor.state().joint_position))

    @property
    def interventions(self) -> list[Event]:
        """What the supervisor did since the reset."""
        return self._events.interventions

    @property
    def slowed(self) -> str:
        """What keeps the arm from doing all that is commanded, in words; "" for nothing."""
        seen = self._buffers[JOINT_POSITION].last
        if self._events.slowed is Slowed.OVER or seen is None:
            return ""
        return f"slowed: {self._motion.slowed(self._events.slowed, seen.value.astype(np.float64))}"

    def release(self) -> None:
        """Open the gripper where the arm stands (whoever asks has seen to what it holds)."""
        self.hold()
        if self.config.gripper is not None:
            self._gripper.go(self.config.gripper.high_m)

    def estop(self) -> None:
        """Emergency stop: brake at once and latch."""
        self.supervisor.estop()
        self._take_events()

    def clear_stop(self) -> None:
        """The operator's explicit recovery from a latched stop. Where the arm may press on
        something it would stop again at once: a hand that can makes way for it first.
        """
        # At every try: where things were laid before may be where the arm presses.
        if self.status().cause in _PRESSED and isinstance(self._place, MakesWay):
            self._place.make_way()
        self.supervisor.clear()
        self._state_times.restart()
        self._take_events()

    # -- inside ----------------------------------------------------------------------------------

    def _target(self, command: Command) -> Target:
        name, width = self._motion.action.name, self._motion.action.size
        if name not in command.action:
            raise DataError(f"command lacks '{name}'; it has {sorted(command.action)}")
        value = require_width(np.asarray(command.action[name], dtype=np.float64), width)
        grip = self._gripper.command(command.action)
        plan = np.zeros((0, width)) if command.plan is None else command.plan
        if plan.ndim != 2 or plan.shape[1] not in (width, width + len(grip)):
            raise DataError(f"expected a plan of shape (k, {width + len(grip)}), got {plan.shape}")
        # Nothing follows the gripper's part of a plan: without commands it stays as it is.
        return Target(command.seq, command.due_ns, value, plan[:, :width], grip)

    def _require_known(self, condition: Condition) -> None:
        """Before anything moves."""
        for goal in self.config.goals:
            goal.value(condition)
        unknown = sorted(set(condition.poses) - set(self._buffers))
        if unknown:
            raise DataError(
                f"condition '{condition.id}' names {unknown}, which '{self.config.name}' cannot"
                f" tell; its signals: {sorted(self._buffers)}"
            )

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

    def _wait_for_setpoint(self, timeout_s: float = 2.0) -> None:
        """A supervisor that has just started sends its first one a tick later."""
        deadline = time.monotonic() + timeout_s
        while not self.supervisor.counts()[1] and time.monotonic() < deadline:
            time.sleep(0.002)

    def _start_streams(self, condition: Condition) -> None:
        goals = {goal.name: goal.value(condition) for goal in self.config.goals}
        for buffer in self._buffers.values():
            buffer.clear()
        states, sent = self.supervisor.counts()
        self._state_index, self._sent_index = max(0, states - 1), sent
        # The first observation shows in what set-point the episode begins.
        self._setpoint_index = max(0, sent - 1)
        self.tick_lateness_ns = []
        self._implausible = self.trackers.implausible
        self._events.restart(self._buffers)
        for name, value in goals.items():
            self._buffers[name].add(time.monotonic_ns(), value)
        self._gripper.restart(self._buffers)
        self.trackers.restart(self._buffers)
        if self.config.align:
            # The first picture shows what these streams have seen.
            self.cameras.wait_after(self.config.align, time.monotonic_ns())
        self.cameras.restart(self._buffers)

    def _collect(self) -> None:
        rows = self.supervisor.states(self._state_index)
        self._state_index = rows.next_index
        n = self._joints
        if len(rows.t_ns):
            t_ns = self._state_times.measured_ns(rows.value[:, 0], rows.t_ns)
            q = rows.value[:, STATE_HEAD : STATE_HEAD + n]
            for name, values in self._motion.derived(q).items():
                self._buffers[name].extend(t_ns, values)
            self._buffers[JOINT_POSITION].extend(t_ns, q)
            self._buffers[JOINT_VELOCITY].extend(t_ns, rows.value[:, STATE_HEAD + n :])
            if self.config.wrench:
                self._buffers[WRENCH].extend(t_ns, rows.value[:, STATE_WRENCH])
        self._collect_setpoints()
        self._gripper.collect(self._buffers)
        self.trackers.collect(self._buffers)
        self.cameras.collect(self._buffers)
        self._take_events()

    def _collect_setpoints(self) -> None:
        """Whoever decided: an agent, a guided move, braking. None while a hand guides the arm, the
        link pauses or a stop is latched, since then nothing is sent.
        """
        rows = self.supervisor.sent(self._setpoint_index)
        self._setpoint_index = rows.next_index
        begin = 2 + self._motion.action.size
        self._buffers[JOINT_SETPOINT].extend(rows.t_ns, rows.value[:, begin : begin + self._joints])

    def _take_events(self) -> None:
        self._events.collect(self._buffers)
