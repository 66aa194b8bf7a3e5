"""Compares more than two policies after every block of trials, with one family-wise level.

A group-sequential randomisation test in the manner of AdaStop (Mathieu et al. 2023, "AdaStop:
adaptive statistical testing for sound comparisons of deep RL agents"): after block ``k`` each
undecided pair of policies has the statistic ``|sum over blocks of the difference of block means|``;
the boundary is a quantile of the *maximum of its absolute value* over the undecided pairs when the
signs of all differences of a condition are turned at random, among the draws that did not cross an
earlier boundary. (The released AdaStop 0.1.3 takes the quantile of the signed statistic and so runs
at twice its level; a test here shows both. It exchanges outcomes between policies, which is only
right if equal means imply equal distributions: one policy that scatters more gives .08 to .17
for .05.)

Turned signs assume that the difference of two equally good policies is symmetric about 0: exactly
so for successes, and for scores unless rare disasters of the one make up for small gains of the
other. Where they may, compare pairs by ``eval/statistics/betting.py`` at ``alpha`` over their
number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import DataError
from robolearn.seeding import child_seed

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PairDecision:
    """``better`` and ``worse`` policy, settled after block ``block`` (counted from 1)."""

    better: str
    worse: str
    block: int


class GroupSequential:
    """``blocks`` looks, fixed beforehand; family-wise error over all pairs at most ``alpha``.

    The columns of a block are the same conditions for every policy. Trials under conditions of
    their own may stand in any order: independent trials can be paired at will.
    """

    def __init__(
        self,
        policies: Sequence[str],
        blocks: int,
        *,
        alpha: float = 0.05,
        permutations: int = 10_000,
        seed: int = 0,
    ) -> None:
        if len(policies) < 2 or len(set(policies)) != len(policies):
            raise DataError(f"expected two or more different policies, got {list(policies)}")
        if blocks < 1 or not 0 < alpha < 1 or permutations < math.ceil(1 / alpha):
            raise DataError(
                f"expected blocks >= 1, alpha in (0, 1), at least 1/alpha permutations; got"
                f" {blocks}, {alpha}, {permutations}"
            )
        self.policies, self.blocks, self.alpha = tuple(policies), blocks, alpha
        self._pairs = list(itertools.combinations(range(len(policies)), 2))
        self._undecided = list(range(len(self._pairs)))
        self._rng = np.random.default_rng(child_seed(seed, "group_sequential"))
        self._observed = np.zeros(len(self._pairs))
        self._turned = np.zeros((permutations, len(self._pairs)))
        self._alive = np.ones(permutations, dtype=np.bool_)
        self._block = 0
        self.decisions: list[PairDecision] = []

    def add(self, outcomes: Any) -> tuple[PairDecision, ...]:
        """A block ``[policies, n]`` of outcomes; the pairs that it settles."""
        x = np.asarray(outcomes, dtype=np.float64)
        if x.shape[:1] != (len(self.policies),) or x.size == 0 or not np.isfinite(x).all():
            raise DataError(
                f"a block has {len(self.policies)} rows of finite outcomes, one each at least, got"
                f" shape {x.shape}"
            )
        if self._block == self.blocks:
            raise DataError(f"all {self.blocks} looks that were planned are used up")
        self._block += 1
        first, second = np.array(self._pairs).T
        differences = x[second] - x[first]
        self._observed += differences.mean(axis=1)
        self._turned += self._turn(differences)
        return self._look()

    @property
    def undecided(self) -> tuple[tuple[str, str], ...]:
        """Pairs that nothing can be said about (yet)."""
        pairs = (self._pairs[i] for i in self._undecided)
        return tuple((self.policies[a], self.policies[b]) for a, b in pairs)

    @property
    def finished(self) -> bool:
        """No further look is needed or planned."""
        return not self._undecided or self._block == self.blocks

    def _turn(self, differences: Array) -> Array:
        """Block means per pair ``[draws, pairs]`` of ``differences [pairs, n]``, a sign per column.

        All pairs share it, so that what they have in common stays.
        """
        count, n = self._turned.shape[0], differences.shape[1]
        out = np.empty_like(self._turned)
        for begin in range(0, count, 1000):
            size = min(1000, count - begin)
            signs = self._rng.integers(0, 2, (size, n)) * 2.0 - 1.0
            out[begin : begin + size] = signs @ differences.T / n
        return out

    def _look(self) -> tuple[PairDecision, ...]:
        found: list[PairDecision] = []
        size = self._turned.shape[0]
        while self._undecided:
            largest = np.abs(self._turned[:, self._undecided]).max(axis=1)
            # So many draws may have crossed a boundary by this look, earlier ones included;
            # the observed order is one of them.
            allowed = math.floor(self.alpha * self._block / self.blocks * (size + 1)) - 1
            spent = int((~self._alive).sum())
            alive = np.sort(largest[self._alive])[::-1]
            free = allowed - spent
            if free < 0 or not alive.size:
                return tuple(found)
            boundary = alive[free] if free < alive.size else -math.inf
            statistic = np.abs(self._observed[self._undecided])
            best = int(statistic.argmax())
            if not statistic[best] > boundary + 1e-12:
                self._alive &= ~(largest > boundary + 1e-12)
                return tuple(found)
            a, b = self._pairs[self._undecided[best]]
            if self._observed[self._undecided[best]] < 0:
                a, b = b, a
            decision = PairDecision(self.policies[b], self.policies[a], self._block)
            found.append(decision)
            self.decisions.append(decision)
            del self._undecided[best]
        return tuple(found)
