"""Documents become JSON that anybody reads: no NaN, large arrays as base64."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.operations.studio.documents.encode import LARGE, encoded


@dataclass(frozen=True)
class Inner:
    value: float
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    inner: Inner
    where: Path
    known: dict[str, Inner]
    nothing: None = None


def test_what_is_nested_keeps_its_names() -> None:
    found = json.loads(encoded(Document(Inner(math.nan, ("ä",)), Path("a/b"), {"x": Inner(1.5)})))
    assert found == {
        "inner": {"value": None, "words": ["ä"]},
        "where": "a/b",
        "known": {"x": {"value": 1.5, "words": []}},
        "nothing": None,
    }


def test_large_arrays_are_packed_and_small_ones_are_not() -> None:
    large = np.arange(2 * LARGE, dtype=np.float64).reshape(2, LARGE)
    large[0, 3] = np.nan
    found = json.loads(encoded({"small": large[:, :3], "large": large, "flag": np.bool_(True)}))
    assert found["small"] == [[0, 1, 2], [LARGE, LARGE + 1, LARGE + 2]]
    assert found["flag"] is True
    packed = np.frombuffer(base64.b64decode(found["large"]["float32"]), "<f4")
    np.testing.assert_array_equal(packed.reshape(found["large"]["shape"]), large)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=25)
@given(ANYTHING)
def test_whatever_is_in_it_json_takes_it(value: object) -> None:
    json.loads(encoded(value), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no form in JSON"):
        encoded({"x": object()})
