"""Starts the supervisor's process, sends it commands, reads what happened: the agent's side."""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hardware.devices.gripper import GripperState
from hardware.devices.gripper_config import GripperCellConfig
from hardware.devices.robot import ConnectWatch, Robot, RobotState
from hardware.shapes import Action
from hardware.supervisor.link import (
    GRIPPER_CAUSES,
    LINK_CAUSES,
    Cause,
    Event,
    Link,
    Mode,
    Request,
    RequestKind,
    Status,
    SupervisorConfig,
    Target,
    robot_state_of,
    unpack_text,
)
from hardware.supervisor.process import FollowerRecipe, run_supervisor
from hardware.supervisor.shared_memory import Rows
from robolearn import errors
from robolearn.arms.shapes import Joints
from robolearn.errors import (
    DataError,
    GripperError,
    LinkStopError,
    RobolearnError,
    RobotConnectionError,
    RobotError,
    SafetyStopError,
    StaleSignalError,
)
from robolearn.machine.threads import one_thread_in_children
from robolearn.shapes import AnyFloats

log = logging.getLogger(__name__)

_HEARTBEAT_S = 0.02
# A device that hangs may keep the supervisor for half a second while it is asked to stop.
_STATUS_LIMIT_S = 1.0


class SupervisorClient:
    """Owns the supervisor's process; the arm moves only through it."""

    def __init__(
        self,
        build_robot: Callable[[], Robot],
        follower: FollowerRecipe,
        config: SupervisorConfig,
        *,
        start_timeout_s: float = 120.0,
        real_time: bool = True,
        watch: Callable[[], ConnectWatch] | None = None,
        gripper: GripperCellConfig | None = None,
    ) -> None:
        """``start_timeout_s``: the first start on a machine compiles what makes set-points, which
        takes half a minute of a processor. ``real_time``: take real-time priority where that is
        permitted. ``watch`` looks at the device while the supervisor connects, so that a hang is
        told within its limit.
        """
        self.config = config
        self._watch = watch
        looking = None if watch is None else _seen_alive(watch)
        self._width, self._grips = follower.width, 0 if gripper is None else 1
        self._link = Link.create(follower.joints, follower.width, grips=self._grips)
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe(duplex=True)
        level = logging.getLogger().getEffectiveLevel()
        arguments = (
            *(build_robot, follower, config, self._link.handles),
            *(theirs, level, real_time, gripper),
        )
        # A daemon process gets SIGTERM when this interpreter ends, which means a controlled stop.
        self._process = context.Process(
            target=run_supervisor, args=arguments, name="supervisor", daemon=True
        )
        with one_thread_in_children():
            self._process.start()
        theirs.close()
        self._number = 0
        self._sending = threading.Lock()
        self._event_index = 0
        self._closed = False
        self._stop_beating = threading.Event()
        self._beat: threading.Thread | None = None
        try:
            ready = self._handshake(start_timeout_s, looking)
        except BaseException:
            # Nothing has moved yet, and a vendor's call that hangs would not let it end.
            self._process.kill()
            self._link.unlink()
            self.close()
            raise
        finally:
            if looking is not None:
                looking.close()
        # From here on nothing is left behind in /dev/shm, whoever is killed.
        self._link.unlink()
        self.real_time = bool(ready["real_time"])
        self.pid = int(ready["pid"])
        # Whether a hand can guide this arm.
        self.freedrive = bool(ready["freedrive"])
        if not ready["watchdog"]:
            log.warning("this device has no watchdog: if the supervisor dies it does not stop")
        self._beat = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)
        self._beat.start()

    # -- commands and requests -------------------------------------------------------------------

    def command(self, target: Target) -> None:
        """Leave the newest decision for the supervisor; never blocks. DataError for a shape, and
        the arm brakes.
        """
        width, grips = self._width, self._grips
        if target.value.shape != (width,) or target.plan.shape[1:] != (width,):
            self.spoil()
            raise DataError(
                f"expected a target of {width} values and a plan of shape (k, {width}), got"
                f" {target.value.shape} and {target.plan.shape}"
            )
        if target.gripper.shape != (grips,):
            self.spoil()
            raise DataError(f"expected {grips} width(s) of a gripper, got {target.gripper.shape}")
        self._link.commands.put(time.monotonic_ns(), target.pack())

    def spoil(self) -> None:
        """The agent's decision is none that could be sent: brake until a good command arrives."""
        nothing = np.full(self._width, np.nan), np.zeros((0, self._width))
        bad = Target(-1, 0, *nothing, np.full(self._grips, np.nan))
        self._link.commands.put(time.monotonic_ns(), bad.pack())

    def request(
        self,
        kind: RequestKind,
        waypoints: Sequence[Joints] = (),
        *,
        timeout_s: float = 30.0,
        looking: ConnectWatch | None = None,
    ) -> None:
        """Ask and wait until it is done. ``goto`` is done when the arm has arrived, ``freedrive``
        when a hand may guide it (``hold`` ends it).

        Raises SafetyStopError when a stop is latched, RobotError when it was refused, and
        RobotConnectionError when the supervisor is gone.
        """
        number = self._send(kind, waypoints)
        try:
            status = self._wait_answered(kind, number, timeout_s, looking)
        except BaseException:
            if kind in ("goto", "freedrive"):
                # Nobody waits for this any more: the arm must not go on with it.
                with contextlib.suppress(RobotError):
                    self._send("hold")
            raise
        # Another thread may have stopped the arm meanwhile, and its answer is the newest one.
        stopped = status.mode in (Mode.STOPPING, Mode.STOPPED) and kind not in ("estop", "clear")
        if status.refused or stopped:
            self._raise_refused(kind, status)

    def grip(self, width_m: float, *, timeout_s: float = 10.0) -> None:
        """Move the gripper while the arm holds; returns when it arrived or holds something."""
        self.request("grip", [np.array([width_m])], timeout_s=timeout_s)

    def estop(self) -> None:
        """Emergency stop: decelerate at once and latch."""
        self.request("estop", timeout_s=5.0)

    def clear(self) -> None:
        """The operator's explicit recovery from a latched stop (reconnects the robot).

        A device that hangs meanwhile may take the supervisor with it: RobotConnectionError, and
        the way back is a new start.
        """
        looking = None if self._watch is None else _seen_alive(self._watch)
        try:
            self.request("clear", timeout_s=20.0, looking=looking)
        finally:
            if looking is not None:
                looking.close()

    # -- reading ---------------------------------------------------------------------------------

    def status(self, *, limit_s: float = _STATUS_LIMIT_S) -> Status:
        """Newest status; raises RobotConnectionError when the supervisor is dead or silent."""
        row = self._link.status.latest()
        if row is not None and self._process.is_alive():
            status = Status.unpack(row)
            if (time.monotonic_ns() - status.t_ns) * 1e-9 < limit_s:
                return status
        raise self._gone()

    def require_running(self) -> Status:
        """Status, or SafetyStopError that names the cause of a stop, in the device's words where it
        has any.
        """
        status = self.status()
        if status.mode in (Mode.STOPPING, Mode.STOPPED):
            kind = SafetyStopError
            if status.cause in GRIPPER_CAUSES:
                kind = GripperError
            elif status.cause in LINK_CAUSES:
                kind = LinkStopError
            reason = self.reason
            cause = status.cause.name.lower() + (f" ({reason})" if reason else "")
            raise kind(
                f"the supervisor stopped the arm: {cause}. Find the cause, make the cell safe,"
                " then clear the stop (RealEnv.clear_stop, or start again)"
            )
        return status

    @property
    def reason(self) -> str:
        """Why the arm stopped, or a hand lost it, in words; "" where nobody has any."""
        return unpack_text(self._link.reason.latest())

    def require_freedrive(self) -> None:
        """RobotError for an arm that no hand can guide."""
        if not self.freedrive:
            raise RobotError(
                "no hand can guide this arm: its driver has no freedrive (docs/robots.md says which"
                " have one). Drive it by a device"
            )

    def state(self) -> RobotState:
        """Newest robot state; raises StaleSignalError when the device clock stands still."""
        row = self._link.states.latest()
        if row is None:
            raise StaleSignalError("no robot state has arrived yet")
        state = robot_state_of(row.t_ns, row.value)
        age_s = (time.monotonic_ns() - state.changed_ns) * 1e-9
        if age_s > self.config.state_stale_s:
            raise StaleSignalError(
                f"robot state is {1e3 * age_s:.0f} ms old (limit"
                f" {1e3 * self.config.state_stale_s:.0f} ms); check the link and the controller"
            )
        return state

    def states(self, index: int) -> Rows:
        """Robot states from running number ``index`` on."""
        return self._link.states.since(index)

    def sent(self, index: int) -> Rows:
        """What was sent, from running number ``index`` on."""
        return self._link.sent.since(index)

    def gripper_states(self, index: int) -> Rows:
        """States ``[width, moving, holding]`` of the gripper from running number ``index`` on."""
        return self._link.grips.since(index)

    def gripper_state(self) -> GripperState:
        """Newest state of the gripper; StaleSignalError while there is none."""
        row = self._link.grips.latest()
        if row is None:
            raise StaleSignalError("no state of a gripper has arrived yet")
        width, moving, holding = row.value.tolist()
        return GripperState(row.t_ns, width, moving=bool(moving), holding=bool(holding))

    def counts(self) -> tuple[int, int]:
        """How many states and how many set-points there were so far."""
        return self._link.states.count, self._link.sent.count

    def events(self) -> list[Event]:
        """Interventions since the last call."""
        rows = self._link.events.since(self._event_index)
        self._event_index = rows.next_index
        return [
            Event(int(t), Cause(int(v[0])), float(v[1]), float(v[2]), int(v[3]))
            for t, v in zip(rows.t_ns.tolist(), rows.value, strict=True)
        ]

    def close(self) -> None:
        """Stop the arm, end the process; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._send("close")
        except RobotError:
            log.debug("the supervisor is gone already")
        self._process.join(5.0)
        self._stop_beating.set()
        # A closed pipe is the second way of saying it; killing the process is the last.
        self._pipe.close()
        self._process.join(2.0)
        if self._process.is_alive():
            log.error("the supervisor does not end; killed. The device's watchdog stops the arm")
            self._process.kill()
            self._process.join(2.0)
        if self._beat is not None:
            self._beat.join(1.0)
        self._link.close()

    # -- inside ----------------------------------------------------------------------------------

    def _send(self, kind: RequestKind, waypoints: Sequence[Joints] = ()) -> int:
        """The request's number. An emergency stop may come from another thread."""
        rows = tuple(tuple(float(v) for v in w) for w in waypoints)
        with self._sending:
            self._number += 1
            try:
                self._pipe.send_bytes(Request(self._number, kind, rows).encode())
            except OSError as error:
                raise self._gone() from error
            return self._number

    def _wait_answered(
        self, kind: RequestKind, number: int, timeout_s: float, looking: ConnectWatch | None
    ) -> Status:
        deadline = time.monotonic() + timeout_s
        while True:
            if looking is not None and (problem := looking.problem()):
                # It hangs in the vendor's library and could not even be asked to end; the arm
                # stands already.
                self._process.kill()
                raise RobotConnectionError(problem)
            status = self.status(limit_s=15.0 if kind == "clear" else _STATUS_LIMIT_S)
            if status.answered >= number:
                return status
            if time.monotonic() > deadline:
                raise RobotError(f"the supervisor did not finish '{kind}' within {timeout_s:g} s")
            time.sleep(0.004)

    def _beat_on(self) -> None:
        while not self._stop_beating.is_set():
            self._link.heartbeat.put(time.monotonic_ns(), [0.0])
            self._stop_beating.wait(_HEARTBEAT_S)

    def _handshake(self, timeout_s: float, looking: ConnectWatch | None) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        try:
            while not self._pipe.poll(0.01):
                if looking is not None and (problem := looking.problem()):
                    raise RobotConnectionError(problem)
                if time.monotonic() > deadline:
                    raise RobotConnectionError(
                        f"the supervisor was not ready within {timeout_s:g} s"
                    )
            answer: dict[str, Any] = json.loads(self._pipe.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._gone() from error
        if answer["kind"] == "ready":
            return answer
        kind = getattr(errors, str(answer["error"]) or "RobotError", RobotError)
        known = kind if issubclass(kind, RobolearnError) else RobotError
        raise known(str(answer["text"]))

    def _gone(self) -> RobotConnectionError:
        alive = self._process.is_alive()
        state = "is silent" if alive else f"ended with exit code {self._process.exitcode}"
        return RobotConnectionError(
            f"the supervisor process {state}; the device's watchdog stops the arm. Look at its log"
            " above, make the cell safe, and start again"
        )

    def _raise_refused(self, kind: str, status: Status) -> None:
        if status.mode in (Mode.STOPPING, Mode.STOPPED) and kind != "clear":
            self.require_running()
        raise RobotError(
            f"the supervisor refused '{kind}' in mode {status.mode.name.lower()}"
            f" (cause {status.cause.name.lower()}); its log says why"
        )


def _seen_alive(watch: Callable[[], ConnectWatch]) -> ConnectWatch:
    """A watch that has seen its device live; raises RobotConnectionError when there is none."""
    looking = watch()
    try:
        looking.wait()
    except BaseException:
        looking.close()
        raise
    return looking


def require_width(action: AnyFloats, width: int) -> Action:
    """The action as a flat float array; raises DataError for another shape."""
    value = np.asarray(action, dtype=np.float64)
    if value.shape != (width,):
        raise DataError(f"expected an action of shape ({width},), got {value.shape}")
    return value
