"""Counts what a practice came to by who drove: the parent, and each version of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eval.statistics.intervals import Estimate, wilson
from robolearn.operations.practice.records import Flight


@dataclass(frozen=True, slots=True)
class VersionSuccess:
    """The episodes that ``version`` drove (None: the parent), from number ``first`` to ``last`` of
    the practice. ``successes``: those that succeeded without a person's help, with the interval
    (Wilson, 95 %) of their share; ``helped``: those in which a person took over; ``score``: mean.
    """

    version: int | None
    first: int
    last: int
    episodes: int
    successes: int
    helped: int
    success: Estimate
    score: float


def by_version(flights: Sequence[Flight]) -> tuple[VersionSuccess, ...]:
    """The parent first, then versions as they are numbered; those that drove nothing are left out.

    Intervals are of one version each: among many some miss.
    """
    found: dict[int | None, list[Flight]] = {}
    for flight in flights:
        found.setdefault(flight.version, []).append(flight)
    ordered = sorted(found, key=lambda v: -1 if v is None else v)
    return tuple(_summed(version, found[version]) for version in ordered)


def _summed(version: int | None, flights: Sequence[Flight]) -> VersionSuccess:
    successes = sum(f.unaided for f in flights)
    return VersionSuccess(
        version=version,
        first=min(f.number for f in flights),
        last=max(f.number for f in flights),
        episodes=len(flights),
        successes=successes,
        helped=sum(f.effort.take_overs > 0 for f in flights),
        success=wilson(successes, len(flights)),
        score=sum(f.score for f in flights) / len(flights),
    )
