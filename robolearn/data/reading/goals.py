"""Draws later observations of a recording, and makes goals of them.

A window at tick ``t`` of an episode with ticks 0..9, its goal ``g`` drawn by one of five kinds:

    current     g = t                      it is there already
    geometric   g = t + 1, t + 2, ...      chance (1 - discount) discount^(g - t - 1), at most 9
    uniform     g = t + ahead              any number between two, at most 9
    rest        g = t + 1 .. 9             all alike likely
    random      any row of any episode     mostly out of reach of the chunk

With the goal the reward changes (hindsight): -1 for a step from any row but ``g``, 0 from ``g``,
where the task is over and no value follows. A chunk of ``stride`` steps from ``t``:

    g outside of t .. t + stride - 1     all of its steps cost; the value at t + stride follows
    g = t + n, n < stride                n steps cost, nothing follows

A goal may also be one mark alone of several (``goal/achieved`` of a table to play on): its row is
the next one at which that mark newly holds, or none, and then every step costs.

What the recording itself was done with says nothing about another goal, so chunks run through it.
Sources: Andrychowicz et al. 2017 (hindsight), the mixture of OGBench (Park et al. 2025).
"""

# The stubs of numpy leave some overloads of its generator untyped.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64
from numpy.typing import NDArray

from robolearn.data.reading.cache import FlatEpisodes
from robolearn.data.reading.episode_arrays import Rows
from robolearn.data.reading.transitions import Drawn, DrawnValues, StepValues
from robolearn.errors import DataError, did_you_mean
from robolearn.learning import FutureSpec
from robolearn.shapes import AnyRows, Flags, Index

# Rows where each mark next holds, and whether it newly does.
NextMarks = Int64[NDArray[np.int64], "n marks"]
Fresh = Bool[NDArray[np.bool_], "n marks"]


@dataclass(frozen=True, slots=True)
class Hindsight:
    """What a chunk is worth for a goal: ``steps [b]`` that cost, ``reward [b]`` (discounted, per
    step ``step_rewards [b, stride]``), ``bootstrap [b]`` (0 where the goal is reached).
    """

    steps: Drawn
    reward: DrawnValues
    step_rewards: StepValues
    bootstrap: DrawnValues


NEVER = -1
"""The row of a mark that does not come any more in its recording."""


@dataclass(frozen=True, slots=True)
class DrawnGoals:
    """``rows [b]`` at which goals are reached (:data:`NEVER`: they are not), and their observations
    ``shown [b, *shape]`` by name.
    """

    rows: Index
    shown: Mapping[str, AnyRows]


def hindsight(t: Drawn, goal: Drawn, stride: int, discount: float) -> Hindsight:
    """Of chunks of ``stride`` steps from rows ``t`` for the rows ``goal``, both ``[b]``."""
    reached = (goal >= t) & (goal < t + stride)
    steps = np.where(reached, goal - t, stride)
    costs = np.where(np.arange(stride) < steps[:, None], -1.0, 0.0)
    return Hindsight(
        steps=steps,
        reward=(costs * discount ** np.arange(stride)).sum(axis=1).astype(np.float32),
        step_rewards=costs.astype(np.float32),
        bootstrap=np.where(reached, 0.0, discount**stride).astype(np.float32),
    )


class FutureRows:
    """Which later row is shown with each window, as ``spec`` says; ``rows`` of the chosen episodes
    are what random goals are drawn from.
    """

    def __init__(self, flat: FlatEpisodes, spec: FutureSpec, rows: Index) -> None:
        self._flat, self._spec = flat, spec
        self._goals = rows[flat.seen[rows]]
        self._last = np.repeat(flat.starts[1:] - 1, flat.lengths)
        self._event = self._next_events() if spec.events else None
        _require_goals(flat, spec)
        self._next_mark = self._next_marks() if spec.marks else None

    def goals(self, t: Index, rng: np.random.Generator) -> DrawnGoals:
        """One goal per row of ``t [b]``."""
        observations = self._flat.observations
        if self._next_mark is None:
            rows = self.draw(t, rng)
            return DrawnGoals(rows, {g: observations[o][rows] for g, o in self._spec.goals})
        spec, after = self._spec, self._next_mark[t]
        count = after.shape[1]
        any_mark = rng.integers(count, size=len(t))
        comes = np.where(after == NEVER, np.iinfo(np.int64).max, after)
        soonest = np.where((after == NEVER).all(axis=1), any_mark, comes.argmin(axis=1))
        by_chance = rng.random(len(t)) * (spec.rest + spec.random) < spec.random
        mark = np.where(by_chance, any_mark, soonest)
        goal, source = spec.goals[0]
        told = np.zeros((len(t), count), dtype=observations[source].dtype)
        told[np.arange(len(t)), mark] = 1
        return DrawnGoals(after[np.arange(len(t)), mark], {goal: told})

    def draw(self, t: Index, rng: np.random.Generator) -> Index:
        """One row per row of ``t [b]``; that itself where what was drawn was not observed."""
        spec, last = self._spec, self._last[t]
        kinds: list[Index] = []
        if spec.uniform:
            low, high = spec.ahead
            kinds.append(np.minimum(t + rng.integers(low, high + 1, len(t)), last))
        if spec.geometric:
            kinds.append(np.minimum(t + rng.geometric(1.0 - spec.discount, len(t)), last))
        if spec.random:
            kinds.append(rng.choice(self._goals, len(t)))
        if spec.current:
            kinds.append(t)
        if spec.rest:
            ahead = 1 + (rng.random(len(t)) * (last - t)).astype(np.int64)
            kinds.append(np.minimum(t + ahead, last))
        rows = kinds[0]
        if len(kinds) > 1:
            asked = (spec.uniform, spec.geometric, spec.random, spec.current, spec.rest)
            shares = np.array([share for share in asked if share])
            chosen = rng.choice(len(kinds), len(t), p=shares / shares.sum())
            rows = np.stack(kinds)[chosen, np.arange(len(t))]
        if self._event is not None:
            rows = np.minimum(self._event[t], rows)
        return np.where(self._flat.seen[rows], rows, t)

    def on_the_way(self, t: Index, goal: Index, ticks: int, n_obs: int) -> Index:
        """The rows ``ticks`` after ``t``, but not behind ``goal`` where that lies ahead in the same
        recording, nor behind its end; ``t`` where ``n_obs`` rows up to that one were not observed.
        """
        last = self._last[t]
        rows = np.minimum(t + ticks, np.where((goal >= t) & (goal <= last), goal, last))
        # What lies before the episode is not looked at: its first row is repeated there.
        back = rows[:, None] - np.arange(n_obs)
        whole = self._flat.seen[np.maximum(back, 0)] | (
            self._last[np.maximum(back, 0)] != last[:, None]
        )
        return np.where(whole.all(axis=1), rows, t)

    def _next_events(self) -> Index:
        """The row after each one at which a mark next newly holds; behind all rows: none does."""
        name = self._spec.events
        marks = self._flat.observations.get(name)
        if marks is None:
            raise DataError(
                f"no observation '{name}' to find events in; there are:"
                f" {sorted(self._flat.observations)}"
            )
        return self._following(self._fresh(marks).any(axis=1))

    def _next_marks(self) -> NextMarks:
        """``[rows, marks]``: where each mark next newly holds in the same recording."""
        goal, source = self._spec.goals[0]
        values = np.asarray(self._flat.observations[source])
        if values.ndim != 2 or not np.isin(values, (0, 1)).all():
            raise DataError(
                f"goals of marks: '{source}' must hold one number per mark, 0 or 1, to be shown as"
                f" '{goal}'; it has the shape {values.shape[1:]} and values from"
                f" {values.min():g} to {values.max():g}"
            )
        fresh = self._fresh(values)
        after = np.stack([self._following(column) for column in fresh.T], axis=1)
        return np.where(after > self._last[:, None], NEVER, after)

    def _fresh(self, marks: Rows) -> Fresh:
        """``[rows, marks]``: the mark holds there, and did not in the row before."""
        held = np.asarray(marks) > 0.5
        held = held.reshape(len(held), -1)
        fresh = np.zeros_like(held)
        fresh[1:] = held[1:] & ~held[:-1]
        # What holds at the first tick of an episode was not reached in it.
        fresh[self._flat.starts[:-1]] = False
        return fresh

    def _following(self, fresh: Flags) -> Index:
        """The next row after each one that is ``fresh [rows]``; behind all rows: none is."""
        after = np.append(np.flatnonzero(fresh), len(fresh))
        return after[np.searchsorted(after, np.arange(len(fresh)), side="right")]


def _require_goals(flat: FlatEpisodes, spec: FutureSpec) -> None:
    shapes = {s.name: s.shape for s in flat.task_space.observations}
    for pair in spec.goals:
        for name in pair:
            if name not in shapes:
                raise DataError(
                    f"goals: no observed signal '{name}'.{did_you_mean(name, shapes)} Name it in"
                    f" data.observations, where the recordings have it; observed: {sorted(shapes)}"
                )
        if shapes[pair[0]] != shapes[pair[1]]:
            raise DataError(
                f"goals: '{pair[0]}' {shapes[pair[0]]} cannot be what '{pair[1]}'"
                f" {shapes[pair[1]]} is later; expected equal shapes"
            )
