"""What commands print for a person."""

from __future__ import annotations

import contextlib

import pytest

from robolearn.cli.shared import parse as parse_module
from robolearn.cli.shared.parse import printable, say


def test_escape_codes_of_recordings_are_not_printed_raw(capsys: pytest.CaptureFixture[str]) -> None:
    say("task \x1b[2J\x1b]0;title\x07 \u202e é 手\n\tnext\r")
    out = capsys.readouterr().out
    assert out == "task \\x1b[2J\\x1b]0;title\\x07 \\u202e é 手\n\tnext\\r\n"
    assert printable("plain\ntext") == "plain\ntext"


def test_a_bar_is_drawn_when_it_is_known_of_how_many(monkeypatch):
    told = []

    @contextlib.contextmanager
    def progress(description, total, *, quiet):
        told.append((description, total, quiet))
        yield told.append
        told.append("closed")

    monkeypatch.setattr(parse_module, "progress", progress)
    with parse_module.counting("film", quiet=True) as show:
        assert told == []
        for done in (0, 1, 3):
            show(done, 3)
    assert told == [("film", 3, True), 0, 1, 2, "closed"]
    told.clear()
    with parse_module.counting("film"):
        pass
    assert told == []
