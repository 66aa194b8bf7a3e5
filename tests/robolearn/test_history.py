import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robolearn.errors import DataError
from robolearn.geometry import quat_from_rotation, rot_z, rotation_from_quat
from robolearn.history import history_at, interpolate, sample_index
from robolearn.spec import SignalSpec

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


POSE = SignalSpec("tool/pose", (7,), components=("x", "y", "z", "qw", "qx", "qy", "qz"))


@given(st.floats(-3.0, 3.0), st.floats(-2.0, 2.0), st.floats(0.0, 1.0))
def test_turns_are_interpolated_at_constant_speed(start, turn, share):
    def pose(angle):
        quaternion = quat_from_rotation(rot_z(angle))
        return np.concatenate([[angle, 2 * angle, 1.0], quaternion])

    times = np.array([0, 1000], dtype=np.int64)
    query = np.array([round(1000 * share)], dtype=np.int64)
    got = interpolate(times, np.stack([pose(start), pose(start + turn)]), query, POSE)[0]
    wanted = start + turn * query[0] / 1000
    np.testing.assert_allclose(got[:3], [wanted, 2 * wanted, 1.0], atol=1e-9)
    np.testing.assert_allclose(rotation_from_quat(got[3:]), rot_z(wanted), atol=1e-6)
    assert got[3] >= 0


def test_angles_take_the_shorter_way_and_pictures_are_refused():
    spec = SignalSpec("block/pose", (3,), angular=(2,))
    values = np.array([[0.0, 0.0, 3.0], [1.0, 2.0, -3.0]])
    got = interpolate(np.array([0, 10]), values, np.array([-5, 5, 20]), spec)
    middle = 3.0 + (2 * np.pi - 6.0) / 2
    np.testing.assert_allclose(got, [values[0], [0.5, 1.0, middle - 2 * np.pi], values[1]])
    image = SignalSpec("top/image", (1, 1, 3), dtype="uint8")
    with pytest.raises(DataError, match="not interpolated"):
        interpolate(np.array([0]), np.zeros((1, 1, 1, 3)), np.array([0]), image)
    with pytest.raises(DataError, match="no samples"):
        interpolate(np.zeros(0, np.int64), np.zeros((0, 3)), np.array([0]), spec)
