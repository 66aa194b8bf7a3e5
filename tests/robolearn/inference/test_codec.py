import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robolearn.errors import DataError
from robolearn.inference.codec import (
    MAGIC,
    Message,
    decode,
    encode,
    encode_output,
    encode_request,
    output_from,
    request_from,
)
from robolearn.types import PolicyInput, PolicyOutput

DTYPES = st.sampled_from(["?", "u1", "<i4", "<i8", ">i8", "<f2", "<f4", "<f8", ">f8"])
ARRAYS = DTYPES.flatmap(
    lambda d: hnp.arrays(np.dtype(d), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=6), JSON), st.dictionaries(st.text(max_size=6), ARRAYS))
def test_round_trip(meta, arrays):
    message = decode(encode(Message(meta, arrays)))
    assert message.meta == meta
    assert list(message.arrays) == list(arrays)
    for name, value in arrays.items():
        got = message.arrays[name]
        assert got.shape == value.shape
        assert got.dtype == value.dtype.newbyteorder("<")
        assert np.array_equal(got, value, equal_nan=value.dtype.kind == "f")
        assert not got.flags.writeable


@given(st.binary(max_size=80))
def test_noise_is_refused_with_a_typed_error(data):
    with pytest.raises(DataError):
        decode(data)


@given(st.data())
def test_damaged_messages_never_decode_to_nonsense(data):
    good = encode(Message({"a": 1}, {"x": np.arange(6.0).reshape(2, 3)}))
    cut = data.draw(st.integers(0, len(good) - 1))
    with pytest.raises(DataError):
        decode(good[:cut])
    position = data.draw(st.integers(0, len(good) - 49))
    value = data.draw(st.integers(0, 255))
    damaged = good[:position] + bytes([value]) + good[position + 1 :]
    try:
        message = decode(damaged)
    except DataError:
        return
    assert all(a.dtype.kind in "biuf" for a in message.arrays.values())


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b'{"meta": {}}',
        b'{"meta": {}, "arrays": [["x", "O", [1]]]}',
        b'{"meta": {}, "arrays": [["x", "<f8", [-1]]]}',
        b'{"meta": {}, "arrays": [["x", "<f8", [99999999999]]]}',
        b'{"meta": {}, "arrays": [[3, "<f8", [1]]]}',
        b'{"meta": {}, "arrays": [["x", "nonsense", [1]]]}',
        b"\xff\xfe",
    ],
)
def test_hostile_headers_are_refused(header):
    with pytest.raises(DataError):
        decode(struct.pack("<4sI", MAGIC, len(header)) + header)


def test_what_cannot_be_sent_is_refused():
    with pytest.raises(DataError, match="dtype object"):
        encode(Message({}, {"x": np.array([object()])}))
    with pytest.raises(DataError, match="plain JSON"):
        encode(Message({"x": float("nan")}, {}))


@given(
    batch=st.integers(1, 3),
    prefix=st.booleans(),
    task=st.lists(st.text(max_size=5), max_size=2),
)
def test_requests_and_outputs_round_trip(batch, prefix, task):
    rng = np.random.default_rng(0)
    request = PolicyInput(
        observations={"tool/xy_table": rng.normal(size=(batch, 2, 2))},
        t_ns=np.arange(batch),
        seed=np.full(batch, 2**62),
        prefix=rng.normal(size=(batch, 3, 2)) if prefix else None,
        goal={"goal/image": np.zeros((batch, 4, 4, 3), np.uint8)},
        task=tuple(task),
    )
    got = request_from(decode(encode_request(request, {"env_id": 3})))
    assert np.array_equal(got.observations["tool/xy_table"], request.observations["tool/xy_table"])
    assert np.array_equal(got.seed, request.seed)
    assert np.array_equal(got.t_ns, request.t_ns)
    assert (got.prefix is None) == (not prefix)
    assert got.task == request.task
    assert got.goal["goal/image"].dtype == np.uint8
    output = PolicyOutput(
        rng.normal(size=(batch, 2, 16, 2)),
        np.zeros((batch, 2)),
        np.arange(batch),
        latency_ns=12,
        extras={"changed": np.ones(batch, bool)},
    )
    back = output_from(decode(encode_output(output)))
    assert np.array_equal(back.actions, output.actions)
    assert back.latency_ns == 12
    assert back.extras["changed"].all()


def test_the_wrong_kind_is_refused():
    with pytest.raises(DataError, match="kind 'output'"):
        output_from(decode(encode(Message({"kind": "request"}, {}))))
    with pytest.raises(DataError, match="lacks"):
        request_from(decode(encode(Message({"kind": "request"}, {}))))
