"""Streaming statistics equal the plain ones, however the data is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robolearn.data.stats import (
    DatasetStats,
    RunningStats,
    signal_stats,
    stats_from_json,
    stats_to_json,
)
from robolearn.errors import DataError


@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 2**31))
def test_merged_parts_equal_the_whole(first: int, second: int, seed: int) -> None:
    data = np.random.default_rng(seed).normal(3.0, 2.0, (first + second, 3))
    a, b = RunningStats(3), RunningStats(3)
    a.update(data[:first])
    b.update(data[first:])
    a.merge(b)
    got = a.finish()
    assert got.count == len(data)
    np.testing.assert_allclose(got.mean, data.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(got.std, data.std(axis=0), atol=1e-12)
    np.testing.assert_array_equal(got.minimum, data.min(axis=0))
    np.testing.assert_array_equal(got.maximum, data.max(axis=0))


def test_merging_is_commutative() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 2)) for n in (5, 9)]

    def total(order: list[int]) -> RunningStats:
        out = RunningStats(2)
        for i in order:
            part = RunningStats(2)
            part.update(parts[i])
            out.merge(part)
        return out

    np.testing.assert_allclose(total([0, 1]).finish().std, total([1, 0]).finish().std, rtol=1e-14)


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(DataError, match="not finite"):
        RunningStats(1).update(np.array([[1.0], [np.nan]]))


def test_no_values_and_wrong_sizes_are_explained() -> None:
    with pytest.raises(DataError, match="at least one"):
        RunningStats(2).finish()
    with pytest.raises(DataError, match="expected 2 components, got 3"):
        RunningStats(2).update(np.zeros((4, 3)))


def test_json_round_trip() -> None:
    stats = signal_stats(np.arange(12.0).reshape(6, 2))
    both = DatasetStats({"a/b": stats}, {"c/d": stats})
    assert stats_from_json(stats_to_json(both)) == both
    with pytest.raises(DataError, match="not the statistics"):
        stats_from_json({"observations": {}})
