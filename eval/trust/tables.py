"""Holds what is known of policies in reality and in simulation, and draws it anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.statistics.intervals import Estimate, bounded_mean, wilson
from robolearn.shapes import FloatRows, Floats, OwnFloats


@dataclass(frozen=True, slots=True)
class Outcomes:
    """One policy in one task on one side: successes of trials, scores of trials, or only a rate."""

    # Mean over the trials, in [0, 1].
    rate: float
    # None: only the rate is known, and nothing of its noise.
    trials: int | None = None
    # Scores of the single trials, if they are known; without them each trial is a success or none.
    scores: OwnFloats | None = None

    @staticmethod
    def of_counts(successes: int, trials: int) -> Outcomes:
        """``trials`` is at least 1."""
        return Outcomes(successes / trials, trials)


@dataclass(frozen=True, slots=True)
class PolicyPair:
    """A policy in reality and in simulation; several tasks where it stands for their mean."""

    policy: str
    real: tuple[Outcomes, ...]
    sim: tuple[Outcomes, ...]


@dataclass(frozen=True, slots=True)
class TaskTable:
    """All policies that were tried in one task, or, ``pooled``, in all of several."""

    task: str
    pairs: tuple[PolicyPair, ...]
    pooled: bool = False

    @property
    def k(self) -> int:
        """How many policies."""
        return len(self.pairs)

    @property
    def real(self) -> Floats:
        """Real rates."""
        return np.array([_mean(p.real) for p in self.pairs], dtype=np.float64)

    @property
    def sim(self) -> Floats:
        """Simulated rates."""
        return np.array([_mean(p.sim) for p in self.pairs], dtype=np.float64)

    @property
    def real_trials(self) -> tuple[int, int] | None:
        """The fewest and the most trials of a policy; None: not known of all."""
        return _spread([p.real for p in self.pairs])

    @property
    def sim_trials(self) -> tuple[int, int] | None:
        """As :attr:`real_trials`."""
        return _spread([p.sim for p in self.pairs])

    @property
    def noisy(self) -> bool:
        """Whether the trials of either side are known, so that their noise is."""
        return self.real_trials is not None or self.sim_trials is not None

    def redrawn(self, draws: int, rng: np.random.Generator) -> tuple[FloatRows, FloatRows]:
        """(sim, real) ``[draws, policies]``: the trials done again with the rates that were seen.

        A rate whose trials are not known stays what it is.
        """
        sides = [[getattr(p, side) for p in self.pairs] for side in ("sim", "real")]
        sim, real = (_drawn(side, side, draws, rng, 1.0) for side in sides)
        return sim, real

    def perfect(
        self, draws: int, rng: np.random.Generator, times: float = 1.0
    ) -> tuple[FloatRows, FloatRows]:
        """(sim, real) ``[draws, policies]`` of a perfect simulator: both sides have the real rates,
        each its own number of trials (``times`` as many).
        """
        truth = [p.real for p in self.pairs]
        sim = _drawn(truth, [p.sim for p in self.pairs], draws, rng, times)
        return sim, _drawn(truth, truth, draws, rng, times)

    def ordered(
        self, draws: int, rng: np.random.Generator, times: float = 1.0
    ) -> tuple[FloatRows, FloatRows]:
        """As :meth:`perfect`, of a simulator that is perfect in order, not in rates: its true rates
        lie on the rising line through this simulator's over the real ones, task by task.
        """
        truth = [p.real for p in self.pairs]
        parts = range(len(truth[0]))
        lines = [self._line(part) for part in parts]
        bent = [tuple(_bent(t[i], lines[i]) for i in parts) for t in truth]
        sim = _drawn(bent, [p.sim for p in self.pairs], draws, rng, times)
        return sim, _drawn(truth, truth, draws, rng, times)

    def _line(self, part: int) -> tuple[float, float]:
        """Intercept and slope, which is not below 0, of simulated over real rates."""
        real = np.array([p.real[part].rate for p in self.pairs])
        sim = np.array([p.sim[part].rate for p in self.pairs])
        spread = float(((real - real.mean()) ** 2).sum())
        slope = float(((real - real.mean()) * sim).sum()) / spread if spread > 0 else 0.0
        slope = max(0.0, slope)
        return float(sim.mean()) - slope * float(real.mean()), slope

    def chosen(self, index: Sequence[int]) -> TaskTable:
        """The policies at ``index``, which may name one several times."""
        return TaskTable(self.task, tuple(self.pairs[i] for i in index), self.pooled)


def pooled(tables: Sequence[TaskTable]) -> TaskTable:
    """Every policy that is in all tasks, with its mean over them: no task weighs more than another,
    and how hard tasks are is no agreement.
    """
    by_task = [{p.policy: p for p in table.pairs} for table in tables]
    names = [p.policy for p in tables[0].pairs if all(p.policy in t for t in by_task)]
    pairs = tuple(
        PolicyPair(
            name,
            tuple(o for t in by_task for o in t[name].real),
            tuple(o for t in by_task for o in t[name].sim),
        )
        for name in names
    )
    return TaskTable("pooled", pairs, pooled=True)


def rate_interval(parts: Sequence[Outcomes], level: float = 0.95) -> Estimate | None:
    """The mean of one task's trials: Wilson's interval of successes, that of the bounded mean of
    scores. None for a mean over tasks, and where the number of trials is not known.
    """
    (first, *more) = parts
    if more or first.trials is None:
        return None
    if first.scores is not None:
        return bounded_mean(first.scores, level=level)
    return wilson(round(first.rate * first.trials), first.trials, level)


def _mean(parts: Sequence[Outcomes]) -> float:
    return sum(o.rate for o in parts) / len(parts)


def _spread(sides: Sequence[Sequence[Outcomes]]) -> tuple[int, int] | None:
    counts = [[o.trials for o in parts] for parts in sides]
    known = [sum(c for c in parts if c is not None) for parts in counts if None not in parts]
    return (min(known), max(known)) if known and len(known) == len(sides) else None


def _drawn(
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
            rows = rng.integers(0, t.scores.size, (draws, _times(o.trials, times)))
            values[:, i] = t.scores[rows].mean(axis=1)
    ends = np.cumsum([len(parts) for parts in truth])
    parts = np.split(values, ends[:-1], axis=1)
    return np.stack([p.mean(axis=1) for p in parts], axis=1)


def _bent(outcomes: Outcomes, line: tuple[float, float]) -> Outcomes:
    intercept, slope = line
    scores = outcomes.scores
    return Outcomes(
        float(np.clip(intercept + slope * outcomes.rate, 0.0, 1.0)),
        outcomes.trials,
        None if scores is None else np.clip(intercept + slope * scores, 0.0, 1.0),
    )


def _times(trials: int | None, times: float) -> int:
    return max(1, round((trials or 1) * times))
