"""The seqlock ring: order, overwriting, a killed writer, no torn reads across processes."""

import multiprocessing
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.supervisor.shared_memory import Ring, RingHandle
from robolearn.errors import DataError


@pytest.fixture
def ring():
    made = Ring.create(slots=8, width=3)
    yield made
    made.unlink()
    made.close()


def test_empty_ring_has_no_row(ring):
    assert ring.latest() is None
    assert len(ring.since(0).index) == 0


def test_latest_and_attached_reader_see_the_same_row(ring):
    ring.put(12345678901234567, [1.0, np.nan, -3.0])
    reader = ring.handle.attach()
    row = reader.latest()
    assert row is not None
    assert (row.index, row.t_ns) == (0, 12345678901234567)
    np.testing.assert_array_equal(row.value, [1.0, np.nan, -3.0])
    reader.close()
    reader.close()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 11), min_size=1, max_size=8))
def test_since_returns_every_surviving_row_once_in_order(bursts):
    ring = Ring.create(slots=8, width=1)
    seen, index, written, dropped = [], 0, 0, 0
    for burst in bursts:
        for _ in range(burst):
            ring.put(written, [float(written)])
            written += 1
        rows = ring.since(index)
        index, dropped = rows.next_index, dropped + rows.dropped
        np.testing.assert_array_equal(rows.value[:, 0], rows.t_ns)
        seen += rows.t_ns.tolist()
    ring.unlink()
    ring.close()
    assert seen == sorted(set(seen))
    assert len(seen) + dropped == written
    assert seen[-1] == written - 1


def test_a_writer_killed_in_the_middle_of_a_slot_leaves_the_previous_row_readable(ring):
    for k in range(11):
        ring.put(k, [k, k, k])
    ring._int[11 % 8, 0] = 2 * 11 + 1  # what a kill between the two marks leaves behind
    row = ring.latest()
    assert row is not None
    assert row.t_ns == 10
    rows = ring.since(0)
    assert rows.t_ns.tolist() == [4, 5, 6, 7, 8, 9, 10]


def test_wrong_width_and_size_are_refused(ring):
    with pytest.raises(ValueError, match="broadcast"):
        ring.put(0, [1.0, 2.0])
    with pytest.raises(DataError, match="at least 2 slots"):
        Ring.create(1, 1)


def _write(handle: RingHandle, rows: int) -> None:
    ring = handle.attach()
    for k in range(1, rows + 1):
        ring.put(k, np.full(16, float(k)))
    ring.close()


def test_no_torn_row_against_a_free_running_writer_process():
    ring = Ring.create(slots=64, width=16)
    rows = 12_000
    writer = multiprocessing.get_context("spawn").Process(target=_write, args=(ring.handle, rows))
    writer.start()
    index, read, dropped = 0, 0, 0
    end = time.monotonic() + 20
    while index < rows and time.monotonic() < end:
        row = ring.latest()
        if row is not None:
            assert np.all(row.value == row.t_ns)
        got = ring.since(index)
        index, dropped = got.next_index, dropped + got.dropped
        assert np.all(got.value == got.t_ns[:, None])
        read += len(got.index)
    writer.join(10)
    ring.unlink()
    ring.close()
    assert read + dropped == rows
    assert read > 0
