"""Holds what is known of policies in reality and in simulation, and draws it anew."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eval.statistics.intervals import Estimate, bounded_mean, wilson_ends
from eval.trust.outcomes import Outcomes, Repeats, Side, Starts, from_starts, independent
from robolearn.shapes import FloatRows, Floats


@dataclass(frozen=True, slots=True)
class PolicyPair:
    """A policy in reality and in simulation; several tasks where it stands for their mean."""

    policy: str
    real: tuple[Outcomes, ...]
    sim: tuple[Outcomes, ...]
    # Of every task, from which starts the trials were; None: not known, and they count as
    # independent. Empty: of none.
    starts: tuple[Starts | None, ...] = ()


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
    def fewest(self) -> int | None:
        """The fewest independent trials of a policy on a side of which they are known, where a
        start counts once; None: on neither.
        """
        known = [
            c for p in self.pairs for side in (p.real, p.sim) if (c := _count(side)) is not None
        ]
        starts = [
            sum(len(s) for s in p.starts if s is not None)
            for p in self.pairs
            if p.starts and None not in p.starts
        ]
        return min([*known, *starts], default=None)

    @property
    def repeats(self) -> tuple[Repeats, ...]:
        """How trials from one start go together, of every task of which starts are known."""
        return tuple(s.repeats for s in self.pairs[0].starts if s is not None) if self.pairs else ()

    @property
    def noisy(self) -> bool:
        """Whether trials of any policy are known on either side, so that their noise is."""
        return any(_count(side) is not None for p in self.pairs for side in (p.real, p.sim))

    @property
    def by_name(self) -> TaskTable:
        """The same, in an order that is not the caller's: what is drawn of it does not depend on
        the order of lines.
        """
        return replace(self, pairs=tuple(sorted(self.pairs, key=lambda p: p.policy)))

    def redrawn(self, draws: int, rng: np.random.Generator) -> tuple[FloatRows, FloatRows]:
        """(sim, real) ``[draws, policies]``: the trials done again with the rates that were seen,
        from other starts where starts are known.

        A rate whose trials are not known stays what it is.
        """
        real, sim = [p.real for p in self.pairs], [p.sim for p in self.pairs]
        return self._again(real, sim, lambda s: s.repeats, draws, rng)

    def perfect(
        self, draws: int, rng: np.random.Generator, times: float = 1.0
    ) -> tuple[FloatRows, FloatRows]:
        """(sim, real) ``[draws, policies]`` of a perfect simulator: both sides have the real rates,
        each its own number of trials (``times`` as many).
        """
        truth = [p.real for p in self.pairs]
        return self._again(truth, truth, lambda s: s.repeats.perfect, draws, rng, times)

    def ordered(
        self, draws: int, rng: np.random.Generator, times: float = 1.0
    ) -> tuple[FloatRows, FloatRows]:
        """As :meth:`perfect`, of a simulator that is perfect in order, not in rates, nor start by
        start: its true rates lie on the rising line through this simulator's over the real ones,
        task by task.
        """
        truth = [p.real for p in self.pairs]
        parts = range(len(truth[0]))
        lines = [self._line(part) for part in parts]
        bent = [tuple(_bent(t[i], lines[i]) for i in parts) for t in truth]
        return self._again(truth, bent, lambda s: s.repeats, draws, rng, times)

    def _again(
        self,
        real: Sequence[Sequence[Outcomes]],
        sim: Sequence[Sequence[Outcomes]],
        how: Callable[[Starts], Repeats],
        draws: int,
        rng: np.random.Generator,
        times: float = 1.0,
    ) -> tuple[FloatRows, FloatRows]:
        """Trials of these true outcomes, as many as in this table."""
        likes = [p.sim for p in self.pairs], [p.real for p in self.pairs]
        if not any(p.starts for p in self.pairs):
            return (
                independent(sim, likes[0], draws, rng, times),
                independent(real, likes[1], draws, rng, times),
            )
        found: list[tuple[FloatRows, FloatRows]] = []
        for part in range(len(self.pairs[0].real)):
            starts = [p.starts[part] if p.starts else None for p in self.pairs]
            known = [s for s in starts if s is not None]
            of_sim, of_real, *like = (
                [(side[part],) for side in sides] for sides in (sim, real, *likes)
            )
            if len(known) == len(starts):
                flat = [o for (o,) in of_real], [o for (o,) in of_sim]
                found.append(from_starts(*flat, known, how(known[0]), draws, rng, times))
            else:
                one = independent(of_sim, like[0], draws, rng, times)
                found.append((one, independent(of_real, like[1], draws, rng, times)))
        both = np.mean(found, axis=0)
        return both[0], both[1]

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
    # What is drawn of it, and what its sums round to, does not depend on the order of tasks.
    by_name = sorted(tables, key=lambda table: table.task)
    by_task = [{p.policy: p for p in table.pairs} for table in by_name]
    names = [p.policy for p in tables[0].pairs if all(p.policy in t for t in by_task)]
    pairs = tuple(
        PolicyPair(
            name,
            tuple(o for t in by_task for o in t[name].real),
            tuple(o for t in by_task for o in t[name].sim),
            tuple(s for t in by_task for s in t[name].starts or (None,)),
        )
        for name in names
    )
    return TaskTable("pooled", pairs, pooled=True)


def rate_interval(pair: PolicyPair, side: Side, level: float = 0.95) -> Estimate | None:
    """The mean of one task's trials: Wilson's interval of successes, that of the bounded mean of
    scores; of as many independent trials as they are worth, where starts are known. None for a mean
    over tasks, and where the number of trials is not known.
    """
    (first, *more) = pair.real if side == "real" else pair.sim
    if more or first.trials is None:
        return None
    starts = next(iter(pair.starts), None)
    worth = float(first.trials) if starts is None else starts.worth(side)
    if first.scores is not None:
        found = bounded_mean(first.spread(first.trials), level=level)
        wider = math.sqrt(first.trials / worth)
        low, high = (first.rate + wider * (end - found.value) for end in (found.low, found.high))
        return replace(found, value=first.rate, low=max(0.0, low), high=min(1.0, high))
    low, high = wilson_ends(first.rate, worth, level)
    return Estimate(first.rate, low, high, first.trials, "Wilson", level)


def _mean(parts: Sequence[Outcomes]) -> float:
    return sum(o.rate for o in parts) / len(parts)


def _spread(sides: Sequence[Sequence[Outcomes]]) -> tuple[int, int] | None:
    known = [c for parts in sides if (c := _count(parts)) is not None]
    return (min(known), max(known)) if known and len(known) == len(sides) else None


def _count(parts: Sequence[Outcomes]) -> int | None:
    """The trials of a policy; None: not known of all parts."""
    counts = [o.trials for o in parts]
    return None if None in counts or not counts else sum(c for c in counts if c is not None)


def _bent(outcomes: Outcomes, line: tuple[float, float]) -> Outcomes:
    intercept, slope = line
    scores = outcomes.scores
    return Outcomes(
        float(np.clip(intercept + slope * outcomes.rate, 0.0, 1.0)),
        outcomes.trials,
        None if scores is None else np.clip(intercept + slope * scores, 0.0, 1.0),
        outcomes.weights,
    )
