"""Adds up what a practice cost the arm, and the person who helped."""

from __future__ import annotations

from collections.abc import Sequence

from robolearn.data.insight.effort import Wear, together
from robolearn.operations.practice.records import Flight


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
        interventions=sums.interventions,
        force_peaks=sums.force_peaks,
        largest_force_n=sums.largest_force_n,
        take_overs=sums.take_overs,
        person_seconds=sums.person_steps * sums.seconds / steps if steps else 0.0,
    )
