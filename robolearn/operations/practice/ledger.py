"""Keeps what happened in a practice: a line for every episode, and where it stands.

    OUT/practice.jsonl   every committed episode: id, driver, version, outcome
    OUT/practice.json    time spent, tests, what the watch has seen; rewritten whenever the learner
                         is checkpointed

An episode is committed to the store first. What a kill leaves committed without a line is found in
the store again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from robolearn.data.insight.effort import effort_of, telling
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import GripperError, SafetyStopError
from robolearn.files import write_atomic
from robolearn.operations.deploy.trials import reason_of
from robolearn.operations.practice.records import (
    LINES,
    Driver,
    Flight,
    WrittenLines,
    flights_of,
    read_lines,
    whole_lines,
)

log = logging.getLogger(__name__)

Judge = Callable[[Sequence[str]], Mapping[str, bool]]
"""Whether each of these episodes succeeded; said in the store, too."""
BOTH: tuple[Driver, ...] = ("parent", "explorer")
STOPPED = (reason_of(SafetyStopError()), reason_of(GripperError()))
"""Why an episode ended that a stop of the supervisor cut short."""


def unaided(flights: Sequence[Flight]) -> float | None:
    """Share of successes in which nobody took over; None of no episode."""
    return sum(f.unaided for f in flights) / len(flights) if flights else None


def by_person(flights: Sequence[Flight]) -> float:
    """Share of steps that a person drove."""
    steps = sum(f.steps for f in flights)
    return sum(f.effort.person_steps for f in flights) / steps if steps else 0.0


def pairs(flights: Sequence[Flight]) -> list[tuple[bool, bool]]:
    """Whether the parent and the explorer succeeded without a person, of every start that both of
    them had and were seen at.
    """
    found: dict[int, dict[Driver, bool]] = {}
    for flight in flights:
        if flight.unseen:
            continue
        found.setdefault(flight.start, {})[flight.driver] = flight.unaided
    return [(p["parent"], p["explorer"]) for p in found.values() if len(p) == len(BOTH)]


class Ledger:
    """The ``lines`` of ``run_dir``, and those to come. Errors: :class:`CheckpointError` for a
    damaged one.
    """

    def __init__(self, run_dir: Path, lines: str = "") -> None:
        self.run_dir, self.flights = run_dir, list(flights_of(lines, run_dir))
        self._sum = hashlib.sha256(lines.encode())

    @staticmethod
    def of(run_dir: Path, known: WrittenLines = WrittenLines()) -> Ledger:  # noqa: B008 (frozen)
        """As it stands; a last line that a kill cut short is dropped. Without any, where it no
        longer begins with the lines that are ``known``: :meth:`recover` makes them again.
        """
        text = read_lines(run_dir)
        if not known.begin(text):
            log.warning(
                "'%s' lost or changed some of its first %d lines; they are made again from the"
                " store",
                run_dir / LINES,
                known.count,
            )
            write_atomic(run_dir / LINES, "")
            return Ledger(run_dir)
        ledger = Ledger(run_dir, whole_lines(text))
        if whole_lines(text) != text:
            write_atomic(run_dir / LINES, whole_lines(text))
        return ledger

    def add(self, flights: Sequence[Flight]) -> None:
        """Committed episodes."""
        lines = "".join(json.dumps(dataclasses.asdict(f)) + "\n" for f in flights)
        with (self.run_dir / LINES).open("a", encoding="utf-8") as stream:
            stream.write(lines)
        self._sum.update(lines.encode())
        self.flights.extend(flights)

    @property
    def written(self) -> WrittenLines:
        """The lines as they were written, whatever lies there now."""
        return WrittenLines(len(self.flights), self._sum.hexdigest())

    def recover(
        self, store: EpisodeStore, practice: str, execute: int, judge: Judge | None = None
    ) -> None:
        """Lines for what ``store`` holds of the practice beyond the last line; a decision was taken
        every ``execute`` steps. ``judge``: decides on success where somebody does, who may not have
        seen them before the kill.
        """
        known = {f.id for f in self.flights}
        newest = max(known, default="")
        found: list[Flight] = []
        for info in store.list():
            if info.kind != "online" or info.id <= newest:
                continue
            meta = store.meta(info.id)
            said = meta.provenance.get("practice", {})
            if said.get("id") != practice:
                continue
            found.append(
                Flight(
                    number=said["number"],
                    id=info.id,
                    start=said["start"],
                    world=meta.env,
                    driver=said["driver"],
                    version=said["version"],
                    success=meta.outcome.success,
                    score=info.score,
                    steps=info.steps,
                    decisions=-(-info.steps // execute),
                    reason=meta.outcome.reason,
                    effort=effort_of(store.read(info.id, telling(info.signals))),
                    moves=said.get("moves", 1),
                )
            )
        if judge is not None and found:
            said = judge([f.id for f in found])
            found = [dataclasses.replace(f, success=said[f.id]) for f in found]
        self.add(found)

    @property
    def next_number(self) -> int:
        """Of the next episode."""
        return 1 + max((f.number for f in self.flights), default=-1)

    @property
    def next_start(self) -> int:
        """Of the next start."""
        return 1 + max((f.start for f in self.flights), default=-1)

    @property
    def robot_seconds(self) -> float:
        """In which episodes drove the arm [s]."""
        return math.fsum(f.effort.seconds for f in self.flights)

    @property
    def cut(self) -> int:
        """Episodes that a stop of the supervisor ended."""
        return sum(f.reason in STOPPED for f in self.flights)

    @property
    def regret(self) -> int:
        """Successes that practice has cost, or gained if it is below 0: on starts that both drivers
        had, the parent's less the explorer's.
        """
        return sum(parent - explorer for parent, explorer in pairs(self.flights))

    @property
    def dip(self) -> int:
        """The most successes that practice had cost at any time, counted as :attr:`regret`: what it
        took to let drive what had hardly been learned, before that paid.
        """
        costs = (parent - explorer for parent, explorer in pairs(self.flights))
        return max(accumulate(costs, initial=0))

    def recent(self, driver: Driver, count: int) -> list[Flight]:
        """The last ``count`` episodes that ``driver`` drove."""
        return [f for f in self.flights if f.driver == driver][-count:]
