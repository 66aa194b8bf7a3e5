"""Lets a person end, judge, mark and stop an episode of any env, simulated or a cell.

A simulated env is paced here and reset twice: once to look at, once by the loop. A cell paces
itself, and a reset moves its arm: it happens once, and the loop begins from there.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from robolearn.contracts import ArrivesLate, Env
from robolearn.data.markers import MARKER
from robolearn.errors import RobolearnError, RobotConnectionError, SafetyStopError
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
    SampleBlock,
)

# What a person says at the end: solved, not solved, or nothing of it.
Said = Literal["success", "failure", "operator"]
# Ticks that rate and jitter are told from.
_WINDOW = 200


@runtime_checkable
class Arm(Protocol):
    """What a cell has beside an env: an arm that moves between episodes and may be stopped."""

    def begin(self, condition: Condition, *, guided: bool = False) -> ResetReport:
        """Begin the episode of a reset that somebody has looked at; nothing is moved. ``guided``:
        from now on the arm gives way to a hand.
        """
        ...

    @property
    def guided_until(self) -> str:
        """Why the arm gives way to a hand no more; "" while it does."""
        ...

    @property
    def slowed(self) -> str:
        """What keeps the arm from doing all that is commanded, in words; "" for nothing."""
        ...

    def look(self) -> Observation:
        """What is there between two episodes; nothing of it is kept."""
        ...

    def hold(self) -> None:
        """Brake and stand still."""
        ...

    def home(self) -> None:
        """To where it rests."""
        ...

    def estop(self) -> None:
        """Stop at once, and latch; from any thread."""
        ...

    def clear_stop(self) -> None:
        """The person's explicit recovery from a latched stop."""
        ...


class LoopTiming:
    """How fast a loop runs and how evenly, from when its last ticks came."""

    def __init__(self, rate_hz: float) -> None:
        self._period_ns = 1e9 / rate_hz
        self._last_ns: int | None = None
        self._periods: deque[int] = deque(maxlen=_WINDOW)

    def restart(self) -> None:
        """Forget the ticks."""
        self._last_ns = None
        self._periods.clear()

    def tick(self, now_ns: int) -> None:
        """One more."""
        if self._last_ns is not None:
            self._periods.append(now_ns - self._last_ns)
        self._last_ns = now_ns

    @property
    def hz(self) -> float:
        """Mean rate; 0 before the second tick."""
        return 1e9 / (sum(self._periods) / len(self._periods)) if self._periods else 0.0

    @property
    def jitter_s(self) -> float:
        """How far periods are from the one that is wanted (95 of 100 are nearer); 0 at first."""
        if not self._periods:
            return 0.0
        away = np.abs(np.array(self._periods, dtype=np.float64) - self._period_ns)
        return 1e-9 * float(np.percentile(away, 95.0))


def _by_nothing() -> str:
    return ""


class AttendedEnv:
    """``inner``, which ends when the person says so; ``arm``: of a cell, which is ``inner``;
    ``guided``: a hand guides it in an episode, which ends where it does so no more.
    ``slowed``: what keeps an arm in a scene from its command, as :attr:`Arm.slowed` of a cell;
    ``play``: the signal ``operator/marker`` tells when :meth:`mark` was called, and an episode goes
    on when the task is solved.
    """

    def __init__(
        self,
        inner: Env,
        arm: Arm | None = None,
        *,
        play: bool = False,
        guided: bool = False,
        slowed: Callable[[], str] = _by_nothing,
    ) -> None:
        self._inner, self.arm, self.play, self.guided = inner, arm, play, guided
        self._slowed = slowed
        spec = inner.spec
        self._spec = (
            EmbodimentSpec(spec.name, (*spec.signals, MARKER), spec.actions, spec.rate_hz)
            if play
            else spec
        )
        self._rate, self.timing = Rate(spec.rate_hz), LoopTiming(spec.rate_hz)
        self._said: Said | None = None
        # Why the arm stopped in this episode; "": it did not.
        self.stopped = ""
        # Why the arm that a hand guided became stiff in this episode; "": it did not.
        self.stiffened = ""
        self._seen: Observation | None = None
        self._marker = Sample(0, np.zeros(1))
        self._marked: list[Sample] = []

    @property
    def spec(self) -> EmbodimentSpec:
        """That of the env, and the marker."""
        return self._spec

    @property
    def capabilities(self) -> Capabilities:
        """Those of the env; the clock of a simulated one is simulated time."""
        return self._inner.capabilities

    @property
    def slowed(self) -> str:
        """What keeps the arm from doing all that is commanded, in words; "" for nothing."""
        return self._slowed() if self.arm is None else self.arm.slowed

    @property
    def ended(self) -> bool:
        """Whether the person has ended this episode, or a stop did."""
        return self._said is not None or bool(self.stopped or self.stiffened)

    def prepare(self, condition: Condition) -> None:
        """To the start, so that the person can look at it; an arm holds there. Raises as reset."""
        self._inner.reset(condition, np.random.default_rng(condition.seed))
        if self.arm is not None:
            self.arm.hold()

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Start an episode; the first tick begins now. An arm is at its start since
        :meth:`prepare`.
        """
        if self.arm is None:
            report = self._inner.reset(condition, rng)
        else:
            report = self.arm.begin(condition, guided=self.guided)
        self._said, self.stopped, self.stiffened, self._seen = None, "", "", None
        self._marker = Sample(self.now_ns(), np.zeros(1))
        self._marked = [self._marker]
        self.timing.restart()
        self._rate.restart()
        return report

    def end(self, said: Said) -> None:
        """The episode is over at this tick; the first word counts."""
        if self._said is None:
            self._said = said

    def mark(self) -> None:
        """Something ends here, and the next begins."""
        now = self.now_ns()
        # Samples of a signal come one after the other.
        if self.play and now > self._marker.t_ns:
            self._marker = Sample(now, self._marker.value + 1.0)
            self._marked.append(self._marker)

    def look(self) -> Observation | None:
        """What is there while nothing is recorded; None: nobody can tell now. Raises
        RobotConnectionError when the cell is gone.
        """
        try:
            return self._inner.observe() if self.arm is None else self.arm.look()
        except RobotConnectionError:
            raise
        except RobolearnError:
            return None

    @property
    def markers(self) -> int:
        """How many were set in this episode."""
        return int(self._marker.value[0])

    def hold(self) -> None:
        """The arm stands still, unless a stop has seen to that."""
        if self.arm is not None and not self.stopped:
            self.arm.hold()

    def now_ns(self) -> int:
        """The env's clock."""
        return self._inner.now_ns()

    def observe(self) -> Observation:
        """Of the env, and the newest marker. At the tick of a stop what was seen last: it ends the
        episode, which may still be kept.
        """
        try:
            seen = self._inner.observe()
        except SafetyStopError as error:
            if self._seen is None:
                raise
            self.stopped = self.stopped or str(error)
            return Observation(self.now_ns(), self._seen.samples)
        if self.play:
            seen = Observation(seen.t_ns, {**seen.samples, MARKER.name: self._marker})
        self._seen = seen
        return seen

    def apply(self, command: Command) -> None:
        """To the env, unless it stopped. An arm that is guided holds once nobody is there."""
        if not self.stopped:
            try:
                self._inner.apply(command)
                if self.guided and self.arm is not None and command.source == "hold":
                    self.arm.hold()
                    self.stiffened = self.stiffened or "nobody is at the keys"
            except SafetyStopError as error:
                self.stopped = str(error)

    def drain(self) -> SampleBatch:
        """Of the env, and the new markers."""
        return self._with_markers(self._inner.drain())

    def late(self, until_ns: int) -> SampleBatch | None:
        """Of the env, where it has such samples."""
        inner = self._inner
        late = inner.late(until_ns) if isinstance(inner, ArrivesLate) else None
        return None if late is None else self._with_markers(late)

    def _with_markers(self, batch: SampleBatch) -> SampleBatch:
        if not self.play:
            return batch
        new, self._marked = self._marked, []
        times = np.array([s.t_ns for s in new], dtype=np.int64)
        values = np.array([s.value for s in new]).reshape(len(new), 1)
        block = SampleBlock(times, values, np.ones(len(new), dtype=bool))
        return SampleBatch({**batch.signals, MARKER.name: block}, batch.sent)

    def advance(self) -> None:
        """Step the physics and wait for the clock; a cell waits by itself. A latched stop ends the
        episode, which is told by :meth:`outcome`, so that what was recorded may be kept.
        """
        if not self.stopped:
            try:
                self._inner.advance()
                if self.guided and self.arm is not None:
                    self.stiffened = self.stiffened or self.arm.guided_until
            except SafetyStopError as error:
                self.stopped = str(error)
        if self._inner.capabilities.faster_than_real_time:
            self._rate.wait()
        self.timing.tick(time.monotonic_ns())

    def outcome(self) -> Outcome:
        """The task's outcome, or what the person said, or that the arm stopped."""
        outcome = self._inner.outcome()
        if self.play and outcome.terminal and outcome.success:
            outcome = dataclasses.replace(outcome, terminal=False, reason="")
        if self.stopped:
            return outcome.cut_short("safety_stop", success=outcome.success)
        if self._said is None and self.stiffened:
            return outcome.cut_short("freedrive_ended", success=outcome.success)
        if self._said is None or outcome.terminal or outcome.truncated:
            return outcome
        if self._said == "success":
            return Outcome(True, 1.0, 1.0, True, reason="success", metrics=outcome.metrics)
        solved = outcome.success and self._said != "failure"
        return outcome.cut_short(self._said, success=solved)

    def close(self) -> None:
        """Of the env."""
        self._inner.close()
