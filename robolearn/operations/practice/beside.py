"""Learns in a process of its own while an arm moves, which must not wait for it.

    main thread       fly an episode, commit it --add--> (goes on at once)
    learning thread   session.learn: waits for the answers of
    learner process   take in, update, hand over: a lower priority than all that moves the arm

The process that drives the arm shares nothing with it but files: neither the interpreter's lock nor
a pause of its memory reaches the loop, whose silence for longer than ``heartbeat_s`` stops the arm.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol, runtime_checkable

from robolearn.errors import PracticeError, RobolearnError
from robolearn.machine.process import exit_with_parent, leave_real_time, ordinary_children
from robolearn.operations.practice.actors import Flown
from robolearn.training.budget import UNLIMITED, TimeLeft
from robolearn.training.learner import Learner, Taken

log = logging.getLogger(__name__)

NICENESS = 5
"""Of the learner's process, below all that the arm waits for."""


@runtime_checkable
class Hurry(Protocol):
    """A flag that processes share."""

    def is_set(self) -> bool:
        """Whether it is."""
        ...

    def set(self) -> None:
        """Set it."""
        ...


@runtime_checkable
class Learning(Protocol):
    """What a session asks of its learner (:class:`~robolearn.training.learner.Learner`), which may
    live in a process of its own, here or elsewhere.
    """

    @property
    def step(self) -> int:
        """Updates until now."""
        ...

    def take_in(self) -> Taken:
        """Read what was committed since the last call."""
        ...

    def update(self, count: int, left: TimeLeft = UNLIMITED) -> Mapping[str, float]:
        """So many updates, or fewer where time was used up or it was told to hurry; their
        figures.
        """
        ...

    def drift(self) -> float | None:
        """How far its answers are from the parent's; None: that cannot be said."""
        ...

    def hand_over(self) -> int:
        """Write a new version; its number."""
        ...

    def keep(self, version: int) -> None:
        """Do not delete a version."""
        ...

    def checkpoint(self) -> None:
        """Keep what going on needs."""
        ...

    def finish(self, version: int | None = None, *, as_parent: bool = False) -> None:
        """Make the run complete, with the weights of a version; ``as_parent``: from its first step
        on it does what its parent does.
        """
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


@runtime_checkable
class Learns(Protocol):
    """What learns from episodes that were committed (a session of practice)."""

    def learn(self, flown: Sequence[Flown]) -> None:
        """From these and all before them."""
        ...


@dataclass(frozen=True, slots=True)
class _Answer:
    value: Any
    step: int
    cpu_seconds: float
    error: Exception | None = None


def new_hurry() -> Hurry:
    """One that processes which are spawned can be given."""
    return multiprocessing.get_context("spawn").Event()


class LearnerProcess:
    """The learner that ``build`` makes, in a process of its own; what it raises is raised here.

    ``hurry``: once it is set, no further updates are made.
    """

    def __init__(self, build: Callable[[], Learner], hurry: Hurry) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(build, theirs, hurry), name="learner", daemon=True
        )
        with ordinary_children():
            self._process.start()
        theirs.close()
        self.step, self.cpu_seconds = 0, 0.0
        try:
            self._answered("build")
        except BaseException:
            self.close()
            raise

    def take_in(self) -> Taken:
        """See :class:`Learner`."""
        found: Taken = self._asked("take_in")
        return found

    def update(self, count: int, left: TimeLeft = UNLIMITED) -> Mapping[str, float]:
        """See :class:`Learner`; time begins when the process does."""
        found: Mapping[str, float] = self._asked("update", count, left)
        return found

    def drift(self) -> float | None:
        """See :class:`Learner`."""
        found: float | None = self._asked("drift")
        return found

    def hand_over(self) -> int:
        """See :class:`Learner`."""
        found: int = self._asked("hand_over")
        return found

    def keep(self, version: int) -> None:
        """See :class:`Learner`."""
        self._asked("keep", version)

    def checkpoint(self) -> None:
        """See :class:`Learner`."""
        self._asked("checkpoint")

    def finish(self, version: int | None = None, *, as_parent: bool = False) -> None:
        """See :class:`Learner`."""
        self._asked("finish", version, as_parent=as_parent)

    def close(self) -> None:
        """End the process: politely by closing its pipe, then by force."""
        self._pipe.close()
        self._process.join(5.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _asked(self, name: str, *arguments: Any, **named: Any) -> Any:
        try:
            self._pipe.send((name, arguments, named))
        except OSError as error:
            raise self._death(name) from error
        return self._answered(name)

    def _answered(self, name: str) -> Any:
        try:
            answer: _Answer = self._pipe.recv()
        except (OSError, EOFError) as error:
            raise self._death(name) from error
        self.step, self.cpu_seconds = answer.step, answer.cpu_seconds
        if answer.error is not None:
            raise answer.error
        return answer.value

    def _death(self, name: str) -> PracticeError:
        self._process.join(1.0)
        return PracticeError(
            f"the learner's process died ({name}, exit code {self._process.exitcode}; -9: out of"
            " memory or killed); episodes are kept, go on with resume"
        )


def _serve(build: Callable[[], Learner], pipe: Connection, hurry: Hurry) -> None:
    """The process's main: build, then do what is asked until the pipe closes."""
    exit_with_parent()
    leave_real_time(NICENESS)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            learner = build()
        except Exception as error:  # noqa: BLE001 - whatever it was, the parent must hear of it
            pipe.send(_Answer(None, 0, time.process_time(), _told(error)))
            return
        with contextlib.closing(learner):
            pipe.send(_Answer(None, learner.step, time.process_time()))
            while True:
                name, arguments, named = pipe.recv()
                value, failed = None, None
                try:
                    if name == "update":
                        value = learner.update(*arguments, hurried=hurry.is_set)
                    else:
                        value = getattr(learner, name)(*arguments, **named)
                except Exception as error:  # noqa: BLE001 - the same
                    failed = _told(error)
                pipe.send(_Answer(value, learner.step, time.process_time(), failed))


def _told(error: Exception) -> Exception:
    """What the other process raises."""
    if isinstance(error, RobolearnError):
        return error
    log.error("in the learner's process:\n%s", traceback.format_exc())
    return PracticeError(f"the learner failed: {type(error).__name__}: {error}")


class LearningBeside:
    """Learns from what ``session`` committed on a thread; :meth:`add` never waits.

    What is added while it is busy is learned from together. What went wrong is raised by the next
    call.
    """

    def __init__(self, session: Learns, hurry: Hurry) -> None:
        self._session, self._hurry = session, hurry
        self._changed = threading.Condition()
        self._new: list[Flown] = []
        self._ending = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)
        self._thread.start()

    def add(self, flown: Sequence[Flown]) -> None:
        """These were committed."""
        self._raise()
        with self._changed:
            self._new += flown
            self._changed.notify()

    def finish(self) -> None:
        """Learn from all that was added, then end."""
        self._end()
        self._raise()

    def stop(self) -> None:
        """End as soon as it can be; what is not learned from yet is after resuming."""
        self._hurry.set()
        self._end()

    def _end(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        # At the priority of whoever drives: a lower one, held up by another program, would keep the
        # interpreter's lock from the loop. What takes long it leaves to the learner's process.
        while True:
            with self._changed:
                while not self._new and not self._ending:
                    self._changed.wait()
                flown, self._new = self._new, []
            if not flown or self._hurry.is_set():
                return
            try:
                self._session.learn(flown)
            except BaseException as error:  # noqa: BLE001 - raised where it can be answered
                self._error = error
                return
