"""Estimates how far real outcomes lie in the direction in which a shifted parameter moves them.

With real outcome y, and simulated ones x0 (as the world is) and x1 (shifted) of the same start:

    d = E x1 - E x0                what the shift changes
    u = d (y - E x0)               > 0: reality lies on the side to which the shift moves
    step = mean u / mean d^2       so much of the shift fits best (least squares)
    gain(a) = 2 a u - a^2 d^2      squared error that ``a`` times the shift takes away

Means of few rollouts multiplied with each other are biased by their own noise, which would find a
cause where there is none. Products are therefore taken over pairs of different rollouts only
(U-statistics): with rollouts r and s, u = mean over r != s of d_r (y - x0_s).

Of few rollouts of one start d is mostly noise; over all starts of a policy it is not. So the d of a
cell is drawn towards the policy's mean over its *other* starts, by what is noise in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robolearn.shapes import AnyFloats, FloatRows, Floats, Index, OwnFloats

# Starts that all say the same differ by no more than rounding.
_LEAST_VARIANCE = 1e-18


def responses(
    real: Floats, nominal: FloatRows, shifted: FloatRows, policy: Sequence[int]
) -> tuple[Floats, Floats]:
    """Unbiased ``u [cells]`` and ``d^2 [cells]`` from ``real [cells]``, rollouts
    ``[cells, rollouts]`` and the number of each cell's policy.
    """
    moved, rest = shifted - nominal, real[:, None] - nominal
    others = _of_other_starts(moved.mean(axis=1), np.array(policy))
    own, usual = _apart(moved, moved), others * moved.mean(axis=1)
    noise = float(moved.var(axis=1, ddof=1).mean()) / moved.shape[1]
    true = max(0.0, float((own - usual).mean()))
    # How much of what a cell differs by from its policy is no noise.
    share = true / (true + noise) if true > 0.0 else 0.0
    u = share * _apart(moved, rest) + (1.0 - share) * others * rest.mean(axis=1)
    return u, share * own + (1.0 - share) * usual


def _of_other_starts(values: Floats, policy: Index) -> Floats:
    """Means over the other cells of the same policy; 0 where there is none."""
    sums, counts = np.bincount(policy, values), np.bincount(policy)
    return (sums[policy] - values) / np.maximum(counts[policy] - 1, 1)


def _apart(a: FloatRows, b: FloatRows) -> Floats:
    """Means of ``a_r b_s`` over r != s."""
    n = a.shape[1]
    return (a.sum(axis=1) * b.sum(axis=1) - (a * b).sum(axis=1)) / (n * (n - 1))


def squared_gap(real: Sequence[OwnFloats], nominal: FloatRows) -> Floats:
    """What a simulator is off by, squared, ``[cells]``, less what noise alone gives: 0 in the mean
    for one whose outcomes are distributed as the real ones.

    The spread of single outcomes is taken from simulation, as most starts are real only once.
    """
    n = nominal.shape[1]
    spread = nominal.var(axis=1, ddof=1)
    y = np.array([float(v.mean()) for v in real])
    tries = np.array([v.size for v in real])
    return (y - nominal.mean(axis=1)) ** 2 - spread * (1.0 / n + 1.0 / tries)


def largest_of_chance(
    per_start: FloatRows, rng: np.random.Generator, draws: int = 4_000
) -> tuple[OwnFloats, OwnFloats]:
    """``t [candidates]`` of ``per_start [starts, candidates]``, and how often the largest of all is
    as large where no candidate has a mean above 0: p values for all at once.

    Signs of whole starts are drawn anew (Westfall and Young 1993): candidates that go together stay
    together, so that many of them cost less than by Bonferroni.
    """
    starts = len(per_start)
    squared = (per_start**2).sum(axis=0)

    def t_of(means: AnyFloats) -> AnyFloats:
        # Signs leave squares as they are.
        variance = (squared / starts - means**2) / (starts - 1)
        return means / np.sqrt(np.maximum(variance, _LEAST_VARIANCE))

    seen = t_of(per_start.mean(axis=0)[None])[0]
    signs = rng.choice(np.array([-1.0, 1.0]), (draws, starts))
    largest = t_of(signs @ per_start / starts).max(axis=1)
    p = (1 + (largest[:, None] >= seen[None] - 1e-12).sum(axis=0)) / (draws + 1)
    return seen, p


def exchanged(
    real: Sequence[OwnFloats],
    nominal: FloatRows,
    policy: Sequence[int],
    rng: np.random.Generator,
    draws: int = 2_000,
) -> float:
    """How often real trials would look as foreign among simulated ones of the same starts, if they
    were of the same world.

    Exact: within a cell every trial is as likely to be the real one. Looks at each policy's mean
    and at each cell, and takes the smaller p twice.
    """
    numbers = np.array(policy)
    counts = np.bincount(numbers)
    tries = np.array([v.size for v in real])
    seen = np.zeros((draws + 1, len(numbers)))
    for k in np.unique(tries):
        at = np.flatnonzero(tries == k)
        values = np.concatenate([np.array([real[i] for i in at]), nominal[at]], axis=1)
        drawn = np.broadcast_to(values, (draws + 1, *values.shape)).copy()
        drawn[1:] = rng.permuted(drawn[1:], axis=2)
        seen[:, at] = drawn[..., :k].mean(axis=2) - drawn[..., k:].mean(axis=2)
    by_cell = (seen**2).sum(axis=1)
    sums = np.array([np.bincount(numbers, row) for row in seen])
    by_policy = (sums**2 / counts).sum(axis=1)
    least = min(
        float((1 + (s[1:] >= s[0] - 1e-12).sum()) / (draws + 1)) for s in (by_cell, by_policy)
    )
    return min(1.0, 2.0 * least)
