"""Makes the lines of a practice without practising."""

from __future__ import annotations

from pathlib import Path

from robolearn.data.insight.effort import Effort
from robolearn.operations.practice.ledger import Ledger
from robolearn.operations.practice.records import (
    Driver,
    Flight,
    Standing,
    VersionTest,
    write_standing,
)

TEST = VersionTest(4, 100, 9, 1.0, 20, 15, 0.53, 0.89, 0.8, 12, 5, 2, 0.45)


def flight(number: int, version: int | None, success: bool, helped: int = 0) -> Flight:
    """An episode that the parent (None) or a version drove."""
    score, reason = (1.0, "success") if success else (0.4, "time_limit")
    driver: Driver = "parent" if version is None else "explorer"
    said = (number, f"ep_{number:06d}", number, "toy", driver, version, success, score)
    return Flight(*said, steps=20, decisions=5, reason=reason, effort=Effort(take_overs=helped))


def practised(run: Path) -> tuple[Flight, ...]:
    """Lines of a practice with two versions in ``run``, one of which was tested."""
    run.mkdir(parents=True, exist_ok=True)
    flights = (
        *(flight(k, None, k < 2) for k in range(4)),
        *(flight(4 + k, 7, k < 5, helped=int(k == 0)) for k in range(6)),
        *(flight(10 + k, 4, k < 1) for k in range(2)),
    )
    Ledger(run).add(flights)
    write_standing(run, Standing({}, "toy", {}, tests=(TEST,)))
    return flights
