"""Keeps what happened in a practice: a line for every episode, and where it stands.

    OUT/practice.jsonl   every committed episode: id, driver, version, outcome
    OUT/practice.json    time spent, tests, what the watch has seen; rewritten whenever the learner
                         is checkpointed

An episode is committed to the store first. What a kill leaves committed without a line is found in
the store again.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robolearn.config import from_dict
from robolearn.data.insight.effort import Effort, effort_of, telling
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import CheckpointError, GripperError, SafetyStopError
from robolearn.files import write_atomic
from robolearn.operations.deploy.trials import reason_of
from robolearn.operations.practice.actors import Driver

BOTH: tuple[Driver, ...] = ("parent", "explorer")
LINES, STANDING = "practice.jsonl", "practice.json"
STOPPED = (reason_of(SafetyStopError()), reason_of(GripperError()))
"""Why an episode ended that a stop of the supervisor cut short."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One episode of a practice: its ``number`` in the practice, from 0; its ``id`` in the store
    (empty: not recorded, as its physics broke down); the ``start`` that it began at; who drove, of
    which ``version`` (None: the parent).
    """

    number: int
    id: str
    start: int
    world: str
    driver: Driver
    version: int | None
    success: bool
    score: float
    steps: int
    decisions: int
    reason: str
    # Control ticks that came late; of a cell.
    late_ticks: int = 0
    # What it cost the arm and the person; how often the arm was sent.
    effort: Effort = Effort()  # noqa: RUF009 (frozen)
    moves: int = 1

    @property
    def unaided(self) -> bool:
        """Whether the policy succeeded, and nobody took over."""
        return self.success and not self.effort.take_overs


@dataclass(frozen=True, slots=True)
class VersionTest:
    """What ``version`` did on the held-out starts, beside its parent on the same ones."""

    version: int
    # Updates, episodes and minutes of computing until then.
    updates: int
    episodes: int
    cpu_minutes: float
    starts: int
    successes: int
    # 95 % interval of the success rate (Wilson).
    low: float
    high: float
    score: float
    parent_successes: int
    # Starts that only one of the two solved.
    gained: int
    lost: int
    # Of so uneven a split of those, if both were equally good (McNemar, exact, two-sided).
    p: float

    @property
    def worse(self) -> bool:
        """Clearly worse than the parent."""
        return self.lost > self.gained and self.p < 0.05


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a practice stands, apart from its episodes and the learner's own state."""

    identity: dict[str, Any]
    # Said by every episode.
    id: str
    # What it was limited by when it was last written, and what came out; None: it is not over.
    limits: dict[str, Any]
    result: dict[str, Any] | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    # Updates that are due for decisions taken.
    owed: float = 0.0
    # Whether updates were made before anything that was learned drove.
    begun: bool = False
    tests: tuple[VersionTest, ...] = ()
    # Of the watch (eval/statistics/detector.py).
    watch: tuple[float, ...] = ()
    rounds: int = 0
    # Stops of the supervisor; of a cell.
    stops: int = 0


def unaided(flights: Sequence[Flight]) -> float | None:
    """Share of successes in which nobody took over; None of no episode."""
    return sum(f.unaided for f in flights) / len(flights) if flights else None


def by_person(flights: Sequence[Flight]) -> float:
    """Share of steps that a person drove."""
    steps = sum(f.steps for f in flights)
    return sum(f.effort.person_steps for f in flights) / steps if steps else 0.0


def pairs(flights: Sequence[Flight]) -> list[tuple[bool, bool]]:
    """Whether the parent and the explorer succeeded without a person, of every start that both of
    them had.
    """
    found: dict[int, dict[Driver, bool]] = {}
    for flight in flights:
        found.setdefault(flight.start, {})[flight.driver] = flight.unaided
    return [(p["parent"], p["explorer"]) for p in found.values() if len(p) == len(BOTH)]


@dataclass(slots=True)
class Ledger:
    """The lines of ``run_dir``, and those to come."""

    run_dir: Path
    flights: list[Flight] = field(default_factory=list[Flight])

    @staticmethod
    def of(run_dir: Path) -> Ledger:
        """As it stands; a last line that a kill cut short is dropped."""
        path = run_dir / LINES
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            write_atomic(path, whole)
        flights: list[Flight] = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                flights.append(from_dict(Flight, json.loads(line), f"{path}, line {number}"))
            except ValueError as error:
                raise CheckpointError(f"'{path}', line {number}, is damaged: {error}") from error
        return Ledger(run_dir, flights)

    def add(self, flights: Sequence[Flight]) -> None:
        """Committed episodes."""
        with (self.run_dir / LINES).open("a", encoding="utf-8") as stream:
            for flight in flights:
                stream.write(json.dumps(dataclasses.asdict(flight)) + "\n")
        self.flights.extend(flights)

    def recover(self, store: EpisodeStore, practice: str, execute: int) -> None:
        """Lines for what ``store`` holds of the practice beyond the last line; a decision was taken
        every ``execute`` steps.
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

    def recent(self, driver: Driver, count: int) -> list[Flight]:
        """The last ``count`` episodes that ``driver`` drove."""
        return [f for f in self.flights if f.driver == driver][-count:]


def write_standing(run_dir: Path, standing: Standing) -> None:
    """Atomically."""
    text = json.dumps(dataclasses.asdict(standing), indent=1) + "\n"
    write_atomic(run_dir / STANDING, text)


def read_standing(run_dir: Path) -> Standing | None:
    """None before the first."""
    path = run_dir / STANDING
    if not path.is_file():
        return None
    try:
        return from_dict(Standing, json.loads(path.read_text(encoding="utf-8")), str(path))
    except ValueError as error:
        raise CheckpointError(f"'{path}' is damaged: {error}; choose another out") from error
