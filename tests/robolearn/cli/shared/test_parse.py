"""What commands print for a person."""

from __future__ import annotations

import pytest

from robolearn.cli.shared.parse import printable, say


def test_escape_codes_of_recordings_are_not_printed_raw(capsys: pytest.CaptureFixture[str]) -> None:
    say("task \x1b[2J\x1b]0;title\x07 \u202e é 手\n\tnext\r")
    out = capsys.readouterr().out
    assert out == "task \\x1b[2J\\x1b]0;title\\x07 \\u202e é 手\n\tnext\\r\n"
    assert printable("plain\ntext") == "plain\ntext"
