"""Samples of one signal: newest, or as of a time; nothing is lost and nothing comes twice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.streams.signal_buffer import SignalBuffer
from robolearn.errors import StaleSignalError
from robolearn.spec import SignalSpec

SPEC = SignalSpec("a/b", (1,))


def filled(times):
    buffer = SignalBuffer(SPEC)
    for t in times:
        buffer.add(t, [float(t)])
    return buffer


def test_a_value_between_two_samples_joins_the_stream():
    buffer = filled([10, 20, 30])
    seen = buffer.at(25)
    assert (seen.t_ns, seen.value[0]) == (25, 25.0)
    assert buffer.drain().t_ns.tolist() == [10, 20, 25]
    assert buffer.at(20).t_ns == 25, "time never runs backwards"
    assert buffer.at(99).t_ns == 30
    buffer.add(40, [40.0])
    assert buffer.at(35).value[0] == 35.0
    assert buffer.drain().t_ns.tolist() == [30, 35]
    assert buffer.at(40).t_ns == 40
    assert buffer.drain().t_ns.tolist() == [40]


def test_what_nobody_records_does_not_pile_up():
    buffer = filled([10, 20])
    buffer.forget()
    assert buffer.drain().t_ns.tolist() == []
    assert buffer.last.t_ns == 20
    buffer.add(30, [30.0])
    assert buffer.newest().t_ns == 30
    assert buffer.drain().t_ns.tolist() == [30]


def test_before_the_first_sample_it_is_the_first():
    assert filled([10, 20]).at(5).t_ns == 10
    with pytest.raises(StaleSignalError):
        SignalBuffer(SPEC).at(5)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), min_size=1, max_size=40))
def test_streams_ascend_and_show_what_a_line_has_there(steps):
    buffer, now, asked, out = filled([0]), 0, 0, []
    for arrives, step in steps:
        if arrives:
            now += step
            buffer.add(now, [float(now)])
        else:
            asked += step
            seen = buffer.at(asked)
            assert seen.value[0] == pytest.approx(seen.t_ns)
            assert seen.t_ns <= max(asked, 0)
            out += buffer.drain().t_ns.tolist()
            assert out[-1] == seen.t_ns
    assert out == sorted(set(out))


def test_pictures_keep_their_type():
    buffer = SignalBuffer(SignalSpec("top/image", (2, 2, 3), dtype="uint8"))
    buffer.add(1, np.full((2, 2, 3), 7, np.uint8))
    assert buffer.newest().value.dtype == np.uint8
    assert buffer.drain().value.dtype == np.uint8


def test_pictures_keep_the_files_that_they_came_in():
    buffer = SignalBuffer(SignalSpec("top/image", (2, 2, 3), dtype="uint8"))
    for k in range(4):
        buffer.add(k, np.full((2, 2, 3), k, np.uint8), b"" if k == 1 else bytes([k]))
        # Not newer: ignored with its file.
        buffer.add(k, np.zeros((2, 2, 3), np.uint8), b"again")
        if k == 2:
            assert buffer.newest().file == b"\x02"
    found = buffer.drain()
    assert found.files == (b"\x00", b"", b"\x02")
    assert [int(v.max()) for v in found.value] == [0, 1, 2]
    assert buffer.newest().file == b"\x03"
    assert buffer.drain().files == (b"\x03",)
    buffer.add(5, np.zeros((2, 2, 3), np.uint8))
    buffer.newest()
    assert buffer.drain().files == ()
