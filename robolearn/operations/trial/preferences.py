"""Ranks policies by what operators preferred in pairs of blinded trials."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eval.blinded.key import open_key
from eval.blinded.plan import TrialPlan, read_locked
from eval.blinded.unblinded import UNBLINDED
from eval.blinded.votes import TIE, Vote
from eval.plain import read_mapping
from eval.statistics.intervals import Estimate
from eval.statistics.preferences import bradley_terry
from robolearn.errors import DataError
from robolearn.operations.trial.report import trial_report, unblinded_votes


@dataclass(frozen=True, slots=True)
class RankedPolicy:
    """A policy's strength (logit scale, mean 0 over policies) and what it won. Where strengths are
    not identified they are nan, and there is no rating.
    """

    policy: str
    strength: Estimate
    rating: int | None
    won: int
    lost: int
    tied: int


@dataclass(frozen=True, slots=True)
class PreferenceRanking:
    """All policies that somebody compared, the strongest first; where strengths are not identified
    (``note`` says why), by the share of their comparisons that they won. ``without``: planned
    policies that nobody compared. ``repeated``: comparisons of the same two from the same start as
    an earlier one, which are no further ones; ``alike`` of them came out the same. ``left``: what
    of the plan was not done when the names were told, for ``reason``; "": all was.
    """

    policies: tuple[RankedPolicy, ...]
    comparisons: int
    level: float
    identified: bool
    note: str
    without: tuple[str, ...]
    repeated: int
    alike: int
    complete: bool
    left: str
    reason: str

    @property
    def lines(self) -> tuple[str, ...]:
        """For a terminal."""
        intervals = f"; {100 * self.level:g} % intervals" if self.identified else ""
        model = f"(Bradley-Terry, Davidson's ties{intervals})"
        found = [f"{self.comparisons} comparisons {model}"]
        for p in self.policies:
            s = p.strength
            counts = f"{p.won} won, {p.lost} lost, {p.tied} tied"
            strength = f"{s.value:+.2f} [{s.low:+.2f}, {s.high:+.2f}], rating {p.rating}; "
            found.append(f"  {p.policy}: {strength if self.identified else ''}{counts}")
        found += [f"  {name}: nobody compared it" for name in self.without]
        if self.repeated:
            found.append(
                f"{self.repeated} repeated comparisons are left out; {self.alike} came out as the"
                " first time"
            )
        if not self.identified:
            found += [self.note, "listed by the share of comparisons won, which is no ranking"]
        if not self.complete:
            why = f" ({self.reason})" if self.reason else ""
            found.append(f"unblinded before the plan was done{why}: {self.left}; exploratory")
        return tuple(found)


def rank_by_preferences(folder: Path, level: float = 0.95) -> PreferenceRanking:
    """Rank by the votes of unblinded pairs, with intervals at ``level``.

    :class:`DataError` where there are none or they are blinded, :class:`StoreCorruptError` for
    votes that are not those of the plan or not those that were unblinded.
    """
    every = unblinded_votes(folder)
    report = trial_report(folder)
    if not every:
        left = f" ({report.left})" if report.left else ""
        raise DataError(
            f"'{folder}' has no preferences{left}: they come from trials that were planned in pairs"
        )
    plan = read_locked(folder).plan
    votes, repeated = _first_ones(every, plan)
    ratings = bradley_terry([v.preference for v in votes], level)
    ranked = [
        RankedPolicy(name, strength, ratings.rating(name), *_counts(name, votes))
        for name, strength in ratings.theta.items()
    ]
    ranked.sort(key=lambda p: -p.strength.value if ratings.identified else -_share(p))
    planned = open_key(folder, plan.key).policies
    return PreferenceRanking(
        policies=tuple(ranked),
        comparisons=ratings.comparisons,
        level=level,
        identified=ratings.identified,
        note=ratings.note,
        without=tuple(sorted(p.name for p in planned if p.name not in ratings.theta)),
        repeated=len(repeated),
        alike=sum(again.better == first.better for first, again in repeated),
        complete=report.complete,
        left=report.left,
        reason=str(read_mapping(folder / UNBLINDED).get("reason", "")),
    )


def _first_ones(
    votes: tuple[Vote, ...], plan: TrialPlan
) -> tuple[tuple[Vote, ...], list[tuple[Vote, Vote]]]:
    """The first vote of each two policies from each start; the others, each with its first one."""
    condition = {s.block: s.condition for s in plan.slots}
    found: dict[tuple[str, frozenset[str]], Vote] = {}
    repeated: list[tuple[Vote, Vote]] = []
    for vote in votes:
        what = (condition[vote.block], frozenset((vote.first, vote.second)))
        if what in found:
            repeated.append((found[what], vote))
        else:
            found[what] = vote
    return tuple(found.values()), repeated


def _share(policy: RankedPolicy) -> float:
    """Of its comparisons, those that it won; a tie is half a one."""
    count = policy.won + policy.lost + policy.tied
    return (policy.won + policy.tied / 2) / count


def _counts(name: str, votes: tuple[Vote, ...]) -> tuple[int, int, int]:
    mine = [v for v in votes if name in (v.first, v.second)]
    won = sum(v.better == name for v in mine)
    tied = sum(v.better == TIE for v in mine)
    return won, len(mine) - won - tied, tied
