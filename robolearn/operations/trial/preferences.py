"""Ranks policies by what operators preferred in pairs of blinded trials."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eval.blinded.votes import TIE, Vote
from eval.statistics.intervals import Estimate
from eval.statistics.preferences import bradley_terry
from robolearn.errors import DataError
from robolearn.operations.trial.report import unblinded_votes


@dataclass(frozen=True, slots=True)
class RankedPolicy:
    """A policy's strength (logit scale, mean 0 over policies) and what it won."""

    policy: str
    strength: Estimate
    rating: int
    won: int
    lost: int
    tied: int


@dataclass(frozen=True, slots=True)
class PreferenceRanking:
    """All policies, the strongest first. ``connected``: whether every policy has, through others,
    beaten and lost to every other; if not, strengths say little.
    """

    policies: tuple[RankedPolicy, ...]
    comparisons: int
    connected: bool

    @property
    def lines(self) -> tuple[str, ...]:
        """For a terminal."""
        first = f"{self.comparisons} comparisons (Bradley-Terry, Davidson's ties; 95 % intervals)"
        found = [first]
        for p in self.policies:
            s = p.strength
            counts = f"{p.won} won, {p.lost} lost, {p.tied} tied"
            found.append(
                f"  {p.policy}: {s.value:+.2f} [{s.low:+.2f}, {s.high:+.2f}], rating {p.rating};"
                f" {counts}"
            )
        if not self.connected:
            found.append(
                "some policy never lost, or never won: its strength has no finite estimate, and"
                " the numbers above only say the order"
            )
        return tuple(found)


def rank_by_preferences(folder: Path, level: float = 0.95) -> PreferenceRanking:
    """Rank by the votes of unblinded pairs. :class:`DataError` where there are none."""
    votes = unblinded_votes(folder)
    if not votes:
        raise DataError(f"'{folder}' has no preferences: they come from trials in pairs")
    ratings = bradley_terry([v.preference for v in votes], level)
    ranked = [
        RankedPolicy(name, strength, ratings.rating(name), *_counts(name, votes))
        for name, strength in ratings.theta.items()
    ]
    ranked.sort(key=lambda p: -p.strength.value)
    return PreferenceRanking(tuple(ranked), ratings.comparisons, ratings.connected)


def _counts(name: str, votes: tuple[Vote, ...]) -> tuple[int, int, int]:
    mine = [v for v in votes if name in (v.first, v.second)]
    won = sum(v.better == name for v in mine)
    tied = sum(v.better == TIE for v in mine)
    return won, len(mine) - won - tied, tied
