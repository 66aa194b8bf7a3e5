"""The checker itself: what it must not let pass, here and on another platform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.golden.golden import Golden

NUMBERS = {"loss": 0.1, "chunk": np.linspace(-1.0, 1.0, 20), "few": [1e-9, 1.0], "why": "success"}


def check(folder: Path, changed: Any, *, update: bool = False) -> None:
    Golden(update, folder).check("x", NUMBERS | changed, rtol=1e-4, rests_on=())


@pytest.fixture(params=["here", "elsewhere"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    check(tmp_path, {}, update=True)
    if request.param == "elsewhere":
        recorded = json.loads((tmp_path / "x.json").read_text())
        recorded["platform"]["cpu"] = "another"
        (tmp_path / "x.json").write_text(json.dumps(recorded))
    check(tmp_path, {})
    return tmp_path


@pytest.mark.parametrize(
    "changed",
    [
        {"loss": 0.1001},
        {"chunk": np.linspace(-1.0, 1.001, 20)},
        {"chunk": np.linspace(-1.0, 1.0, 20, dtype=np.float32)},
        {"few": [1e-9, 1.001]},
        {"few": [1e-9, 1.0, 1.0]},
        {"few": [float("nan"), 1.0]},
        {"why": "time_limit"},
        {"more": 1},
    ],
)
def test_a_number_that_changes_is_named(folder: Path, changed: Any) -> None:
    with pytest.raises(AssertionError, match=f"{next(iter(changed))}: was .*") as error:
        check(folder, changed)
    assert "--update-golden" in str(error.value)


def test_the_last_bits_count_where_the_numbers_were_made(
    folder: Path, request: pytest.FixtureRequest
) -> None:
    middle = NUMBERS["chunk"].copy()
    middle[10] = np.nextafter(middle[10], 1.0)
    for changed in ({"loss": np.nextafter(0.1, 1.0)}, {"few": [2e-9, 1.0]}, {"chunk": middle}):
        if "elsewhere" in request.node.name:
            check(folder, changed)
        else:
            with pytest.raises(AssertionError, match="bit for bit"):
                check(folder, changed)


def test_what_was_never_recorded_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"no golden numbers 'x'.*--update-golden"):
        check(tmp_path, {})
