"""The group-sequential permutation test keeps its family-wise level; the signed one does not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eval.statistics.group_sequential import GroupSequential
from robolearn.errors import DataError


def family_wise_error(draw, agents: int, runs: int) -> float:
    wrong = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        test = GroupSequential([str(i) for i in range(agents)], 4, permutations=300, seed=seed)
        while not test.finished:
            test.add(draw(rng, (agents, 5)))
        wrong += bool(test.decisions)
    return wrong / runs


SPREADS = np.array([[0.02], [0.02], [0.02], [0.3]])
EQUAL = {
    "successes": (lambda rng, shape: rng.random(shape) < 0.5, 2),
    "successes, same conditions": (lambda rng, shape: rng.random(shape) < rng.random(shape[1]), 3),
    "unequal spread": (lambda rng, shape: 0.5 + SPREADS * rng.standard_normal(shape), 4),
}


@pytest.mark.parametrize("kind", list(EQUAL))
def test_equal_policies_are_rarely_separated(kind):
    runs = 250
    assert family_wise_error(*EQUAL[kind], runs) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / runs)


def test_the_quantile_of_the_signed_statistic_runs_at_twice_the_level():
    # What the released AdaStop 0.1.3 does, at one look: |T| against the upper quantile of T.
    rng = np.random.default_rng(2)
    signed = absolute = 0
    runs = 600
    for _ in range(runs):
        x = rng.normal(size=20)
        observed = abs(x[:10].mean() - x[10:].mean())
        mixed = rng.permuted(np.broadcast_to(x, (300, 20)), axis=1)
        permuted = mixed[:, :10].mean(axis=1) - mixed[:, 10:].mean(axis=1)
        signed += observed > np.quantile(permuted, 0.95)
        absolute += observed > np.quantile(np.abs(permuted), 0.95)
    assert signed / runs > 0.08
    assert absolute / runs < 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def test_the_worst_of_three_is_separated_and_the_two_equal_ones_are_not():
    rng = np.random.default_rng(9)
    test = GroupSequential(["old", "new", "newer"], 5, permutations=2000)
    while not test.finished:
        test.add(rng.random((3, 20)) < np.array([[0.2], [0.8], [0.8]]))
    assert {(d.better, d.worse) for d in test.decisions} == {("new", "old"), ("newer", "old")}
    assert test.undecided == (("new", "newer"),)
    assert all(d.block <= 2 for d in test.decisions)


def test_misuse_is_refused():
    with pytest.raises(DataError, match="different policies"):
        GroupSequential(["a", "a"], 3)
    with pytest.raises(DataError, match="permutations"):
        GroupSequential(["a", "b"], 3, permutations=10)
    test = GroupSequential(["a", "b"], 1, permutations=100)
    with pytest.raises(DataError, match="2 rows"):
        test.add([[1.0, 0.0]])
    test.add([[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(DataError, match="used up"):
        test.add([[1.0], [0.0]])
