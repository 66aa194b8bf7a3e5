"""Lets a person record episodes: start, watch, keep or discard, again; or drive without recording.

    resetting --> ready --start--> running --(end | a key)--> [review] --keep--> saved --+
        ^           |                 |                          +--discard, redo--------+
        |           |                 +--safety stop--> review, then stopped             |
        |           +--quit--> done                        |                             |
        +------------------------------------start (clears)+-----------------------------+

A key that ends an attempt decides what becomes of it. It is asked again (review) where it ended by
itself, and where something is wrong with it that should be known before it is kept. What is kept is
written while the arm goes to the next start, which is ready only when it is saved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Generator, Sequence

from hardware.teleop.agent import TeleopAgent
from hardware.teleop.device import Key, Look, Phase, TeleopDevice
from hardware.teleop.session.attempts import Attempts
from hardware.teleop.session.attended import AttendedEnv, Said
from hardware.teleop.session.config import Corrected, Recorder, Reviewer, SessionConfig
from hardware.teleop.session.key_watch import KeyWatch
from hardware.teleop.session.seen import CameraWatch, QuickLook, view_of, with_start
from robolearn.agents.take_over import TakeOver
from robolearn.contracts import Agent, Subscriber
from robolearn.errors import (
    RobolearnError,
    RobotConnectionError,
    RobotError,
    SafetyStopError,
    StartError,
)
from robolearn.machine.interrupt import hung_up
from robolearn.runtime import run_episode
from robolearn.seeding import child_seed
from robolearn.types import Condition, EpisodeHeader, Observation, Outcome, Tick

# Keys that end an attempt, and what they say of it.
_ENDING: dict[Key, Said] = {
    "keep": "operator",
    "discard": "operator",
    "redo": "operator",
    "quit": "operator",
    "success": "success",
    "failure": "failure",
}
# Those after which it is kept, if nothing is wrong with it.
_KEEPING = ("keep", "success", "failure")
# What becomes of an attempt.
_DECIDING: tuple[Key, ...] = ("keep", "discard", "redo", "quit")
# While things are placed and looked at.
_PLACING: tuple[Phase, ...] = ("placing", "ready")
# Before the start key of an arm that a hand guides.
_HOLD_IT = "Hold the arm: at the start key it gives way."
# Whoever waits sees the cell as it was so long ago at most [s].
_LOOK_S = 0.1
# The disk is looked at so often [ticks].
_DISK_EVERY = 50


class TeleopSession:
    """Runs attempts until ``episodes`` are saved or the person quits; with a policy that is
    ``corrected`` the person takes over from it and hands back. Without a ``recorder`` nothing is
    saved, and it goes on until the person quits. ``watching``: told before the recorder;
    ``clear``: clears a latched stop when the person says so and returns why that may not be, ""
    once the arm may go on; None: the arm's own way alone.
    """

    def __init__(
        self,
        env: AttendedEnv,
        device: TeleopDevice,
        recorder: Recorder | None,
        config: SessionConfig,
        corrected: Corrected | None = None,
        *,
        reviewer: Reviewer | None = None,
        watching: Sequence[Subscriber] = (),
        clear: Callable[[], str] | None = None,
    ) -> None:
        self._env, self._device, self._config = env, device, config
        self._clearing = clear
        self._recorder, self._reviewer, self._watching = recorder, reviewer, tuple(watching)
        self._agent = TeleopAgent(device, env.spec, config.mapping, config.eye)
        self._driver: Agent = self._agent
        self._shared: TakeOver | None = None
        if corrected is not None:
            self._driver = self._shared = TakeOver(
                corrected.policy, self._agent, env.spec, config.takeover
            )
        self._inference = None if corrected is None else corrected.inference
        self._kept = Attempts(recorder, reviewer)
        self._decided: Key | None = None
        self._judged: bool | None = None
        self._condition: Condition | None = None
        self._outcome: Outcome | None = None
        self._observation: Observation | None = None
        self._best, self._steps, self._error = 0.0, 0, ""
        self._latched = False
        self._warnings: tuple[str, ...] = ()
        self._quick_look, self._cameras = QuickLook(), CameraWatch(env.spec)
        self._disk_free: int | None = None
        self._watch: KeyWatch | None = None
        self._quitting = False

    def run(self) -> tuple[str, ...]:
        """Ids of the saved episodes; an arm is at home then, unless a stop is latched.
        RobotConnectionError when the cell is gone for good; SafetyStopError when the arm stopped on
        its way home.
        """
        wrong, kept = "It could not go on.", self._kept
        try:
            with kept:
                self._attempts()
                self._settle()
                wrong = "The arm is not at home."
                self._home()
        except RobolearnError as error:
            # Whoever stands at a page does not see what the terminal says afterwards.
            self._error = str(error)
            self._show("done", f"{wrong} {kept.saved_in_words}")
            raise
        self._show("done", kept.saved_in_words)
        return tuple(kept.saved)

    def _attempts(self) -> None:
        attempt = 0
        while self._kept.kept < self._config.episodes:
            condition = self._config.condition(child_seed(self._config.seed, "attempt", attempt))
            decided = self._attempt(condition)
            if decided == "quit":
                return
            # The same start again is what 'redo' asks for.
            attempt += decided != "redo"

    @property
    def stopped(self) -> bool:
        """Whether a stop of the arm is latched."""
        return self._latched

    def place(self, text: str) -> None:
        """Ask the person to do it, in the middle of a reset; StartError where they do not."""
        watch = self._watch
        if watch is None:
            raise StartError(f"nobody can be asked now to {text}")
        watch.forget()
        show = functools.partial(
            self._show, "placing", f"{text}, then press start.", ("start", "quit", "stop")
        )
        look = functools.partial(self._look, show)
        look()
        if watch.wait(("start", "keep", "quit"), look, _LOOK_S) == "quit":
            self._quitting = True
            raise StartError(f"not done: {text}")
        self._show("resetting", "The arm moves to the start.", ("stop",))

    # -- told by the loop ------------------------------------------------------------------------

    def on_start(self, episode: EpisodeHeader) -> None:
        """The loop begins."""
        del episode
        self._quick_look.begin()
        self._cameras.begin()

    def on_tick(self, tick: Tick) -> None:
        """Show the tick, and let keys stop the episode."""
        self._steps = tick.index + 1
        # Of a simulated world what the command did; a cell is in sight, and must not wait.
        arm = self._env.arm
        self._observation = self._env.observe() if arm is None else tick.observation
        self._quick_look.add(tick.observation)
        self._cameras.add(tick.drained)
        self._take(tick.outcome)
        for key in self._read():
            self._press(key)
        self._show("running", keys=self._running_keys())

    def on_end(self, outcome: Outcome) -> None:
        """The attempt is over."""
        self._take(outcome)

    def on_abort(self, error: BaseException) -> None:
        """Say that nothing of this attempt was saved."""
        if not isinstance(error, RobotError):
            self._show("done", "Stopped; this attempt was not saved.")

    def _press(self, key: Key) -> None:
        env = self._env
        if key == "stop" and env.arm is not None:
            env.arm.estop()
        elif key == "marker":
            env.mark()
        elif key in _ENDING and self._decided is None:
            self._decided = key
            if key in _KEEPING and self._recorder is not None:
                self._recorder.spare()
            env.end(_ENDING[key])
        self._agent.press(key)

    def _running_keys(self) -> tuple[Key, ...]:
        ending: tuple[Key, ...] = (*_DECIDING, "success", "failure")
        if self._recorder is None:
            ending = ("redo", "quit")
        env = self._env
        marking: tuple[Key, ...] = ("marker",) if env.play else ()
        if self._shared is not None:
            marking = (*marking, "takeover" if self._shared.driver == "policy" else "handback")
        return (*ending, *marking, *(("stop",) if env.arm is not None else ()))

    # -- one attempt -----------------------------------------------------------------------------

    def _attempt(self, condition: Condition) -> Key:
        """What was decided: ``keep``, ``discard``, ``redo`` or ``quit``."""
        while True:
            if not self._ready(condition):
                return "quit"
            try:
                self._run(condition)
                break
            except RobotConnectionError:
                raise
            except RobotError as error:
                # Nothing that could be kept: what was flushed is offered as a killed recording is.
                self._fail(error)
                self._kept.counts["broken off"] += 1
        if self._env.stopped:
            self._error, self._latched, self._decided = self._env.stopped, True, None
        decided = self._decide()
        self._warnings = ()
        return decided

    def _run(self, condition: Condition) -> None:
        recorders = () if self._recorder is None else (self._recorder,)
        run_episode(
            self._env,
            self._driver,
            self._inference,
            [*self._watching, *recorders, self],
            condition,
            max_steps=self._config.max_steps or sys.maxsize,
            task=self._config.task,
            env_name=self._config.env_name,
            provenance=self._config.provenance,
        )

    def _ready(self, condition: Condition) -> bool:
        """Reset, and wait for the person to start; False where they quit."""
        while not self._quitting:
            self._decided, self._best, self._steps = None, 0.0, 0
            self._judged, self._condition = None, condition
            there = self._reset(condition)
            self._settle()
            there = there and not self._error
            if self._quitting:
                return False
            if there:
                note = self._kept.note
                note = f"{note} {_HOLD_IT}".lstrip() if self._env.guided else note
                key = self._wait("ready", ("start", "redo", "quit"), note)
            else:
                key = self._wait("stopped", ("start", "quit"), self._trouble())
            if key == "quit":
                return False
            if there and key == "start":
                return True
            if not there:
                self._clear()
        return False

    def _reset(self, condition: Condition) -> bool:
        """To the start, unless something is wrong that the person has to see first."""
        if self._error:
            return False
        env = self._env
        try:
            if env.arm is None:
                env.prepare(condition)
            else:
                self._show("resetting", "The arm moves to the start.", ("stop",))
                with self._busy() as self._watch:
                    env.prepare(condition)
            self._observation = env.observe()
            self._take(env.outcome())
        except RobotConnectionError:
            raise
        except RobotError as error:
            self._fail(error)
            return False
        finally:
            self._watch = None
        # Whatever was pressed before it could be seen is not meant, but for a stop and the end.
        pressed = self._pressed()
        self._quitting = self._quitting or "quit" in pressed
        return not self._error

    @contextlib.contextmanager
    def _busy(self) -> Generator[KeyWatch | None]:
        """While the program is busy an arm may be stopped, and the end asked for."""
        arm = self._env.arm
        if arm is None:
            yield None
            return
        with KeyWatch(self._device, arm.estop, self._config.poll_s) as watch:
            yield watch
        self._quitting = self._quitting or watch.quitting
        if watch.stopping:
            self._stopped_by_key()

    def _pressed(self) -> tuple[Key, ...]:
        """Keys since the last look. A stop among them counts at once, whatever was pressed before
        or after it.
        """
        pressed, arm = self._read(), self._env.arm
        if "stop" in pressed and arm is not None:
            arm.estop()
            self._stopped_by_key()
        return pressed

    def _read(self) -> tuple[Key, ...]:
        """Keys since the last look. KeyboardInterrupt where they end because the terminal is gone:
        that is no decision to forget an episode.
        """
        pressed = self._device.pressed()
        if "quit" in pressed and hung_up():
            raise KeyboardInterrupt
        return pressed

    def _stopped_by_key(self) -> None:
        self._error, self._latched = "emergency stop by key", True

    def _home(self) -> None:
        """The arm goes to where it rests; the person may stop it as anywhere else."""
        arm = self._env.arm
        if arm is None or self._latched:
            return
        self._show("resetting", "The arm goes home.", ("stop",))
        try:
            with self._busy():
                arm.home()
        except RobotError as error:
            self._fail(error)
            raise

    def _clear(self) -> None:
        """The person says that it may go on."""
        self._error = ""
        arm = self._env.arm
        if not self._latched or arm is None:
            return
        self._show("resetting", "The stop is cleared.")
        try:
            if self._clearing is None:
                arm.clear_stop()
            else:
                self._error = self._clearing()
            self._latched = bool(self._error)
        except RobotConnectionError:
            raise
        except RobotError as error:
            self._fail(error)
        # One that was asked for meanwhile was not cleared.
        self._quitting = self._quitting or "quit" in self._pressed()

    def _fail(self, error: RobotError) -> None:
        self._error = str(error)
        self._latched = self._latched or isinstance(error, SafetyStopError)

    def _trouble(self) -> str:
        what = "The arm stopped." if self._latched else "That did not work."
        return f"{what} Look at the cell; start clears it and goes on."

    def _decide(self) -> Key:
        """What becomes of the attempt that ended."""
        decided = self._decided
        if self._recorder is None:
            return "quit" if decided == "quit" else "discard"
        if decided not in ("discard", "redo", "quit"):
            if self._reviewer is not None:
                with self._busy():
                    self._warnings = self._reviewer.judge()
            if decided not in _KEEPING or self._warnings:
                decided = self._review()
        if decided in _KEEPING:
            solved = self._outcome is not None and self._outcome.success
            solved = solved if self._judged is None else self._judged
            self._kept.keep(solved=solved, judged=self._judged)
            return "keep"
        with self._busy():
            self._kept.discard(again=decided == "redo")
        return decided or "discard"

    def _settle(self) -> None:
        """The attempt that was kept is on the disk, before anything else is recorded."""
        if self._kept.writing:
            with self._busy():
                self._kept.settle()

    def _review(self) -> Key:
        """The decision; until then the person may say whether it is solved."""
        judging: tuple[Key, ...] = () if self._reviewer is None else ("success", "failure")
        said = ""
        while True:
            key = self._wait("review", (*_DECIDING, *judging), f"{said}{self._verdict()}")
            if key not in judging:
                return key
            self._judged = key == "success"
            said = "Solved, you say. " if self._judged else "Not solved, you say. "

    def _verdict(self) -> str:
        outcome = self._outcome
        if self._env.stopped:
            start = "The arm stopped."
        elif self._env.stiffened:
            start = f"The arm holds: {self._env.stiffened}."
        elif outcome is not None and outcome.success:
            start = "Solved!"
        elif self._decided is not None:
            start = f"Best {int(100 * self._best)} %."
        else:
            start = f"Best {int(100 * self._best)} %, time is up."
        return f"{start} Enter keeps this episode, X discards it."

    def _wait(self, phase: Phase, allowed: tuple[Key, ...], message: str = "") -> Key:
        arm = self._env.arm
        keys: tuple[Key, ...] = (*allowed, "stop") if arm is not None else allowed
        self._show(phase, message, keys)
        shown_s = time.monotonic()
        while True:
            if time.monotonic() - shown_s >= _LOOK_S:
                self._look(lambda: self._show(phase, message, keys))
                shown_s = time.monotonic()
            pressed = self._pressed()
            stopped = "stop" in pressed and arm is not None
            if stopped and phase == "ready":
                return "stop"
            for key in pressed:
                # Nothing starts or is cleared by a key that came with a stop.
                if key in allowed and not (stopped and key == "start"):
                    return key
            time.sleep(self._config.poll_s)

    def _look(self, show: Callable[[], None]) -> None:
        """Whoever waits sees what is there now."""
        seen = self._env.look()
        if seen is not None:
            self._observation = seen
        show()

    def _take(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._best = max(self._best, outcome.progress)

    # -- what is shown ---------------------------------------------------------------------------

    def _show(self, phase: Phase, message: str = "", keys: tuple[Key, ...] = ()) -> None:
        running = phase == "running"
        config, timing = self._config, self._env.timing
        if config.disk_free is not None and not (running and self._steps % _DISK_EVERY):
            self._disk_free = config.disk_free()
        view = dataclasses.replace(
            view_of(self._observation),
            phase=phase,
            engaged=self._agent.engaged and running,
            progress=self._outcome.progress if self._outcome else 0.0,
            best=self._best,
            step=self._steps,
            max_steps=config.max_steps,
            rate_hz=timing.hz,
            saved=len(self._kept.saved),
            wanted=config.episodes,
            message=message,
            note=self._agent.note if running else "",
            # By the supervisor, or at the border of what the hand may command.
            slowed=(self._env.slowed or self._agent.limited) if running else "",
            gripper=self._agent.opening,
            policy_drives=running and self._shared is not None and self._shared.driver == "policy",
            recording=self._recorder is not None,
            elapsed_s=self._steps / self._env.spec.rate_hz,
            jitter_s=timing.jitter_s,
            input_age_s=self._agent.input_age_s,
            markers=self._env.markers,
            lost_frames=self._kept.lost_frames,
            disk_free=self._disk_free,
            cameras=self._cameras.states(self._observation, self._env.now_ns()),
            counts=tuple(sorted(self._kept.counts.items())),
            warnings=self._warnings,
            look=Look() if running else self._quick_look.look,
            error=self._error,
            keys=keys,
        )
        if config.wanted is not None and self._condition is not None and phase in _PLACING:
            view = with_start(view, config.wanted, self._condition)
        self._device.show(view)
        config.on_view(view)
