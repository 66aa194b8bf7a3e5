"""Every version is counted once, help is no success, and half a line is nobody's episode."""

from pathlib import Path

import pytest

from eval.statistics.intervals import wilson
from robolearn.errors import CheckpointError
from robolearn.operations.practice.ledger import Ledger
from robolearn.operations.practice.records import LINES, read_flights
from robolearn.operations.practice.versions import by_version
from tests.robolearn.operations.practice.flights import practised


def test_the_parent_comes_first_and_help_is_no_success(tmp_path: Path):
    parent, fourth, seventh = by_version(practised(tmp_path))
    assert [v.version for v in (parent, fourth, seventh)] == [None, 4, 7]
    assert (parent.episodes, parent.successes, parent.success) == (4, 2, wilson(2, 4))
    assert (seventh.episodes, seventh.successes, seventh.helped) == (6, 4, 1)
    assert (seventh.first, seventh.last, fourth.last) == (4, 9, 11)
    assert fourth.score == pytest.approx(0.7)
    assert by_version(()) == ()


def test_what_is_being_written_is_read_without_touching_it(tmp_path: Path):
    flights, lines = practised(tmp_path), tmp_path / LINES
    torn = lines.read_bytes() + b'{"number": 12, "id"'
    lines.write_bytes(torn)
    assert read_flights(tmp_path) == flights
    assert lines.read_bytes() == torn
    assert read_flights(tmp_path / "nothing") == ()
    # Who goes on with it reads it once, and drops the half line.
    assert tuple(Ledger.of(tmp_path).flights) == flights
    assert torn.startswith(lines.read_bytes())
    assert lines.read_bytes().endswith(b"\n")
    lines.write_bytes(b"{}\n" + torn)
    with pytest.raises(CheckpointError, match="line 1, is damaged"):
        read_flights(tmp_path)
