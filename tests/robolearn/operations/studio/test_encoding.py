"""Documents become JSON that a browser reads: numbers packed, nothing that is not JSON."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robolearn.operations.studio.encoding import encode


@dataclass(frozen=True)
class _Document:
    name: str
    values: np.ndarray
    figures: tuple[float, ...] = ()


def test_arrays_are_packed_and_what_is_not_finite_is_null():
    made = json.loads(encode(_Document("a", np.eye(2), (1.0, float("nan")))))
    assert made["figures"] == [1.0, None]
    packed = made["values"]
    assert (packed["shape"], packed["type"]) == ([2, 2], "f4")
    values = np.frombuffer(base64.b64decode(packed["data"]), "<f4").reshape(2, 2)
    np.testing.assert_array_equal(values, np.eye(2))


@pytest.mark.parametrize(
    ("dtype", "type_"), [("bool", "u1"), ("uint8", "u1"), ("int64", "i4"), ("float64", "f4")]
)
def test_types_of_arrays(dtype: str, type_: str):
    assert json.loads(encode(np.zeros(3, dtype)))["type"] == type_


def test_what_has_no_meaning_in_json_is_refused():
    with pytest.raises(TypeError, match="object"):
        encode({"a": object()})
    with pytest.raises(TypeError, match="array"):
        encode(np.array(["a"]))


@given(st.text(), st.floats(), st.integers())
def test_any_text_and_number_encodes(text: str, value: float, whole: int):
    made = json.loads(encode([text, value, whole, Path("/a")]))
    assert made[0] == text
    assert made[2] == whole


def test_names_of_files_that_are_no_text_encode():
    assert encode("\udce4") == b'"\\udce4"'
