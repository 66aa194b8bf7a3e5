"""Fixes what a practice keeps, and reads it; also while the practice goes on.

    OUT/practice.jsonl   every committed episode: id, driver, version, outcome
    OUT/practice.json    time spent, tests, what the watch has seen

It needs neither torch nor a simulator, so that a page may show it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from eval.trials.instruments import NOT_FINITE
from robolearn.config import from_dict
from robolearn.data.insight.effort import Effort
from robolearn.errors import CheckpointError
from robolearn.files import write_atomic

Driver = Literal["parent", "explorer"]
UNSOUND = "unsound"
"""Reason of an episode whose recording does not hold together (a sample between two ticks that is
not finite, a time that goes backwards), which shows at its end: it is not kept."""
UNSEEN = (NOT_FINITE, UNSOUND)
"""Reasons of episodes that nobody could see."""
KEPT: Mapping[str, str] = {
    "last": "holds the last version",
    "tested": "holds the best version that was tested, not the last one",
    "parent": "holds the parent as it was",
}
"""What the run of a practice that is over holds, in words."""
LINES, STANDING = "practice.jsonl", "practice.json"


@dataclass(frozen=True, slots=True)
class Flight:
    """One episode of a practice: its ``number`` in the practice, from 0; its ``id`` in the store
    (empty: not kept, as its physics or a signal broke down); the ``start`` that it began at; who
    drove, of which ``version`` (None: the parent).
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
    # Which signal was not finite, or what was wrong with its recording; a task's own last trouble.
    trouble: str = ""

    @property
    def unseen(self) -> bool:
        """Whether a signal broke down, which tells nothing of who drove."""
        return self.reason in UNSEEN

    @property
    def unaided(self) -> bool:
        """Whether the policy succeeded, and nobody took over."""
        return self.success and not self.effort.take_overs


CLEARLY = 0.05
"""A version is clearly worse than its parent below this p value, of either measure."""


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
    # Mean score of the parent on these starts, and the p value of so large a difference of the
    # two, if both were equally good (bounded differences); of tests that were kept without: as if
    # there were none.
    parent_score: float | None = None
    score_p: float = 1.0

    @property
    def worse(self) -> bool:
        """Clearly worse than the parent: by what succeeds or, where that does not speak for it, by
        the score. A parent that hardly ever succeeds can be told from nothing by its score alone.
        """
        if self.lost > self.gained and self.p < CLEARLY:
            return True
        lower = self.parent_score is not None and self.score < self.parent_score
        return lower and self.score_p < CLEARLY and self.lost >= self.gained

    @property
    def no_worse(self) -> bool:
        """Solves as many as the parent, and is not clearly worse."""
        return self.successes >= self.parent_successes and not self.worse


@dataclass(frozen=True, slots=True)
class WrittenLines:
    """How many lines of episodes there were, and their SHA-256; ``count`` 0: nothing is known."""

    count: int = 0
    sha256: str = ""

    @staticmethod
    def of(text: str) -> WrittenLines:
        """Of the whole lines of ``text``."""
        lines = whole_lines(text)
        return WrittenLines(lines.count("\n"), hashlib.sha256(lines.encode()).hexdigest())

    def begin(self, text: str) -> bool:
        """Whether ``text`` still begins with them."""
        first = "".join(text.splitlines(keepends=True)[: self.count])
        return not self.count or WrittenLines.of(first) == self


@dataclass(frozen=True, slots=True)
class DriftStanding:
    """How far what is learned is from its parent (``watch.py``): when it began (None: nobody could
    say), and the most that a test has found harmless.
    """

    begun: float | None = None
    cleared: float = 0.0


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
    drift: DriftStanding = DriftStanding()
    rounds: int = 0
    # Stops of the supervisor; of a cell.
    stops: int = 0
    # Id of the store that has its episodes, and where that was.
    store: str = ""
    store_path: str = ""
    # What the lines of its episodes were by then.
    lines: WrittenLines = WrittenLines()


def read_flights(run_dir: Path) -> tuple[Flight, ...]:
    """The episodes of a practice as they were written, also while it goes on; a last line that is
    not whole (yet) is left out. Errors: :class:`CheckpointError` for a damaged line.
    """
    return flights_of(read_lines(run_dir), run_dir)


def read_lines(run_dir: Path) -> str:
    """The lines of a practice's episodes as they are; nothing before the first."""
    path = run_dir / LINES
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def flights_of(text: str, run_dir: Path) -> tuple[Flight, ...]:
    """The episodes that whole lines of ``text`` tell. Errors: :class:`CheckpointError` for a
    damaged one, by its place in the file of ``run_dir``.
    """
    path = run_dir / LINES
    flights: list[Flight] = []
    for number, line in enumerate(whole_lines(text).splitlines(), 1):
        try:
            flights.append(from_dict(Flight, json.loads(line), f"{path}, line {number}"))
        except ValueError as error:
            raise CheckpointError(f"'{path}', line {number}, is damaged: {error}") from error
    return tuple(flights)


def whole_lines(text: str) -> str:
    """Without a last line that is not written to its end."""
    return text[: text.rfind("\n") + 1]


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
