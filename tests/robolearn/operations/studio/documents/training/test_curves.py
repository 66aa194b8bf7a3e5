"""The log of a training is followed while it grows, is cut, and is written anew."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.operations.studio.documents.training import curves
from robolearn.operations.studio.documents.training.curves import curve_part
from robolearn.training.log import JOURNAL


def write(folder: Path, steps: range, tail: str = "", mode: str = "a") -> None:
    with (folder / JOURNAL).open(mode) as stream:
        stream.writelines(json.dumps({"step": s, "loss/a": s / 2}) + "\n" for s in steps)
        stream.write(tail)


def test_only_what_came_since_is_read_and_half_a_line_waits(tmp_path: Path) -> None:
    write(tmp_path, range(3), tail='{"step": 3, "lo')
    first = curve_part(tmp_path)
    assert first.columns["step"].tolist() == [0, 1, 2]
    assert (first.more, first.fresh, first.damaged) == (False, False, 0)
    again = curve_part(tmp_path, first.next, first.mark)
    assert again.columns == {}
    assert again.next == first.next
    with (tmp_path / JOURNAL).open("a") as stream:
        stream.write('ss/a": 1.5}\n')
    write(tmp_path, range(4, 5))
    then = curve_part(tmp_path, first.next, first.mark)
    assert then.columns["step"].tolist() == [3, 4]
    assert not then.fresh


@pytest.mark.parametrize("grown", [1, 30])
def test_a_log_that_was_written_anew_starts_over(tmp_path: Path, grown: int) -> None:
    write(tmp_path, range(20))
    read = curve_part(tmp_path)
    # A resumed training drops the lines past its checkpoint and writes other ones in their place.
    write(tmp_path, range(1000, 1000 + grown), mode="w")
    then = curve_part(tmp_path, read.next, read.mark)
    assert then.fresh
    assert then.columns["step"].tolist() == list(range(1000, 1000 + grown))


def test_damaged_lines_are_counted_and_the_others_are_shown(tmp_path: Path) -> None:
    lines = ['{"step": 1, "a": 1}', "\x00\xff", "[1]", "null", '{"a": 2}', '{"step": "3"}', ""]
    lines += ['{"step": 4, "b": NaN, "c": "word", "d": true, "e": 1e999}', "[" * 10_000]
    (tmp_path / JOURNAL).write_text("\n".join(lines) + "\n", encoding="latin-1")
    found = curve_part(tmp_path)
    assert found.columns["step"].tolist() == [1, 4]
    np.testing.assert_array_equal(found.columns["a"], [1, np.nan])
    assert set(found.columns) == {"step", "a"}
    assert found.damaged == 6


@pytest.fixture(scope="module")
def logged(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write(folder, range(30))
    return folder


@settings(max_examples=30)
@given(since=st.integers(-5, 2000), mark=st.integers(0, 2**32))
def test_any_offset_gives_whole_lines(logged, since, mark) -> None:
    folder = logged
    found = curve_part(folder, since, mark)
    assert found.damaged == 0
    assert found.next <= (folder / JOURNAL).stat().st_size


def test_a_long_log_comes_in_parts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(curves, "MOST_BYTES", 200)
    write(tmp_path, range(40))
    steps, at, mark, parts = [], 0, 0, 0
    while True:
        part = curve_part(tmp_path, at, mark)
        steps += part.columns["step"].tolist()
        at, mark, parts = part.next, part.mark, parts + 1
        if not part.more:
            break
    assert steps == list(range(40))
    assert parts > 3


def test_no_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=JOURNAL):
        curve_part(tmp_path)
