import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robolearn.errors import DataError
from robolearn.history import history_at, sample_index

TIMES = st.lists(st.integers(0, 1000), min_size=1, max_size=30).map(
    lambda t: np.array(sorted(t), dtype=np.int64)
)
QUERIES = st.lists(st.integers(-100, 1200), min_size=1, max_size=10).map(
    lambda t: np.array(t, dtype=np.int64)
)


@given(TIMES, QUERIES)
def test_newest_at_or_before(times, queries):
    index = sample_index(times, queries)
    for i, query in zip(index, queries, strict=True):
        before = np.flatnonzero(times <= query)
        assert i == (before[-1] if len(before) else 0)


@given(TIMES, QUERIES, st.integers(0, 300))
def test_latency_shifts_the_query(times, queries, latency):
    values = np.arange(len(times), dtype=np.float64)[:, None]
    shifted = history_at({"a/b": (times, values)}, queries, {"a/b": latency})["a/b"]
    direct = history_at({"a/b": (times, values)}, queries - latency)["a/b"]
    assert np.array_equal(shifted, direct)


@given(TIMES, QUERIES)
def test_later_samples_change_nothing(times, queries):
    values = np.arange(len(times), dtype=np.float64)
    more_t = np.append(times, 5000)
    more = np.append(values, -1.0)
    assert np.array_equal(
        history_at({"a/b": (times, values)}, queries)["a/b"],
        history_at({"a/b": (more_t, more)}, queries)["a/b"],
    )


def test_shapes_and_padding():
    times = np.array([10, 20, 30], dtype=np.int64)
    seen = history_at(
        {"a/b": (times, np.eye(3)), "c/d": (times[:1], np.zeros((1, 2, 2)))},
        np.array([[0, 25], [30, 99]], dtype=np.int64),
    )
    assert seen["a/b"].shape == (2, 2, 3)
    assert seen["c/d"].shape == (2, 2, 2, 2)
    assert seen["a/b"][0, 0].tolist() == [1, 0, 0]
    assert seen["a/b"][1].tolist() == [[0, 0, 1], [0, 0, 1]]


def test_no_samples_is_an_error_that_names_the_signal():
    empty = np.zeros(0, dtype=np.int64)
    with pytest.raises(DataError, match="block/pose"):
        history_at({"block/pose": (empty, empty)}, np.zeros(1, dtype=np.int64))
