"""Goes through a practice: which round is next, what is made of one, and when it is over.

    next round --> actors --> took(round): commit, take in, update, hand over --> test --> over?
        ^                                                                                   |
        '-----------------------------------------------------------------------------------'

Half of the lanes are driven by the parent, on the starts of the other half: what critics learn from
stays as wide as the parent's behaviour, and harm is seen at once (``watch.py``).
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.data.store.writer import StoreWriter
from robolearn.errors import InferenceError, RobolearnError, TrainingError
from robolearn.machine.interrupt import check
from robolearn.operations.practice.actors import Flown, RoundTask
from robolearn.operations.practice.beside import Learning
from robolearn.operations.practice.judging import EpisodeJudge
from robolearn.operations.practice.ledger import Ledger, by_person, pairs, unaided
from robolearn.operations.practice.listener import PracticeListener, RoundReport
from robolearn.operations.practice.options import PracticeConfig
from robolearn.operations.practice.records import (
    Driver,
    Flight,
    Standing,
    VersionTest,
    write_standing,
)
from robolearn.operations.practice.validation import Validation
from robolearn.operations.practice.watch import ParentWatch
from robolearn.operations.practice.wear import worn
from robolearn.training.budget import UNLIMITED, TimeLeft
from robolearn.training.learner import DRIFT
from robolearn.training.log import Journal
from robolearn.types import Condition

log = logging.getLogger(__name__)

RECENT = 64
"""Episodes of either driver that live figures are taken over."""
MAX_LOST = 3
"""Rounds in a row that may be lost with their actors, or leave nothing that can be kept."""
GIB = 2.0**30


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a practice is over; ``sound``: nothing went wrong, so that its last version counts;
    ``goes_on``: what ended it may be mended, so that it goes on with resume by the same limits.
    """

    why: str
    sound: bool = True
    goes_on: bool = False


def nothing() -> float:
    """No computing elsewhere."""
    return 0.0


def never() -> int:
    """Nothing stops an arm that is simulated."""
    return 0


@dataclass(slots=True)
class Session:
    """A practice under way. ``build`` makes the learner once there is something to learn from;
    ``start`` gives the condition of a number in a world.
    """

    config: PracticeConfig
    max_updates: int
    checkpoint_every: int
    run_dir: Path
    store: Path
    writer: StoreWriter
    ledger: Ledger
    standing: Standing
    build: Callable[[], Learning]
    start: Callable[[int, int], Condition]
    worlds: Sequence[str]
    # None: nothing but its own episodes tells how good it is; on an arm.
    validation: Validation | None
    listener: PracticeListener
    journal: Journal
    # What is learned imitates what succeeded (data.success).
    only_successes: bool = False
    # Seconds of computing in processes that do not tell with what they flew.
    beside: Callable[[], float] = nothing
    # Who decides on success by what was seen; None: the task, or the operator's keys.
    judge: EpisodeJudge | None = None
    # Stops of a supervisor in this call.
    stopped: Callable[[], int] = never
    # The limits of time are an arm's: what is due is learned, however late.
    learns_on: bool = False
    learner: Learning | None = None
    # The newest version that may drive; and what the learner began with.
    version: int | None = None
    begun: int | None = None
    ended: Ended | None = None
    _issued: int = 0
    _next_number: int = 0
    _next_start: int = 0
    _lost: int = 0
    _kept_at: int = 0
    _began: float = field(default_factory=time.perf_counter)
    _began_cpu: float = field(default_factory=time.process_time)
    # Of calls before this one, by the clock and of computing; and what actors computed in this one.
    _before: tuple[float, float] = (0.0, 0.0)
    _stops_before: int = 0
    _elsewhere: float = 0.0
    # Updates owed, and whether those before it drives were made, at the last checkpoint.
    _kept: tuple[float, bool] = (0.0, False)
    _watch: ParentWatch = field(init=False)

    def __post_init__(self) -> None:
        self._next_number, self._next_start = self.ledger.next_number, self.ledger.next_start
        config = self.config
        self._watch = ParentWatch.of(self.standing, config.false_alarm, config.max_drift)
        self._issued = self.standing.rounds
        self._before = self.standing.seconds, self.standing.cpu_seconds
        self._kept = self.standing.owed, self.standing.begun
        # A kill loses what was counted since the last checkpoint, and no episode.
        self._stops_before = max(self.standing.stops, self.ledger.cut)
        if self._warm:
            self._wake()
        if self.standing.begun:
            # What the last checkpoint held; what was logged after it is done again.
            self.version = self.begun
            if self.learner is not None:
                self.journal.continue_at(self.learner.step)

    @property
    def seconds(self) -> float:
        """Spent, calls before this one included [s]."""
        return self._before[0] + time.perf_counter() - self._began

    @property
    def stops(self) -> int:
        """Of a supervisor, calls before this one included."""
        return self._stops_before + self.stopped()

    @property
    def cpu_seconds(self) -> float:
        """Of computing, here and in the actors, calls before this one included [s]."""
        own = time.process_time() - self._began_cpu
        return self._before[1] + own + self._elsewhere + self.beside()

    @property
    def _warm(self) -> bool:
        flights = self.ledger.flights
        if self.only_successes and not any(f.success for f in flights):
            # There is nothing to imitate yet.
            return False
        return sum(bool(f.id) for f in flights) >= self.config.warmup_episodes

    def tasks(self) -> Iterator[RoundTask]:
        """Rounds, each made when an actor is free, until it is over."""
        while self.ended is None:
            check()
            self.ended = self._over()
            if self.ended is None:
                yield self._round()

    def took(self, task: RoundTask, flown: Sequence[Flown] | None) -> None:
        """Commit what was flown, learn from it, hand over; None: the round was lost."""
        if flown is None:
            self._lost += 1
            if self._lost >= MAX_LOST:
                why = f"{MAX_LOST} rounds in a row were lost with their actors"
                self.ended = Ended(why, sound=False, goes_on=True)
            return
        self._elsewhere += sum(f.cpu_seconds for f in flown if f.pid != os.getpid())
        self.commit(task, flown)
        self._lost = 0 if any(f.prepared is not None for f in flown) else self._lost + 1
        if self._lost >= MAX_LOST:
            last = task.words(flown[-1], self.worlds)
            why = f"{MAX_LOST} rounds in a row left nothing that could be kept, the last: {last}"
            why = f"{why}; mend that and go on with resume"
            self.ended = Ended(why, sound=False, goes_on=True)
            return
        self.learn(flown)

    def failed(self, error: InferenceError) -> bool:
        """A policy gave no answer that could be driven by; whether that ends it in order, as what
        was learned before can be kept: before anything learned drove, the parent failed.
        """
        if self.version is None:
            return False
        self.ended = Ended(f"version {self.version} or its parent cannot drive: {error}", False)
        return True

    def catch_up(self) -> None:
        """Make the updates that were due when it was stopped in the middle of them, so that the
        next round is flown by what it would have been flown by.
        """
        if self.learner is not None and not (self.standing.begun and self.standing.owed < 1.0):
            self._learned(())

    def learn(self, flown: Sequence[Flown]) -> None:
        """Learn from what was committed, ``flown`` among it, and look whether it is over."""
        self.standing = dataclasses.replace(self.standing, rounds=self.standing.rounds + 1)
        self._learned(flown)

    def _learned(self, flown: Sequence[Flown]) -> None:
        figures: Mapping[str, float] = {}
        if self._warm:
            try:
                figures = self._learn()
            except TrainingError as error:
                # What is not finite is not handed over; the episodes are safe. Going on begins at
                # the checkpoint before.
                owed, begun = self._kept
                self.standing = dataclasses.replace(self.standing, owed=owed, begun=begun)
                # Where time is an arm's, it would not end there twice.
                self.ended = Ended(str(error), sound=False, goes_on=self.learns_on)
                return
            self._look(flown)
        self._tell(figures)

    def keep(self) -> None:
        """A checkpoint of everything that going on needs."""
        if self.learner is not None:
            self.learner.checkpoint()
            self._kept_at = self.learner.step
            self._kept = self.standing.owed, self.standing.begun
        self._write()

    def rescue(self) -> None:
        """:meth:`keep` where an error ended it: that this cannot be done must not hide why."""
        try:
            self.keep()
        except (RobolearnError, OSError) as error:
            log.warning("no checkpoint: %s; going on begins at the one before", error)

    def note(self, result: dict[str, Any]) -> None:
        """What came out, for whoever asks again."""
        self.standing = dataclasses.replace(self.standing, result=result)
        self._write()

    def close(self) -> None:
        """Let go of what the learner holds."""
        if self.learner is not None:
            self.learner.close()

    def _write(self) -> None:
        self.standing = dataclasses.replace(
            self.standing,
            seconds=self.seconds,
            cpu_seconds=self.cpu_seconds,
            stops=self.stops,
            watch=self._watch.sums,
            drift=self._watch.drift,
            lines=self.ledger.written,
        )
        write_standing(self.run_dir, self.standing)

    def test(self) -> VersionTest | None:
        """Try the newest version; None before there is one, and where nothing is there to try it
        on; what was found where it was tried already.
        """
        tests = self.standing.tests
        if self.learner is None or self.version is None or self.validation is None:
            return None
        if tests and tests[-1].updates == self.learner.step:
            return tests[-1]
        found = self.validation.test(
            self.version,
            updates=self.learner.step,
            episodes=len(self.ledger.flights),
            cpu_minutes=self.cpu_seconds / 60.0,
        )
        self.standing = dataclasses.replace(self.standing, tests=(*tests, found))
        self.learner.keep(found.version)
        self.keep()
        tested = {
            "test/success": found.successes / found.starts,
            "test/success_low": found.low,
            "test/success_high": found.high,
            "test/parent_success": found.parent_successes / found.starts,
            "test/score": found.score,
        }
        if found.parent_score is not None:
            tested["test/parent_score"] = found.parent_score
        self.journal.line(self.learner.step, self._times() | tested)
        if self.listener.on_test is not None:
            self.listener.on_test(found)
        return found

    def _wake(self) -> Learning:
        self.learner = self.build()
        self._kept_at = self.learner.step
        self._watch.begin(self.learner.drift())
        # Nobody is driven by it before anything was learned; what goes wrong first leaves it.
        self.begun = self.learner.hand_over()
        return self.learner

    def _round(self) -> RoundTask:
        first, lanes = self._next_number, self._lanes()
        drivers: tuple[Driver, ...] = ("parent",) * lanes
        starts = list(range(self._next_start, self._next_start + lanes))
        if self.version is not None:
            parents = self.config.parents_of(lanes)
            explorers = lanes - parents
            drivers = ("explorer",) * explorers + ("parent",) * parents
            shared = min(explorers, parents)
            own = self._next_start + np.arange(lanes - shared)
            # The parent begins where the others do; whoever is left over begins elsewhere.
            starts = [*own[:explorers], *own[:shared], *own[explorers:]]
        world = self._issued % len(self.worlds)
        self._issued += 1
        self._next_number += lanes
        self._next_start = int(max(starts)) + 1
        return RoundTask(
            number=self._issued,
            version=self.version,
            conditions=tuple(self.start(world, int(s)) for s in starts),
            drivers=drivers,
            world=world,
            first=first,
            starts=tuple(int(s) for s in starts),
        )

    def _lanes(self) -> int:
        """Of the next round: towards the end of the budget as many as it is likely to hold."""
        budget, flights = self.config.budget_minutes, self.ledger.flights
        spent = self.ledger.robot_seconds
        if budget is None or not spent:
            return self.config.lanes
        left = 60.0 * budget - spent
        return max(1, min(self.config.lanes, round(left * len(flights) / spent)))

    def commit(self, task: RoundTask, flown: Sequence[Flown]) -> None:
        """Into the store and the ledger."""
        for f in flown:
            if f.prepared is None:
                log.warning("not kept: %s", task.words(f, self.worlds))
        flights = [
            Flight(
                number=f.number,
                # Where the physics broke down there is nothing to keep.
                id="" if f.prepared is None else self.writer.commit(f.prepared),
                start=task.starts[f.number - task.first],
                world=self.worlds[task.world],
                driver=f.driver,
                version=f.version,
                success=f.success,
                score=f.score,
                steps=f.steps,
                decisions=f.decisions,
                reason=f.reason,
                late_ticks=f.late_ticks,
                effort=f.effort,
                moves=f.moves,
                trouble=f.trouble,
            )
            for f in flown
        ]
        if self.judge is not None:
            said = self.judge(self.writer, [f.id for f in flights if f.id])
            flights = [dataclasses.replace(f, success=said.get(f.id, False)) for f in flights]
        self.ledger.add(flights)
        # On an arm the two of a pair come one after the other.
        starts = {f.start for f in flights}
        known = [f for f in self.ledger.flights[-4 * self.config.lanes :] if f.start in starts]
        for parent, explorer in pairs(known):
            self._watch.pair(parent=parent, explorer=explorer)

    def _learn(self) -> Mapping[str, float]:
        """Take in what is new, make the updates that are due, hand over."""
        learner, standing = self.learner or self._wake(), self.standing
        decisions = learner.take_in().decisions
        owed = standing.owed + self.config.updates_per_decision * decisions
        if not standing.begun:
            # Some of them may have been made before it was stopped.
            owed = float(max(0, self.config.critic_updates - learner.step))
        due = min(int(owed), self.max_updates - learner.step)
        before = learner.step
        figures: Mapping[str, float] = {}
        try:
            if due > 0:
                figures = learner.update(due, self._left)
        finally:
            # In a hurry, at a limit and by Ctrl-C it makes fewer.
            made = learner.step - before
            self.standing = dataclasses.replace(standing, owed=owed - made)
        self._watch.drifted(figures.get(DRIFT))
        # Nothing drives by critics that have only begun.
        begun = standing.begun or made >= due
        self.standing = dataclasses.replace(self.standing, begun=begun)
        if begun:
            self.version = learner.hand_over()
        return figures

    def _look(self, flown: Sequence[Flown]) -> None:
        """Tests that are due; whether the parent has become the better one."""
        alarm = self._watch.alarm
        if alarm:
            log.warning("%s; a test decides", alarm)
            why = self._watch.verdict(self.test(), self.ledger.regret)
            if why:
                self.ended = Ended(why, sound=False)
        every, episodes = self.config.test_every, len(self.ledger.flights)
        if every and episodes // every > (episodes - len(flown)) // every:
            self.test()
        if self.learner is not None and self.learner.step - self._kept_at >= self.checkpoint_every:
            self.keep()

    def _tell(self, figures: Mapping[str, float]) -> None:
        report = self.report(figures)
        if self.learner is not None:
            shares = {"parent": report.parent, "explorer": report.explorer}
            line: dict[str, Any] = {
                f"practice/{k}_success": v for k, v in shares.items() if v is not None
            }
            line |= {"practice/regret": self.ledger.regret, "practice/dip": self.ledger.dip}
            line |= {"practice/person_share": report.person}
            spent = dataclasses.asdict(worn(self.ledger.flights, self.stops))
            line |= {f"practice/{name}": value for name, value in spent.items()}
            self.journal.line(self.learner.step, self._times() | line | dict(figures))
        if self.listener.on_round is not None:
            self.listener.on_round(report)

    def _times(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 2),
            "cpu_seconds": round(self.cpu_seconds, 2),
            "practice/episodes": len(self.ledger.flights),
        }

    def report(self, figures: Mapping[str, float]) -> RoundReport:
        """How it stands."""
        flights = self.ledger.flights
        return RoundReport(
            rounds=self.standing.rounds,
            episodes=len(flights),
            decisions=sum(f.decisions for f in flights),
            updates=0 if self.learner is None else self.learner.step,
            version=self.version,
            parent=unaided(self.ledger.recent("parent", RECENT)),
            explorer=unaided(self.ledger.recent("explorer", RECENT)),
            seconds=self.seconds,
            cpu_seconds=self.cpu_seconds,
            figures=figures,
            robot_seconds=self.ledger.robot_seconds,
            person=by_person(flights[-RECENT:]),
        )

    @property
    def _left(self) -> TimeLeft:
        """For what is learned now."""
        config = self.config
        if self.learns_on:
            return UNLIMITED
        by_clock, computing = (
            math.inf if limit is None else 60.0 * limit - spent
            for limit, spent in (
                (config.max_minutes, self.seconds),
                (config.max_cpu_minutes, self.cpu_seconds),
            )
        )
        return TimeLeft(by_clock, computing)

    def _over(self) -> Ended | None:
        config, episodes = self.config, len(self.ledger.flights)
        if config.max_minutes is not None and self.seconds >= 60.0 * config.max_minutes:
            return Ended(f"{config.max_minutes:g} minutes are over")
        if config.max_cpu_minutes is not None and self.cpu_seconds >= 60.0 * config.max_cpu_minutes:
            return Ended(f"{config.max_cpu_minutes:g} minutes of computing are over")
        driven = self.ledger.robot_seconds / 60.0
        if config.budget_minutes is not None and driven >= config.budget_minutes:
            return Ended(f"the arm has driven for {driven:.1f} minutes (practice.budget_minutes)")
        if config.max_episodes is not None and episodes >= config.max_episodes:
            return Ended(f"{episodes} episodes were practised")
        if self.learner is not None and self.learner.step >= self.max_updates:
            return Ended(f"{self.learner.step} updates were made")
        for folder in (self.store, self.run_dir):
            free = shutil.disk_usage(folder).free / GIB
            if free < config.disk_gib:
                why = (
                    f"the disk of '{folder}' has {free:.2f} GiB left (practice.disk_gib:"
                    f" {config.disk_gib:g}); free some and go on with resume"
                )
                return Ended(why, goes_on=True)
        return None
