"""Adds up what a practice cost the arm, and the person who helped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robolearn.data.insight.effort import together
from robolearn.operations.practice.ledger import Flight


@dataclass(frozen=True, slots=True)
class Wear:
    """What a practice cost the arm and the person."""

    # Time that episodes drove [s].
    robot_seconds: float = 0.0
    # Ways that the arm was sent: episodes, and on a cell ways to a start.
    moves: int = 0
    # Of all joints together [rad]; of the tool [m]; 0 where it is not seen.
    travel_rad: float = 0.0
    travel_m: float = 0.0
    # Of the supervisor.
    stops: int = 0
    # How often the force at the tool rose beyond 50 N; the largest [N].
    force_peaks: int = 0
    largest_force_n: float = 0.0
    # How often a person took over, and for how long [s].
    take_overs: int = 0
    person_seconds: float = 0.0


def worn(flights: Sequence[Flight], stops: int) -> Wear:
    """By all of ``flights``, which the supervisor stopped ``stops`` times."""
    sums = together(f.effort for f in flights)
    steps = sum(f.steps for f in flights if f.effort.seconds)
    return Wear(
        robot_seconds=sums.seconds,
        moves=sum(f.moves for f in flights),
        travel_rad=sums.travel_rad,
        travel_m=sums.travel_m,
        stops=stops,
        force_peaks=sums.force_peaks,
        largest_force_n=sums.largest_force_n,
        take_overs=sums.take_overs,
        person_seconds=sums.person_steps * sums.seconds / steps if steps else 0.0,
    )
