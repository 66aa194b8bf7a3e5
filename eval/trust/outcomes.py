"""Holds outcomes of policies in one task, and draws them anew: as independent trials, or as ones
that go together by their starts: several of one start, the same starts in both worlds and for all
policies.

Taken for independent, rollouts of one start promise more than they are: twenty starts with five
rollouts each are not a hundred trials. Starts that both worlds share promise less: what they do to
both is no noise between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from eval.trust.repetition import Outcome, means, share_repeated
from robolearn.shapes import FloatRows, Floats, OwnFloats

Side = Literal["real", "sim"]
# Of every distribution of outcomes.
_QUANTILES = 1_000
# Drawn outcomes that are held at a time.
HELD = 2_000_000

Uniform = Float32[NDArray[np.float32], "draws starts"]
Counts = Float32[NDArray[np.float32], " starts"]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """One policy in one task on one side: successes of trials, scores of trials, or only a rate."""

    # Mean over the trials, in [0, 1]; where starts are known, over the means of these.
    rate: float
    # None: only the rate is known, and nothing of its noise.
    trials: int | None = None
    # Scores of the single trials, if they are known; without them each trial is a success or none.
    scores: OwnFloats | None = None
    # The share of each score in the rate, where starts were not all tried equally often.
    weights: OwnFloats | None = None

    @staticmethod
    def of_counts(successes: int, trials: int) -> Outcomes:
        """``trials`` is at least 1."""
        return Outcomes(successes / trials, trials)

    @staticmethod
    def over_starts(starts: Collection[Outcome], *, scored: bool) -> Outcomes:
        """Of the trials of each start, of which one counts as much as another: one that is tried
        often would else make a policy good if it is easy, and bad if it is hard.
        """
        size = [len(outcome) for outcome in starts]
        uneven = len(set(size)) > 1
        values = np.array([v for outcome in starts for v in outcome], dtype=np.float64)
        rate = float(means(starts).mean() if uneven else values.mean())
        if not scored:
            return Outcomes(rate, values.size)
        weights = np.repeat([1.0 / (n * len(size)) for n in size], size) if uneven else None
        return Outcomes(rate, values.size, values, weights)

    def spread(self, n: int) -> OwnFloats:
        """``n`` scores that are distributed as these by their weights; there are scores."""
        # The middle of each, whose rank is not to be rounded down.
        return self.quantiles()((2 * np.arange(n) + 1) / (2 * n) + 1e-12)

    def quantiles(self) -> Callable[[Floats | Uniform], OwnFloats]:
        """Scores at shares in [0, 1) of all of them, each by its weight; there are scores."""
        scores = np.array([]) if self.scores is None else self.scores
        order = np.argsort(scores)
        last, found = scores.size - 1, scores[order]
        if self.weights is None:
            return lambda share: found[np.minimum((share * found.size).astype(np.int64), last)]
        ends = np.cumsum(self.weights[order])
        return lambda share: found[np.minimum(np.searchsorted(ends, share, side="right"), last)]


@dataclass(frozen=True, slots=True)
class Repeats:
    """How much of the variance of a single trial its start explains, within policies."""

    real: float
    sim: float
    # In both worlds alike: how well a simulated trial predicts the real one from its start.
    joint: float
    # Of what starts explain: the share that is the same for all policies.
    policies: float

    @property
    def perfect(self) -> Repeats:
        """Of a simulator that is the reality."""
        return Repeats(self.real, self.real, self.real, self.policies)


@dataclass(frozen=True, slots=True)
class Starts:
    """From which of the task's starts one policy was tried: how often in each world."""

    real: Counts
    sim: Counts
    repeats: Repeats

    def __len__(self) -> int:
        """How many starts the policy has."""
        return int((self.real > 0).sum())

    def worth(self, side: Side) -> float:
        """So many independent trials would tell the rate, in which starts count alike, as well
        (design effect; Kish 1965).
        """
        counts = (self.real if side == "real" else self.sim).astype(np.float64)
        share = self.repeats.real if side == "real" else self.repeats.sim
        counts = counts[counts > 0]
        return float(counts.size**2 / (share + (1.0 - share) / counts).sum())


def starts_of(
    real: Sequence[Mapping[str, Outcome]], sim: Sequence[Mapping[str, Outcome]]
) -> tuple[Starts, ...]:
    """Of policies that were tried from the same starts in both worlds, an item per policy of each.

    Where reality was not repeated, a simulated trial stands for the repetition, as it is one if the
    simulator is perfect; other policies' trials do, too. What is not seen counts as independent.
    """
    at = {name: i for i, name in enumerate(sorted({n for side in real for n in side}))}
    repeats = _repeats(real, sim, at)
    found: list[Starts] = []
    for sides in zip(real, sim, strict=True):
        counts = np.zeros((2, len(at)), dtype=np.float32)
        for row, side in zip(counts, sides, strict=True):
            row[[at[name] for name in side]] = [len(o) for o in side.values()]
        counts.setflags(write=False)
        found.append(Starts(counts[0], counts[1], repeats))
    return tuple(found)


def independent(
    truth: Sequence[Sequence[Outcomes]],
    like: Sequence[Sequence[Outcomes]],
    draws: int,
    rng: np.random.Generator,
    times: float,
) -> FloatRows:
    """Means over the parts of ``truth``, each of as many trials as in ``like``."""
    flat = [(t, o) for parts, others in zip(truth, like, strict=True)
            for t, o in zip(parts, others, strict=True)]  # fmt: skip
    values = np.empty((draws, len(flat)))
    counted = [i for i, (t, o) in enumerate(flat) if o.trials is not None and t.scores is None]
    rates = np.array([flat[i][0].rate for i in counted])
    n = np.array([_times(flat[i][1].trials, times) for i in counted], dtype=np.int64)
    if counted:
        values[:, counted] = rng.binomial(n, rates, (draws, len(counted))) / n
    for i, (t, o) in enumerate(flat):
        if o.trials is None:
            values[:, i] = t.rate
        elif t.scores is not None:
            values[:, i] = _each(t, (draws, _times(o.trials, times)), rng).mean(axis=1)
    ends = np.cumsum([len(parts) for parts in truth])
    parts = np.split(values, ends[:-1], axis=1)
    return np.stack([p.mean(axis=1) for p in parts], axis=1)


def from_starts(
    real: Sequence[Outcomes],
    sim: Sequence[Outcomes],
    starts: Sequence[Starts],
    repeats: Repeats,
    draws: int,
    rng: np.random.Generator,
    times: float = 1.0,
) -> tuple[FloatRows, FloatRows]:
    """(sim, real) ``[draws, policies]``: means over as many starts (``times`` as many) of the means
    of as many trials from each, an item per policy of each argument.

    A start is decided with the probability that :class:`Repeats` says: then all trials from there
    end alike, else each for itself. This is what has these shares of variance with outcomes of any
    distribution; which ones are decided, and how, the worlds and the policies share as told.
    """
    counts = [(_more(s.real, times), _more(s.sim, times)) for s in starts]
    n = counts[0][0].size
    found = np.empty((2, draws, len(starts)))
    for at in range(0, draws, step := max(1, HELD // n)):
        rows = slice(at, min(at + step, draws))
        common = _Laid.out(rng, (rows.stop - at, n))
        for i, (in_real, in_sim) in enumerate(counts):
            laid = _Laid.out(rng, common.which.shape)
            if repeats.policies > 0:
                # Two policies share what both take from the common ones.
                taken = rng.random(laid.which.shape, np.float32) < math.sqrt(repeats.policies)
                laid = laid.where(taken, common)
            tied = laid.which < repeats.joint
            decided = laid.which < repeats.real
            found[1, rows, i] = _means(real[i], in_real, decided, laid.how, rng)
            decided = tied | (laid.which >= 1.0 - (repeats.sim - repeats.joint))
            how = np.where(tied, laid.how, laid.other)
            found[0, rows, i] = _means(sim[i], in_sim, decided, how, rng)
    return found[0], found[1]


@dataclass(frozen=True, slots=True)
class _Laid:
    """What is laid down of starts, uniform in [0, 1): which are decided, and how: in reality, and
    in a simulator where it does not follow.
    """

    which: Uniform
    how: Uniform
    other: Uniform

    @staticmethod
    def out(rng: np.random.Generator, shape: tuple[int, ...]) -> _Laid:
        return _Laid(*(rng.random(shape, np.float32) for _ in range(3)))

    def where(self, taken: NDArray[np.bool_], common: _Laid) -> _Laid:
        return _Laid(
            np.where(taken, common.which, self.which),
            np.where(taken, common.how, self.how),
            np.where(taken, common.other, self.other),
        )


def _means(
    outcomes: Outcomes,
    counts: Counts,
    decided: NDArray[np.bool_],
    how: Uniform,
    rng: np.random.Generator,
) -> Floats:
    """Means ``[draws]`` over starts of ``counts`` trials from each."""
    tried = counts[counts > 0]
    if tried.min() < tried.max():
        return _means_uneven(outcomes, counts, decided, how, rng)
    total = float(counts.sum())
    if outcomes.scores is None:
        won = (decided & (how < outcomes.rate)).astype(np.float32) @ counts
        open_ = np.rint((~decided).astype(np.float32) @ counts).astype(np.int64)
        return (won + rng.binomial(open_, outcomes.rate)) / total
    where = np.repeat(np.arange(counts.size), counts.astype(np.int64))
    drawn = _each(outcomes, (len(decided), where.size), rng)
    alike = outcomes.quantiles()(how)
    return np.where(decided[:, where], alike[:, where], drawn).sum(axis=1) / total


def _means_uneven(
    outcomes: Outcomes,
    counts: Counts,
    decided: NDArray[np.bool_],
    how: Uniform,
    rng: np.random.Generator,
) -> Floats:
    """:func:`_means` where some starts are tried more often than others."""
    tried = counts > 0
    sizes = counts[tried].astype(np.int64)
    decided, how = decided[:, tried], how[:, tried]
    if outcomes.scores is None:
        alike, open_ = (
            how < outcomes.rate,
            rng.binomial(sizes, outcomes.rate, decided.shape) / sizes,
        )
    else:
        ends = np.cumsum(sizes)
        drawn = _each(outcomes, (len(decided), int(ends[-1])), rng)
        alike = outcomes.quantiles()(how)
        open_ = np.add.reduceat(drawn, ends - sizes, axis=1) / sizes
    return np.where(decided, alike, open_).mean(axis=1)


def _each(outcomes: Outcomes, shape: tuple[int, int], rng: np.random.Generator) -> FloatRows:
    """Scores of single trials."""
    scores = np.array([]) if outcomes.scores is None else outcomes.scores
    if outcomes.weights is not None:
        return outcomes.quantiles()(rng.random(shape))
    return np.sort(scores)[rng.integers(0, scores.size, shape)]


def _more(counts: Counts, times: float) -> Counts:
    return np.resize(counts, max(1, round(counts.size * times)))


def _times(trials: int | None, times: float) -> int:
    return max(1, round((trials or 1) * times))


def _repeats(
    real: Sequence[Mapping[str, Outcome]],
    sim: Sequence[Mapping[str, Outcome]],
    at: Mapping[str, int],
) -> Repeats:
    off = np.zeros((2, len(real), len(at)))
    there = np.zeros((len(real), len(at)))
    quantiles = np.empty((2, len(real), _QUANTILES))
    for w, sides in enumerate((real, sim)):
        for k, side in enumerate(sides):
            where, centre = [at[name] for name in side], means(side.values())
            off[w, k, where] = centre - centre.mean()
            there[k, where] = 1.0
            row = Outcomes.over_starts(side.values(), scored=True).spread(_QUANTILES)
            quantiles[w, k] = row - row.mean()
    # Covariances, beside those of outcomes that go together as far as their distributions allow.
    most = quantiles @ quantiles.transpose(0, 2, 1) / _QUANTILES
    both = (quantiles[0] * quantiles[1]).mean(axis=1)
    joint = _share(float((off[0] * off[1]).sum()), float(both @ there.sum(axis=1)))
    # Of all pairs of policies, less those of a policy with itself.
    across = (off.sum(axis=1) ** 2 - (off**2).sum(axis=1)).sum(axis=1)
    shared = there @ there.T
    np.fill_diagonal(shared, 0.0)
    alike = [_share(float(a), float((m * shared).sum())) for a, m in zip(across, most, strict=True)]
    found = [
        max(joint, a) if share is None else share
        for share, a in zip(map(share_repeated, (real, sim)), alike, strict=True)
    ]
    return Repeats(
        real=found[0],
        sim=found[1],
        joint=min(joint, *found),
        policies=_share(sum(alike), sum(found)),
    )


def _share(part: float, whole: float) -> float:
    return float(np.clip(part / whole, 0.0, 1.0)) if whole > 1e-12 else 0.0
