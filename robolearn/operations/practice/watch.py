"""Watches what is learned beside its parent: whether it does worse, and whether it leaves it.

    worse    pairs of episodes from one start, an explorer's and the parent's
             (eval/statistics/detector.py)
    drift    d^2 = E[ min_j |A - B_j|^2 ] / E[ min_j |B_1 - B'_j|^2 ]     (``apart``)
             more than ``practice.max_drift``

A: the steps that are executed of what is answered to an observation; B_j: of some of the parent's
chunks there, from the same noise; B'_j: at another observation of the batch. So 0 is whoever does
what the parent might have done, chosen among its chunks included, and at 1 answers have no more to
do with the parent's than these have with each other where something unrelated is seen. Every number
of an action counts in units of its own change from observation to observation; numbers that the
parent never changes are left out.

Neither ends a practice by itself. Exploring costs something, and who gets better goes elsewhere:
what counts is what would be deployed, so a test on held-out starts decides, or where there are
none (on an arm) what the pairs have cost until then.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

import numpy as np

from eval.statistics.detector import WorseDetector
from policies.critics.candidates import draw_chunks
from policies.critics.parent import inner_policy
from policies.nets.shapes import Candidates, Chunks
from robolearn.contracts import Policy
from robolearn.learning import Algorithm, Batch, Observed
from robolearn.operations.practice.records import DriftStanding, Standing, VersionTest
from robolearn.training.run_directory import Run

ROWS, CHUNKS = 64, 8
"""Observations that both are asked at, and the parent's chunks there."""
LEAST = 1e-12
"""Squared change of a number below which the parent never changes it."""
AGAIN = 1.5
"""Drift that a test found harmless is looked at again at so many times as much."""
ELSEWHERE = 0.5
"""What begins at more than this share of the limit has no parent that it could drift off."""


@dataclass(slots=True)
class ParentWatch:
    """``limit``: of drift (None: it is not watched)."""

    false_alarm: float
    limit: float | None
    drift: DriftStanding = DriftStanding()  # noqa: RUF009 (frozen)
    _worse: WorseDetector = field(default_factory=WorseDetector)
    _now: float | None = None

    @staticmethod
    def of(standing: Standing, false_alarm: int, limit: float | None) -> ParentWatch:
        """As it stood."""
        sums = np.array(standing.watch) if standing.watch else None
        worse = WorseDetector(float(false_alarm), sums)
        return ParentWatch(float(false_alarm), limit, standing.drift, worse)

    @property
    def sums(self) -> tuple[float, ...]:
        """Of the watch over pairs."""
        return tuple(float(v) for v in self._worse.sums)

    def begin(self, drift: float | None) -> None:
        """What is learned begins so far from its parent."""
        if self.drift.begun is None:
            self.drift = dataclasses.replace(self.drift, begun=drift)

    def pair(self, *, parent: bool, explorer: bool) -> None:
        """Whether the two succeeded from one start."""
        self._worse.add(parent, explorer)

    def drifted(self, drift: float | None) -> None:
        """It is so far from its parent now; None: nobody has looked."""
        self._now = drift

    @property
    def alarm(self) -> str:
        """What calls for a test; nothing: ""."""
        if self._worse.alarm:
            return "the parent is clearly better"
        limit, begun = self.limit, self.drift.begun
        if limit is None or self._now is None or begun is None or begun > ELSEWHERE * limit:
            return ""
        if not self._now > max(limit, AGAIN * self.drift.cleared):
            return ""
        return (
            f"the policy has drifted off its parent: their answers are {self._now:.2f} times as far"
            f" apart as the parent's own to unrelated observations ({begun:.2f} when it began;"
            f" practice.max_drift: {limit:g})"
        )

    def verdict(self, found: VersionTest | None, regret: int) -> str:
        """Why practice ends after an :attr:`alarm`, given a test, or where nothing can be tested
        the successes that pairs have cost; "": it goes on, and the alarm is answered.
        """
        why = self.alarm
        self._worse.reset()
        if found is None and regret > 0:
            return (
                f"{why}; on the starts that both had, what was learned has cost {regret} successes"
            )
        if found is not None and not found.no_worse:
            return (
                f"{why}; version {found.version} solves {found.successes} of {found.starts}"
                f" held-out starts, the parent {found.parent_successes}"
            )
        if self._now is not None and not why.startswith("the parent"):
            self.drift = dataclasses.replace(self.drift, cleared=self._now)
        return ""


@dataclass(frozen=True, slots=True)
class Drift:
    """Says how far an algorithm's policy is from ``parent``; asked between updates."""

    parent: Policy

    @staticmethod
    def off(parent: Run) -> Drift:
        """Of what is learned over ``parent``, as both see the data."""
        return Drift(inner_policy(parent))

    def __call__(self, algorithm: Algorithm, batch: Batch) -> float | None:
        """:func:`apart` on ``batch``. Neither learning nor its random numbers notice it."""
        shown = {name: values[:ROWS] for name, values in batch.observations.items()}
        return apart(algorithm.policy(), self.parent, shown)


def apart(own: Policy, parent: Policy, observations: Observed) -> float | None:
    """``d`` at ``observations``; None where the parent sees more of the past, or always answers
    alike.
    """
    past = parent.spec.n_obs
    if own.spec.n_obs < past:
        return None
    steps = min(own.spec.execute, parent.spec.execute)
    recent = {name: values[:, -past:] for name, values in observations.items()}
    seeds = np.arange(len(next(iter(observations.values()))))
    theirs = draw_chunks(parent, recent, seeds, CHUNKS)[:, :, :steps]
    ours = draw_chunks(own, observations, seeds, 1)[:, 0, :steps].to(theirs.device)
    other = theirs.roll(1, dims=0)
    change = ((theirs[:, 0] - other[:, 0]) ** 2).mean(dim=(0, 1))
    changing = change > LEAST
    if not bool(changing.any()):
        return None

    def nearest(one: Chunks, of: Candidates) -> float:
        far = ((one[:, None] - of) ** 2)[..., changing] / change[changing]
        return float(far.mean(dim=(2, 3)).amin(dim=1).mean())

    found = math.sqrt(nearest(ours, theirs) / max(nearest(theirs[:, 0], other), LEAST))
    # Answers that are no numbers end practice by themselves.
    return found if math.isfinite(found) else None
