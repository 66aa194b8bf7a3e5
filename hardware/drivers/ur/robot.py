"""Drives Universal Robots arms through the vendor-independent ``ur_rtde`` library.

What its client does when the controller hangs or dies was measured against an emulated controller:
``servoJ`` keeps returning True, getters keep returning the last values, ``isConnected()`` needs
2.5 s, a blocking call may never return. Hence: liveness is the age of the last changed controller
time stamp, nothing moves before the controller's own watchdog is armed, and every call into the
control interface runs on a :class:`VendorThread` that can be abandoned.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from hardware.devices.claim import DeviceClaim
from hardware.devices.robot import Freedrive, RobotMode, RobotState
from hardware.drivers.polling.vendor_thread import VendorThread
from hardware.drivers.ur.dashboard import URRecovery
from hardware.drivers.ur.library import import_ur_rtde
from hardware.drivers.ur.reading import (
    Silence,
    fault_text,
    load_of,
    mode_of,
    read,
    silenced,
    why_refused,
)
from hardware.drivers.ur.threads import leave, receiving, waiting
from hardware.drivers.ur.tool import ToolServo
from hardware.drivers.ur.watch import URWatch
from robolearn.arms.models import ARMS
from robolearn.arms.shapes import Joints
from robolearn.errors import (
    ClockError,
    ConfigError,
    DataError,
    RobotConnectionError,
    RobotError,
)
from robolearn.timing.clocks import ClockAnchor

log = logging.getLogger(__name__)

# On a link that broke, servoJ connects again, uploads its program (without the watchdog) and sends:
# a call that takes this long has done so [s]. The newest set-point would then be a jump for the
# controller, which stood still; at 3 rad/s the link may pause for 25 ms.
_LONGEST_CALL_S = 0.09
_LARGEST_STEP_RAD = 0.075
# From the end of a one-shot command until the client knows that the next one may come [s].
_READY_S = 0.01
# What the client says while another writes the inputs; for how long one may just be leaving [s].
_TAKEN, _LEFT_S = "already in use", 1.5
# How long an earlier connection may take to close [s].
_LEAVE_S = 5.0
# A state this new, and this slow, shows an arm at rest.
_FRESH_NS, _REST_RAD_S = 50_000_000, 0.01


@dataclass(frozen=True, slots=True)
class URConfig:
    """A UR arm (CB3 or e-series)."""

    # Force and torque at the tool.
    tells_wrench: ClassVar[bool] = True

    # Host name or IP of the controller.
    address: str
    # Set-point rate [Hz]: 500 for e-series, 125 for CB3.
    rate_hz: float = 500.0
    # The controller stops the program when commands come more slowly than this [Hz].
    watchdog_hz: float = 10.0
    # servoJ smoothing [s], 0.03 to 0.2.
    lookahead_s: float = 0.03
    # servoJ proportional gain, 100 to 2000.
    gain: float = 500.0
    # Joint deceleration of servoStop [rad/s^2].
    stop_deceleration: float = 8.0
    # Bound for connecting and uploading the control program [s].
    connect_timeout_s: float = 10.0
    # What each joint's motor may draw [A], for the joint load; null: the load is not known (the
    # vendor does not publish it: take what your heaviest good motion draws, and some more).
    rated_current_a: tuple[float, ...] | None = None
    # While connecting, a controller that sends nothing new for so long has failed [s].
    connect_silence_s: float = 0.35
    # joint: servoJ. tool: servoL with the pose of the checked joints; the controller finds its own
    # joints near by, with the arm's calibration (docs/safety.md).
    servo: Literal["joint", "tool"] = "joint"
    # Kinematics by name, for ``servo: tool``.
    arm: str = ""

    def __post_init__(self) -> None:
        if not 0.03 <= self.lookahead_s <= 0.2:
            raise ConfigError(f"lookahead_s must be in [0.03, 0.2], got {self.lookahead_s}")
        if not 100 <= self.gain <= 2000:
            raise ConfigError(f"gain must be in [100, 2000], got {self.gain}")
        if not 2 <= self.watchdog_hz <= self.rate_hz:
            raise ConfigError(f"watchdog_hz must be in [2, rate_hz], got {self.watchdog_hz}")
        rated = self.rated_current_a
        if rated is not None and (len(rated) != 6 or not all(0.0 < a < math.inf for a in rated)):
            raise ConfigError(f"rated_current_a must be six positive currents [A], got {rated}")
        if self.servo == "tool" and self.arm not in ARMS:
            raise ConfigError(f"servo: tool needs 'arm', one of {sorted(ARMS)}, got '{self.arm}'")
        if not 0.05 <= (s := self.connect_silence_s) <= self.connect_timeout_s:
            raise ConfigError(f"connect_silence_s must be in [0.05, connect_timeout_s], got {s}")

    def build(self) -> URRobot:
        """Make the robot (in the process that will own it)."""
        return URRobot(self)

    def watch(self) -> URWatch:
        """For whoever waits until :meth:`URRobot.connect` is done, in another process."""
        return URWatch(self.address, self.connect_silence_s)

    def recovery(self) -> URRecovery:
        """The dashboard server, for an operator after a stop."""
        return URRecovery(self.address)


class URRobot:
    """Six joints, servoJ set-points, freedrive; nothing moves before the watchdog is armed."""

    def __init__(self, config: URConfig) -> None:
        self.config = config
        self._claim = DeviceClaim(f"UR at {config.address}")
        self._receive: Any = None
        self._control: Any = None
        self._worker: VendorThread | None = None
        self._leaving: list[Future[None]] = []
        # The vendor's threads must be joined before the interpreter takes its memory apart.
        atexit.register(self._have_left)
        self._device_t_s = -1.0
        self._changed_ns = 0
        self._clock, self._clock_fault = ClockAnchor(f"UR at {config.address}"), ""
        self._broken = self._armed = self._free = False
        self._last_sent: Joints | None = None
        self._tool: ToolServo | None = None

    @property
    def joints(self) -> int:
        """Six."""
        return 6

    @property
    def rate_hz(self) -> float:
        """Set-point rate [Hz]."""
        return self.config.rate_hz

    @property
    def has_watchdog(self) -> bool:
        """True: ``setWatchdog``."""
        return True

    @property
    def freedrive(self) -> Freedrive:
        """The freedrive of the controller."""
        return Freedrive(self._begin_freedrive, self._end_freedrive)

    def connect(self) -> None:
        """Connect both interfaces, upload the program, wait for a live state.

        What fails on the way leaves nothing behind that could move the arm. RobotConnectionError
        for an arm that another program drives.
        """
        vendor = import_ur_rtde()
        self._release()
        self._claim.take()
        self._broken = self._armed = self._free = False
        self._last_sent = self._tool = None
        self._clock.restart()
        self._clock_fault = ""
        try:
            self._connect_anew(*vendor)
        except BaseException:
            self._release()
            self._claim.release()
            raise

    def _connect_anew(self, control_class: Any, receive_class: Any) -> None:
        with contextlib.closing(self.config.watch()) as watch:
            watch.wait()
        if not self._have_left():
            # Its last words would end the new program: both write the same registers.
            raise RobotConnectionError(
                f"UR at {self.config.address}: an earlier connection is still closing; connect"
                " again in a few seconds"
            )
        c = self.config
        self._worker = worker = VendorThread(f"UR at {c.address}")
        deadline = time.monotonic() + c.connect_timeout_s
        try:
            self._receive = worker.call(
                lambda: receiving(lambda: receive_class(c.address, c.rate_hz)),
                c.connect_timeout_s,
                "connecting",
            )
            self._require_ready_device(deadline)
            self._control = self._make_control(worker, control_class, deadline)
        except RuntimeError as error:
            if isinstance(error, RobotError):
                raise
            if _TAKEN in str(error):
                raise RobotConnectionError(
                    f"UR at {c.address}: the controller has a control client already (its input"
                    " registers are taken): another computer or program drives this arm, or a"
                    " fieldbus adapter is switched on. End it, then connect again"
                ) from error
            raise RobotConnectionError(
                f"UR at {c.address}: {error}. Is the arm powered, brakes released, and in remote"
                " control?"
            ) from error
        self._wait_running(deadline)
        if c.servo == "tool":
            arm, q = ARMS[c.arm], np.array(self._receive.getActualQ())
            self._tool = worker.call(
                lambda: ToolServo.of(self._control, arm, q, c.rate_hz), 1.0, "reading the tool"
            )

    def _make_control(self, worker: VendorThread, control_class: Any, deadline: float) -> Any:
        c, patience = self.config, time.monotonic() + _LEFT_S
        while True:
            try:
                return worker.call(
                    lambda: receiving(lambda: control_class(c.address, c.rate_hz)),
                    max(1.0, deadline - time.monotonic()),
                    "uploading the control program",
                )
            except RuntimeError as error:
                # Who has just closed may still be leaving the controller.
                if _TAKEN not in str(error) or time.monotonic() > patience:
                    raise
                time.sleep(0.1)

    def state(self) -> RobotState:
        """Newest state; a torn read (the packet changed in between) is repeated."""
        receive = self._receive
        if receive is None:
            raise RobotConnectionError(f"UR at {self.config.address}: not connected")
        stamp, q, qd, mode, wrench = read(receive)
        for _ in range(2):
            if float(receive.getTimestamp()) == stamp:
                break
            stamp, q, qd, mode, wrench = read(receive)
        if stamp != self._device_t_s:
            self._device_t_s, self._changed_ns = stamp, time.monotonic_ns()
            self._check_clock()
        self._require_true_clock()
        if mode is RobotMode.IDLE and silenced(receive, self._silence()):
            mode = RobotMode.SILENCED
        load, goal = load_of(receive, self.config.rated_current_a), np.array(receive.getTargetQd())
        measured = (np.array(q), np.array(qd), mode, math.hypot(*wrench[:3]), load, goal)
        return RobotState(stamp, self._changed_ns, *measured, wrench=np.array(wrench))

    def fault_text(self) -> str:
        """Safety mode, robot mode, program and joints, as RTDE has them; who ended the program."""
        return "" if self._receive is None else fault_text(self._receive, self._silence())

    def _silence(self) -> Silence | None:
        worker = self._worker if self._armed else None
        return worker and Silence(worker.longest_silence_s(), 1.0 / self.config.watchdog_hz)

    def _check_clock(self) -> None:
        try:
            self._clock.monotonic_ns(self._device_t_s, self._changed_ns)
        except ClockError as error:
            self._clock_fault = str(error)

    def _require_true_clock(self) -> None:
        """A clock that is right again was still set: only a new connection goes on."""
        if self._clock_fault:
            raise ClockError(self._clock_fault)

    def servo(self, q: Joints) -> None:
        """Post one set-point ``[6]`` [rad]; RobotError where ``servo: tool`` must not follow."""
        if q.shape != (6,) or not np.all(np.isfinite(q)):
            raise DataError(f"UR: expected 6 finite angles, got {q}")
        self._require_true_clock()
        worker, control, _ = self._connected()
        if self._free:
            raise RobotError("UR: a hand guides the arm; end freedrive before set-points")
        tool = self._tool
        if tool is not None and (problem := tool.astray(np.array(self._receive.getTargetQ()))):
            self._broken = True
            raise RobotError(f"UR: {problem}")
        target = q.tolist() if tool is None else tool.pose(q)

        def send() -> None:
            self._require_link(control)
            self._arm(control)
            last = self._last_sent
            if last is not None and (step := float(np.abs(q - last).max())) > _LARGEST_STEP_RAD:
                raise RobotError(
                    f"a set-point {step:.3f} rad from the last one that the controller got is not"
                    " sent: the link paused while the arm was moving"
                )
            self._servo_to(control, target)
            self._last_sent = q

        worker.post(send)

    def _servo_to(self, control: Any, target: list[float]) -> None:
        c, start = self.config, time.monotonic()
        call = control.servoJ if self._tool is None else control.servoL
        if not call(target, 0.0, 0.0, 1.0 / c.rate_hz, c.lookahead_s, c.gain):
            raise RobotError(f"the set-point was refused ({why_refused(self._receive)})")
        took_s = time.monotonic() - start
        if took_s > _LONGEST_CALL_S:
            self._broken = True
            raise RobotError(
                f"servoJ took {1e3 * took_s:.0f} ms: the client has connected again by itself,"
                " without the watchdog"
            )

    @property
    def halt(self) -> Callable[[], Callable[[], bool]]:
        """A servoStop behind whatever was sent: what a link delivers at once ends with it."""
        return self._halt

    def _halt(self) -> Callable[[], bool]:
        worker, control, c = self._connected()
        # While servoStop waits nobody feeds the watchdog: the arm stands after 0.6 of its period.
        speed = max(abs(v) for v in self._receive.getActualQd())
        deceleration = max(c.stop_deceleration, speed * c.watchdog_hz / 0.6)

        def stand() -> None:
            self._require_link(control)
            # At our own priority, and without waiting: the newest of the registers is no set-point.
            control.kickWatchdog()
            if not waiting(lambda: control.servoStop(deceleration)):
                raise RobotError("the controller did not confirm that the arm stands")
            q = self._stand()
            # The client may take tens of ms until it knows that the program is ready again. A
            # set-point where the arm stands waits for that, not the first one of a path.
            target = q.tolist() if (tool := self._tool) is None else tool.pose(q)
            waiting(lambda: self._servo_to(control, target))

        return worker.order(stand)

    def keep_alive(self) -> None:
        """Post a watchdog kick."""
        worker, control, _ = self._connected()

        def kick() -> None:
            # Every call on a broken link makes the client connect and start its program again.
            self._require_link(control)
            control.kickWatchdog()

        worker.post(kick)

    def _arm(self, control: Any) -> None:
        """The watchdog, with the first command that may move the arm and not before: the owner
        may take his time between connecting and that, and an armed one would end the program.
        """
        if self._armed:
            return
        if not control.setWatchdog(self.config.watchdog_hz):
            self._broken = True
            raise RobotError("the watchdog could not be armed; nothing is sent to this controller")
        # servoJ waits, spinning at our priority, until the client's ordinary thread has received
        # that the program is ready again; that thread gets the processor first.
        time.sleep(_READY_S)
        self._armed = True
        self._stand()

    def _stand(self) -> Joints:
        """The next set-point begins where the arm is: here."""
        self._last_sent = q = np.array(self._receive.getActualQ())
        if self._tool is not None:
            self._tool.reset(q)
        return q

    def _begin_freedrive(self) -> None:
        worker, control, c = self._connected()

        def begin() -> None:
            self._require_link(control)
            self._arm(control)
            # The program's servo thread would go on commanding its last set-point.
            if not (control.servoStop(c.stop_deceleration) and control.teachMode()):
                raise RobotError("the controller refused freedrive")

        self._free = True
        worker.call(lambda: waiting(begin), 0.5, "beginning freedrive")

    def _end_freedrive(self) -> None:
        worker, control, _ = self._connected()

        def end() -> None:
            self._require_link(control)
            if not control.endTeachMode():
                raise RobotError("the controller did not confirm the end of freedrive")
            self._stand()

        worker.call(lambda: waiting(end), 0.5, "ending freedrive")
        self._free = False

    def _require_link(self, control: Any) -> None:
        if self._broken or not control.isConnected():
            self._broken = True
            raise RobotError("the link to the controller broke; an operator connects again")

    def stop(self) -> bool:
        """servoStop; False when the controller did not answer within 0.5 s and is not seen at rest
        without a program (its watchdog ends the program when a busy machine waits too long).
        """
        if self._worker is None or self._control is None or self._worker.abandoned:
            return False
        control, deceleration = self._control, self.config.stop_deceleration

        def halt() -> bool:
            stiff = not self._free or control.endTeachMode()
            return bool(control.servoStop(deceleration)) and bool(stiff)

        try:
            done = self._worker.call(lambda: waiting(halt), 0.5, "servoStop")
            self._free = self._free and not done
            return bool(done) or self._seen_at_rest()
        except RuntimeError as error:  # includes RobotError; the device's watchdog takes over
            log.warning("stop not confirmed: %s", error)
            return False

    def _seen_at_rest(self) -> bool:
        state = self.state()
        fresh = time.monotonic_ns() - state.changed_ns < _FRESH_NS
        resting = float(np.abs(state.joint_velocity).max()) < _REST_RAD_S
        return fresh and resting and state.mode in (RobotMode.IDLE, RobotMode.SILENCED)

    def close(self) -> None:
        """Stop, end the program, disconnect; what hangs is abandoned."""
        if self._control is not None:
            self.stop()
        self._release()
        self._claim.release()

    def _connected(self) -> tuple[VendorThread, Any, URConfig]:
        if self._worker is None or self._control is None:
            raise RobotConnectionError(f"UR at {self.config.address}: not connected")
        return self._worker, self._control, self.config

    def _release(self) -> None:
        """End the program; disconnecting takes half a second and goes on in the background."""
        worker, control, receive = self._worker, self._control, self._receive
        self._worker = self._control = self._receive = None
        if worker is None:
            return
        try:
            if control is not None and not worker.abandoned:
                worker.call(lambda: waiting(control.stopScript), 1.0, "ending the program")
        except RuntimeError as error:
            log.warning("disconnect: %s", error)
        # After a hung call too: should it ever return, the same thread cleans up behind it.
        if control is not None:
            self._leaving.append(worker.submit(lambda: leave(control)))
        worker.close()
        if receive is not None:
            other = VendorThread(f"{worker.name}, leaving")
            self._leaving.append(other.submit(lambda: leave(receive)))
            other.close()

    def _have_left(self) -> bool:
        """Wait for earlier connections to close; False when one still hangs after 5 s."""
        self._leaving = list(wait(self._leaving, _LEAVE_S).not_done)
        return not self._leaving

    def _require_ready_device(self, deadline: float) -> None:
        mode = RobotMode.FAULT
        while time.monotonic() < deadline:
            state = self.state()
            if state.device_t_s > 0.0:
                receive = self._receive
                mode = mode_of(receive.getRobotMode(), receive.getSafetyMode())
                break
            time.sleep(0.005)
        if mode is not RobotMode.RUNNING:
            raise RobotConnectionError(
                f"UR at {self.config.address} reports {mode.name}; expected powered on and normal."
                " Clear it at the teach pendant or by 'robolearn hardware recover', then connect"
                " again"
            )

    def _wait_running(self, deadline: float) -> None:
        # reuploadScript and the constructor may return before the program runs; a command sent in
        # the gap is lost.
        while time.monotonic() < deadline:
            if self._control.isProgramRunning() and self.state().mode is RobotMode.RUNNING:
                return
            time.sleep(0.01)
        raise RobotConnectionError(
            f"UR at {self.config.address}: the control program does not run within"
            f" {self.config.connect_timeout_s:g} s"
        )
