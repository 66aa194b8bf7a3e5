"""Types and shapes are checked in every test's first calls, and only there."""

from __future__ import annotations

import sys
from pathlib import Path

import jaxtyping
import numpy as np
import pytest

from robolearn.geometry import rotation_from_rotvec
from tests import checked_calls

MODULE = '''
"""Doubles."""
from __future__ import annotations
from dataclasses import dataclass
import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

def twice(x: Float64[NDArray, "n 3"]) -> Float64[NDArray, "n 3"]:
    return 2 * x

def twice_later(x: Float64[NDArray, "n 3"]) -> Float64[NDArray, "n 3"]:
    def inner(y: Float64[NDArray, "n 3"]) -> Float64[NDArray, "n 3"]:
        return 2 * y
    return inner(x)

@dataclass(frozen=True)
class Rows:
    x: Float64[NDArray, "n 3"]

    @property
    def wrong(self) -> int:
        return "no"
'''
WRONG = np.zeros((2, 4))


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A module that the import hook has seen, with its counts at their start."""
    (tmp_path / "rows_of_three.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with jaxtyping.install_import_hook("rows_of_three", "beartype.beartype"):
        import rows_of_three  # pyright: ignore[reportMissingImports]
    yield rows_of_three
    del sys.modules["rows_of_three"]


def test_the_first_calls_of_a_test_are_checked_and_no_later_ones(rows) -> None:
    for _ in range(checked_calls.CALLS):
        with pytest.raises(jaxtyping.TypeCheckError, match="twice"):
            rows.twice(WRONG)
    assert rows.twice(WRONG).shape == (2, 4)
    checked_calls.begin_test()
    with pytest.raises(jaxtyping.TypeCheckError, match="twice"):
        rows.twice(WRONG)


def test_classes_properties_and_inner_functions_are_checked(rows) -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match="Rows"):
        rows.Rows(WRONG)
    with pytest.raises(jaxtyping.TypeCheckError, match="wrong"):
        rows.Rows(np.zeros((2, 3))).wrong  # noqa: B018 - reading it is what fails
    for _ in range(checked_calls.CALLS):
        with pytest.raises(jaxtyping.TypeCheckError, match="twice_later"):
            rows.twice_later(WRONG)
    # The inner one has its own count, though every call defines it anew.
    for _ in range(checked_calls.CALLS):
        with pytest.raises(jaxtyping.TypeCheckError, match="inner"):
            rows.twice_later(WRONG)
    assert rows.twice_later(WRONG).shape == (2, 4)


def test_this_projects_functions_are_checked() -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match="rotation_from_rotvec"):
        rotation_from_rotvec(np.zeros(7))
