"""Supervises the arm: the only owner of the motion handle, between agent and driver.

:class:`Supervisor` is the logic of one tick, deterministic and testable without time;
``hardware/supervisor/process.py`` runs it at the robot's rate in a process of its own. Per tick it
reads requests and the newest command, checks the robot and the agent, makes one set-point, checks
that, sends it, and publishes what happened. It never waits for the agent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

from hardware.devices.robot import Robot, RobotMode, RobotState
from hardware.supervisor.checks import CollisionGuard, are_same
from hardware.supervisor.follower import Follower
from hardware.supervisor.gripper_keeper import Keeper, NoGripper
from hardware.supervisor.guided_move import GuidedMove
from hardware.supervisor.guided_plan import plan_move
from hardware.supervisor.hand_guiding import GuidedGripper, HandGuiding
from hardware.supervisor.link import (
    Cause,
    Event,
    Inbox,
    Link,
    Mode,
    Request,
    Status,
    SupervisorConfig,
)
from hardware.supervisor.link_pause import LinkPause
from hardware.supervisor.reports import Reports, cause_of, fault_of
from hardware.supervisor.watch.agent import AgentWatch
from hardware.supervisor.watch.motion import MotionCheck
from robolearn.arms.differential import Limited
from robolearn.arms.shapes import Joints
from robolearn.arms.slowing_watch import SlowingWatch
from robolearn.errors import ClockError, DataError, RobotError

log = logging.getLogger(__name__)


class Supervisor:
    """One tick at a time; see the module's docstring."""

    def __init__(
        self,
        robot: Robot,
        follower: Follower,
        config: SupervisorConfig,
        link: Link,
        inbox: Inbox,
        clock: Callable[[], int],
        *,
        real_time: bool = False,
        guard: CollisionGuard | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self._keeper, self._gripping = keeper or NoGripper(), False
        self.robot, self.follower, self.config = robot, follower, config
        self.mode, self.cause = Mode.HOLD, Cause.NONE
        self.finished = False
        self._link, self._inbox, self._clock = link, inbox, clock
        self._reports = Reports(link)
        self._real_time = real_time
        self._dt_s, self._late_state_s = 1.0 / robot.rate_hz, config.late_state_s(robot.rate_hz)
        self._ticks = self._missed = self._max_late_ns = 0
        self._pausing = self._state_late = False
        self._guided: GuidedMove | None = None
        self._pause = LinkPause(robot, config)
        self._agent = AgentWatch(follower, self._keeper, config, link, self._event)
        self._slowing = SlowingWatch(robot.rate_hz)
        self._answered, self._pending, self._refused = 0, 0, False
        self._closing = False
        self._device_t_s = -1.0
        self._stop_confirmed = True
        self._seen = robot.state()
        self._q: Joints = self._seen.joint_position.copy()
        self._action = follower.action(self._q)
        self._guard = guard
        self._measured = MotionCheck(config, self._q, robot.rate_hz, follower)
        guiding = GuidedGripper(self._agent.commands, self._keeper, link.commands)
        self._hand = HandGuiding(robot, follower, guard, config, guiding)
        self._check_robot(clock())
        self._publish(clock())

    def tick(self, now_ns: int, late_ns: int = 0, missed: int = 0) -> None:
        """Do everything once. ``late_ns`` and ``missed``: how the loop kept its deadlines."""
        self._ticks += 1
        self._missed, self._max_late_ns = missed, max(self._max_late_ns, late_ns)
        for request in self._inbox.read():
            self._handle(request, now_ns)
        if self._inbox.closed is not Cause.NONE and not self._closing:
            self._closing = True
            self._stop(self._inbox.closed, now_ns)
        self._check_robot(now_ns)
        self._check_gripper(now_ns)
        self._check_agent(now_ns)
        if self.mode is Mode.STOPPED:
            self._idle(now_ns)
        elif self.mode is Mode.FREEDRIVE:
            self._be_guided(now_ns)
        elif self._pause.active:
            self._wait_for_rest(now_ns)
        else:
            self._move(now_ns, late_ns)
        self._tell_slowing(now_ns)
        self._publish(now_ns)
        if self._closing and self.mode is Mode.STOPPED:
            self.finished = True

    # -- requests --------------------------------------------------------------------------------

    def _handle(self, request: Request, now_ns: int) -> None:
        self._pending, self._refused = request.number, False
        if request.kind == "close":
            self._closing = True
            self._stop(Cause.CLOSED, now_ns)
        elif request.kind == "estop":
            self._stop(Cause.ESTOP, now_ns)
        elif request.kind == "clear":
            self._clear(now_ns)
        elif self.mode in (Mode.STOPPED, Mode.STOPPING):
            self._answer(refused=True)
        elif request.kind == "hold":
            self._pausing = True
            if self.mode is Mode.HOLD:
                self._rest()
        elif self.mode is not Mode.HOLD:
            self._answer(refused=True)
        elif request.kind == "follow":
            self._follow(now_ns)
        elif request.kind == "grip":
            self._grip(request)
        elif request.kind == "freedrive":
            self._begin_freedrive(now_ns)
        else:
            self._goto(request, now_ns)

    def _follow(self, now_ns: int) -> None:
        try:
            self.follower.start(self._q)
        except DataError as error:
            log.warning("cannot follow from here: %s", error)
            self._event(Cause.UNREACHABLE, now_ns)
            self._answer(refused=True)
            return
        self._pausing = False
        self._agent.begin(now_ns)
        if self._guard is not None:
            self._guard.begin(self._q)
        self.mode = Mode.FOLLOW
        self._answer()

    def _grip(self, request: Request) -> None:
        """Between episodes; answered when the fingers have arrived."""
        widths = np.array([v for row in request.waypoints for v in row])
        self._gripping = len(widths) == len(self._keeper.goals) == 1 and self._keeper.aim(widths)
        if not self._gripping:
            log.warning("no gripper that could go to %s m", widths)
            self._answer(refused=True)

    def _goto(self, request: Request, now_ns: int) -> None:
        points = [np.array(w) for w in request.waypoints]
        wrong = not points or any(p.shape != self._q.shape for p in points)
        why = "wrong number of joints" if wrong else self._guide(points)
        if why:
            log.warning("guided move refused: %s", why)
            self._event(Cause.UNREACHABLE, now_ns)
            self._answer(refused=True)

    def _guide(self, points: Sequence[Joints]) -> str:
        """Begin a guided move from here; why not, or ""."""
        planned = plan_move(self._q, points, self.config, self.follower, self._guard, self._dt_s)
        if isinstance(planned, str):
            return planned
        self._guided, self.mode, self._pausing = planned, Mode.GOTO, False
        return ""

    def _clear(self, now_ns: int) -> None:
        if self.mode is not Mode.STOPPED or self._closing:
            self._answer(refused=self.mode is not Mode.HOLD)
            return
        try:
            self._keeper.recover(mounted=False)
            self.robot.connect()
            self._keeper.recover(mounted=True)
        except RobotError as error:
            log.warning("clear refused: %s", error)
            self._event(Cause.DRIVER_ERROR, now_ns)
            self._answer(refused=True)
            return
        self._measured.clear()
        self._event(Cause.OPERATOR_CLEAR, now_ns)
        self.cause = Cause.NONE
        self._take_over(self.robot.state().joint_position)

    def _take_over(self, q: Joints) -> None:
        """Hold the arm at ``q``, where it is."""
        self._q = q.copy()
        self._action = self.follower.action(self._q)
        self._measured.stands(self._q)
        self._rest()

    def _begin_freedrive(self, now_ns: int) -> None:
        if self.robot.freedrive is None:
            log.warning("this arm has no freedrive that the driver knows")
            self._answer(refused=True)
            return
        try:
            self._hand.begin(self._q)
        except RobotError as error:
            self._driver_failed("freedrive", error, now_ns)
            return
        self.mode = Mode.FREEDRIVE
        self._event(Cause.FREEDRIVE, now_ns)
        self._answer()

    def _answer(self, *, refused: bool = False) -> None:
        self._answered, self._refused = self._pending, refused

    def _rest(self) -> None:
        self.mode, self._guided, self._pausing = Mode.HOLD, None, False
        self._agent.rest()
        self._answer()

    # -- checks ----------------------------------------------------------------------------------

    def _check_robot(self, now_ns: int) -> None:
        try:
            state = self.robot.state()
        except RobotError as error:
            if self.mode is not Mode.STOPPED:
                log.warning("state: %s", error)
            cause = Cause.CLOCK_JUMP if isinstance(error, ClockError) else Cause.DRIVER_ERROR
            self._latch(cause, now_ns, reason=str(error))
            return
        self._seen, fresh = state, state.device_t_s != self._device_t_s
        if fresh:
            self._device_t_s = state.device_t_s
            self._reports.state(state)
        if self.mode is Mode.STOPPED:
            return
        if fresh:
            self._check_motion(state, now_ns)
        # The clock is read again: the driver may have seen the state after this tick began.
        age_s = (self._clock() - state.changed_ns) * 1e-9
        if age_s > self.config.state_stale_s:
            self._latch(Cause.STATE_STALE, now_ns, age_s, self.config.state_stale_s)
        elif state.mode is not RobotMode.RUNNING:
            reason = self.robot.fault_text()
            self._latch(fault_of(state.mode), now_ns, float(state.mode), reason=reason)
        self._note_state_age(age_s, now_ns)

    def _check_gripper(self, now_ns: int) -> None:
        if self.mode is Mode.STOPPED:
            return
        trouble = self._keeper.trouble(now_ns)
        if trouble is not None:
            tell = self._stop if trouble.latches else self._event
            tell(trouble.cause, now_ns, trouble.value, trouble.limit)
        elif self._gripping and self._keeper.settled:
            self._gripping = False
            self._answer()

    def _check_motion(self, state: RobotState, now_ns: int) -> None:
        if defect := self._measured.defect(state, now_ns, free=self.mode is Mode.FREEDRIVE):
            self._latch(defect.cause, now_ns, defect.value, defect.limit)

    def _note_state_age(self, age_s: float, now_ns: int) -> None:
        late = age_s > self._late_state_s
        if late and not self._state_late and self.mode is not Mode.HOLD:
            self._event(Cause.STATE_LATE, now_ns, age_s, self._late_state_s)
        self._state_late = late
        if late and self.mode in (Mode.FOLLOW, Mode.GOTO, Mode.STOPPING):
            try:
                self._pause.begin(now_ns)
            except RobotError as error:
                self._driver_failed("driver", error, now_ns)

    def _check_agent(self, now_ns: int) -> None:
        if self.mode not in (Mode.FOLLOW, Mode.GOTO, Mode.FREEDRIVE):
            return
        defect = self._agent.look(now_ns, follows=self.mode is Mode.FOLLOW)
        if defect is not None:
            self._stop(defect.cause, now_ns, defect.value, defect.limit)

    # -- motion ----------------------------------------------------------------------------------

    def _move(self, now_ns: int, late_ns: int) -> None:
        # What must bring the arm to a halt without latching, and the way to a latch.
        halted = self._pausing or self._state_late or self._agent.halting
        moving = self.mode is not Mode.STOPPING and not halted
        q, at_rest, rough, guided = self._q, True, "", self._guided is not None
        if self._guided is not None:
            q = self._guided.step(self._dt_s, moving=moving)
            at_rest = self._guided.at_rest
        elif self.mode in (Mode.FOLLOW, Mode.STOPPING):
            q = self.follower.step(self._dt_s, now_ns, moving=moving)
            at_rest, rough = self.follower.at_rest, self.follower.rough(q)
        why = self.follower.violation(q, self._q, self._dt_s, guided=guided) or rough
        why = why or self._too_near(q, now_ns)
        if why:
            log.error("set-point not sent: %s", why)
            self._latch(Cause.LIMIT_VIOLATION, now_ns, reason=why)
            return
        if not self._send(q, now_ns, late_ns):
            return
        if self.mode is Mode.STOPPING and at_rest:
            self._latch(self.cause, now_ns)
        elif (self._pausing and at_rest) or (self._guided is not None and self._guided.done):
            self._rest()

    def _wait_for_rest(self, now_ns: int) -> None:
        """The link has paused in motion: nothing is sent until the halted arm is seen at rest."""
        try:
            if self._pause.over(self._seen, now_ns, late=self._state_late):
                self._go_on_from(self._seen.joint_position.copy(), now_ns)
        except (RobotError, DataError) as error:
            self._driver_failed("after a pause of the link", error, now_ns)

    def _go_on_from(self, q: Joints, now_ns: int) -> None:
        """The way goes on from where the arm stands now; DataError when there is none."""
        self._pause.end()
        guided, target = self._guided, self._agent.target
        if self.mode is Mode.STOPPING:
            self._latch(self.cause, now_ns)
            return
        self._q, self._action = q, self.follower.action(q)
        self._measured.resumes(q, now_ns)
        if self._pausing:
            self._rest()
            return
        if guided is not None:
            if why := self._guide(guided.ahead):
                raise DataError(why)
            return
        self.follower.start(q)
        if self._guard is not None:
            self._guard.begin(q)
        if target is not None:
            self.follower.target(target, now_ns)

    def _be_guided(self, now_ns: int) -> None:
        wanted = not (self._pausing or self._agent.silent or self._state_late)
        try:
            end = self._hand.tick(self._seen, now_ns, wanted=wanted)
        except RobotError as error:
            self._driver_failed("freedrive", error, now_ns)
            return
        self._q = self._seen.joint_position.copy()
        if end is not None:
            cause = Cause.HAND_LIMIT if wanted else Cause.FREEDRIVE_ENDED
            self._event(cause, now_ns, end.value, end.limit)
            self._reports.reason(end.text, now_ns)
        if self._hand.done:
            self._take_over(self._q)

    def _too_near(self, q: Joints, now_ns: int) -> str:
        """Why ``q`` must not be sent, or "". Begins to brake when its way ahead is not clear."""
        if (guard := self._guard) is None:
            return ""
        guard.tick()
        if not (guard.gate_due or guard.ahead_due) or are_same(q, self._q):
            return ""
        here = guard.gate(q) if guard.gate_due else None
        if here is not None:
            return f"{here.kind}: {here.value:.4f} of {here.limit:.4f}"
        path = self.follower if self._guided is None else self._guided
        rest = path.rest(q, (q - self._q) / self._dt_s) if guard.ahead_due else None
        near = None if rest is None else guard.ahead(rest)
        if near is not None and self.mode is not Mode.STOPPING:
            log.warning("braking: %s would be %.4f of %.4f", near.kind, near.value, near.limit)
            self._stop(Cause.COLLISION, now_ns, near.value, near.limit)
        return ""

    def _send(self, q: Joints, now_ns: int, late_ns: int) -> bool:
        try:
            self.robot.servo(q)
        except (RobotError, DataError) as error:
            self._driver_failed("driver", error, now_ns)
            return False
        if self.mode is not Mode.HOLD:
            self._action = self.follower.action(q)
        self._pause.sent(now_ns, moving=not are_same(q, self._q))
        self._q = q
        self._measured.sent(q)
        target = self._agent.target if self.mode is Mode.FOLLOW else None
        seq = -1 if target is None else target.seq
        row = [seq, late_ns, *self._action.tolist(), *q.tolist(), *self._keeper.goals]
        self._link.sent.put(now_ns, row)
        return True

    def _idle(self, now_ns: int) -> None:
        if not self._stop_confirmed:
            # Silence: whatever the device is still doing, its own watchdog ends it.
            return
        try:
            self.robot.keep_alive()
        except RobotError as error:
            log.debug("keep alive at %d: %s", now_ns, error)

    def _stop(self, cause: Cause, now_ns: int, value: float = 0.0, limit: float = 0.0) -> None:
        """Decelerate, then latch. The first cause stays."""
        if self.mode in (Mode.STOPPED, Mode.STOPPING):
            if self.mode is Mode.STOPPED:
                self._answer()
            return
        if self.mode is Mode.FREEDRIVE:
            # There is no plan to brake along: the device makes the arm stiff.
            self._latch(cause, now_ns, value, limit)
            return
        if cause is not Cause.CLOSED or self.mode is not Mode.HOLD:
            self._event(cause, now_ns, value, limit)
        self.cause, self.mode = cause, Mode.STOPPING
        self._reports.reason("", now_ns)
        self._hold_gripper()
        if self._guided is None and self.follower.at_rest:
            self._latch(cause, now_ns)

    def _driver_failed(self, what: str, error: Exception, now_ns: int) -> None:
        log.error("%s: %s", what, error)
        cause, value, reason = cause_of(self.robot, error)
        self._latch(cause, now_ns, value, reason=reason)

    def _latch(
        self, cause: Cause, now_ns: int, value: float = 0.0, limit: float = 0.0, reason: str = ""
    ) -> None:
        """No further set-points; the device stops on its own ramp. ``reason``: its words."""
        if self.mode is Mode.STOPPED:
            return
        if self.mode is not Mode.STOPPING:
            self._event(cause, now_ns, value, limit)
            self.cause = cause
            self._reports.reason(reason, now_ns)
            self._hold_gripper()
        self.mode, self._guided, self._pausing = Mode.STOPPED, None, False
        self._agent.rest()
        self._pause.end()
        if self._pending != self._answered:
            # An estop or close asked for exactly this; any other open request has failed.
            self._answer(refused=self.cause not in (Cause.ESTOP, Cause.CLOSED))
        # Said before the device is asked, which may take half a second when it hangs.
        self._publish(now_ns)
        self._stop_confirmed = self.robot.stop()
        if not self._stop_confirmed:
            log.warning("the device did not confirm the stop; its watchdog stops it")

    def _hold_gripper(self) -> None:
        """Fingers in motion stop; what is held stays held."""
        self._gripping = False
        self._keeper.hold()

    # -- telling ---------------------------------------------------------------------------------

    def _event(
        self, cause: Cause, now_ns: int, value: float = 0.0, limit: float = 0.0, seq: int = -1
    ) -> None:
        if seq < 0 and self._agent.target is not None:
            seq = self._agent.target.seq
        self._reports.event(Event(now_ns, cause, value, limit, seq))

    def _tell_slowing(self, now_ns: int) -> None:
        following = self.mode is Mode.FOLLOW
        told = self._slowing.changed(self.follower.limited if following else Limited.NONE)
        if told is not None:
            self._event(Cause(told), now_ns, *self.follower.limit_of(told))

    def _publish(self, now_ns: int) -> None:
        status = Status(
            *(now_ns, self.mode, self.cause, self._answered, self._refused),
            *(self._ticks, self._missed, self._max_late_ns, self._real_time),
        )
        self._reports.status(status)
